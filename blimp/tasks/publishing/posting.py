"""A task message as an entry of a stream, made without a connection.

No kombu producer takes part in it: some are sent in the step that ends another task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from blimp.tasks.message import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    MAX_MESSAGE_BYTES,
    write_message,
)
from blimp.tasks.transport import wire
from blimp.tasks.transport.end import Put

if TYPE_CHECKING:
    from blimp.tasks.message import TaskMessage
    from blimp.tasks.signing import Signer
    from blimp.tasks.transport.keys import Keys

_encode = msgspec.json.Encoder().encode


def post(
    message: TaskMessage,
    *,
    keys: Keys,
    signer: Signer | None = None,
    limit_bytes: int = MAX_MESSAGE_BYTES,
) -> Put:
    """Return `message` as the publisher would have put it into its queue.

    Raises MessageError where JSON cannot hold its arguments, or it is longer than the limit.
    """
    headers, body = write_message(message, signer=signer, limit_bytes=limit_bytes)
    parcel = pack_task(body, headers=headers, queue=message.queue, priority=message.priority)
    return Put(
        queue=keys.queue(message.queue),
        lane=parcel.lane,
        due_ms=parcel.due_ms,
        head=parcel.head,
        body=parcel.body,
    )


def pack_task(body: bytes, *, headers: dict[str, Any], queue: str, priority: int) -> wire.Parcel:
    """Return what `write_message` returned as a kombu producer would have sent it.

    The headers are known to be JSON, so kombu's own writer, which is slower, is not needed.
    """
    properties = {
        "correlation_id": headers["id"],
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "priority": max(priority, 1),  # 0 is what kombu sends for none; 1 is the first lane too
        "delivery_tag": headers["id"],  # whoever takes it gives it its own
    }
    head = {
        "content-encoding": CONTENT_ENCODING,
        "content-type": CONTENT_TYPE,
        "headers": headers,
        "properties": properties,
        "kind": wire.BYTES,
    }
    return wire.Parcel(
        lane=wire.lane_of(properties),
        due_ms=wire.due_ms(headers),
        ttl_ms=None,
        head=_encode(head),
        body=body,
    )
