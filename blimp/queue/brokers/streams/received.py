"""A message as the transport's own worker takes it: what kombu's would have, and no more."""

from __future__ import annotations

from typing import Any

import msgspec

from blimp.queue.brokers.streams import envelope as wire
from blimp.queue.brokers.streams.store import Claim


class StreamsMessage(msgspec.Struct, kw_only=True):
    """Named as kombu's, for whoever reads either. The fence is in the header where others
    carry it.
    """

    claim: Claim
    headers: dict[str, Any]
    properties: dict[str, Any]
    body: bytes | str
    content_type: str | None
    content_encoding: str | None


class _Head(msgspec.Struct, rename={"content_type": "content-type",
                                    "content_encoding": "content-encoding"}):  # fmt: skip
    headers: dict[str, Any]
    properties: dict[str, Any]
    content_type: str | None = None
    content_encoding: str | None = None


_decode = msgspec.json.Decoder(_Head).decode


def open_message(claim: Claim, fields: list[bytes], *, head_limit_bytes: int) -> StreamsMessage:
    """Return the message in an entry's fields. Raises ValueError saying why it cannot be read."""
    head = None
    if len(fields) >= 2 and len(fields[1]) > head_limit_bytes:
        raise ValueError(f"headers of {len(fields[1])} bytes: the limit is {head_limit_bytes}")
    if len(fields) >= 4 and fields[0] == wire.HEAD and fields[2] == wire.BODY:
        try:
            head = None if b"__type__" in fields[1] else _decode(fields[1])
        except (ValueError, RecursionError):
            head = None  # what is wrong with it is said below
    if head is not None:
        message = StreamsMessage(
            claim=claim,
            headers=head.headers,
            properties=head.properties,
            body=fields[3],
            content_type=head.content_type,
            content_encoding=head.content_encoding,
        )
    else:
        payload = wire.unpack(fields)
        message = StreamsMessage(
            claim=claim,
            headers=payload["headers"],
            properties=payload["properties"],
            body=payload["body"],
            content_type=payload.get("content-type"),
            content_encoding=payload.get("content-encoding"),
        )
    if claim.fence > 1:
        before = message.headers.get("blimp_delivery")
        again = (before if isinstance(before, int) else 0) + claim.fence - 1
        message.headers["blimp_delivery"] = again
    return message
