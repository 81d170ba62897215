"""A kombu message as it stands in a stream entry: a JSON head and the body as it is.

The body is not wrapped in JSON or base64: it is the larger part, and most of it is text.

A task message as an entry of a stream, made without a connection.

No kombu producer takes part in it: some are sent in the step that ends another task.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from kombu.utils.json import JSONEncoder, loads

from blimp.queue.brokers.streams.publish_once import PROPERTY
from blimp.queue.protocol.message import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    MAX_MESSAGE_BYTES,
    write_message,
)

if TYPE_CHECKING:
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.protocol.signing import Signer
    from blimp.queue.redis.keys import Keys, QueueKeys

HEAD, BODY = b"h", b"b"
TEXT, BYTES = "text", "bytes"
NORMAL_LANE = 2
_encoder = JSONEncoder()  # kombu's `dumps` makes one for each message
# The lane of each kombu priority, first served first. 0 is what kombu sends for none.
LANE_OF = (NORMAL_LANE, 0, 0, 1, 1, 1, 2, 2, 2, 3)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One message to be put. due_ms: 0 for now. ttl_ms: None where it may wait for ever."""

    lane: int
    due_ms: int
    ttl_ms: int | None
    head: bytes
    body: bytes


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """One message on its way into a queue. due_ms: on the server's clock, 0 for now."""

    queue: QueueKeys
    lane: int
    due_ms: int
    head: bytes
    body: bytes


def lane_of(properties: dict[str, Any]) -> int:
    """Return the lane of a message: 0 emergency, 1 high, 2 normal, 3 low."""
    priority = properties.get("priority")
    if not isinstance(priority, int) or not 0 <= priority < len(LANE_OF):
        return NORMAL_LANE
    return LANE_OF[priority]


def due_ms(headers: dict[str, Any]) -> int:
    """Return when a message may be delivered, ms since the epoch; 0 for at once.

    Read from Celery's `eta` header, ISO 8601; without a zone it is UTC, as Celery means it.
    What cannot be read is left to whoever takes the message.
    """
    eta = headers.get("eta")
    if isinstance(eta, str):
        try:
            eta = datetime.fromisoformat(eta)
        except ValueError:
            return 0
    if not isinstance(eta, datetime):
        return 0
    if eta.tzinfo is None:
        eta = eta.replace(tzinfo=UTC)
    return int(eta.timestamp() * 1000)


def ttl_ms(headers: dict[str, Any], properties: dict[str, Any]) -> int | None:
    """Return how long a message may wait, ms; None for ever, and for what is no number.

    Read from AMQP's `expiration`, a text of milliseconds. A task with the header `expires` goes
    to a worker however old it is: only a worker records its end, for its caller and its chord.
    """
    if headers.get("expires") and headers.get("task"):
        return None
    try:
        return max(0, int(properties["expiration"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def pack(message: dict[str, Any]) -> Envelope:
    """Return `message`, kombu's payload, as it goes to the server."""
    body, properties = message["body"], message["properties"]
    head = {key: value for key, value in message.items() if key != "body"}
    if PROPERTY in properties:
        head["properties"] = {key: properties[key] for key in properties if key != PROPERTY}
    if isinstance(body, str):
        head["kind"], raw = TEXT, body.encode()
    else:
        head["kind"], raw = BYTES, bytes(body)
    return Envelope(
        lane=lane_of(properties),
        due_ms=due_ms(message["headers"]),
        ttl_ms=ttl_ms(message["headers"], properties),
        head=_encoder.encode(head).encode(),
        body=raw,
    )


def unpack(fields: list[bytes]) -> dict[str, Any]:
    """Return kombu's payload from the fields of an entry. Raises ValueError saying why not."""
    entry = dict(zip(fields[::2], fields[1::2], strict=False))
    try:
        raw, body = entry[HEAD], entry[BODY]
    except KeyError as error:
        raise ValueError(f"field {error} is missing") from None
    try:
        # kombu's reader also knows dates and the like, and is ten times slower.
        head = loads(raw) if b"__type__" in raw else msgspec.json.decode(raw)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"head is not JSON: {error}") from None
    if not isinstance(head, dict):
        raise ValueError(f"head is {type(head).__name__}, must be an object")
    for name in ("headers", "properties"):
        if not isinstance(head.get(name), dict):
            raise ValueError(f"{name!r} is missing or not an object")
    if not isinstance(head["properties"].get("delivery_info"), dict):
        raise ValueError("'delivery_info' is missing or not an object")
    head["properties"].pop("body_encoding", None)
    if head.pop("kind", BYTES) == TEXT:
        try:
            head["body"] = body.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"body is not text: {error}") from None
    else:
        head["body"] = body
    return head


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
    envelope = pack_task(body, headers=headers, queue=message.queue, priority=message.priority)
    return Put(
        queue=keys.queue(message.queue),
        lane=envelope.lane,
        due_ms=envelope.due_ms,
        head=envelope.head,
        body=envelope.body,
    )


def pack_task(body: bytes, *, headers: dict[str, Any], queue: str, priority: int) -> Envelope:
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
        "kind": BYTES,
    }
    return Envelope(
        lane=lane_of(properties),
        due_ms=due_ms(headers),
        ttl_ms=None,
        head=_encode(head),
        body=body,
    )
