"""A kombu message as it stands in a stream entry: a JSON head and the body as it is.

The body is not wrapped in JSON or base64: it is the larger part, and most of it is text.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from kombu.utils.json import dumps, loads

HEAD, BODY = b"h", b"b"
TEXT, BYTES = "text", "bytes"
NORMAL_LANE = 2
# The lane of each kombu priority, first served first. 0 is what kombu sends for none.
LANE_OF = (NORMAL_LANE, 0, 0, 1, 1, 1, 2, 2, 2, 3)


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


def pack(message: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return head and body of `message`, kombu's payload."""
    body = message["body"]
    head = {key: value for key, value in message.items() if key != "body"}
    if isinstance(body, str):
        head["kind"], raw = TEXT, body.encode()
    else:
        head["kind"], raw = BYTES, bytes(body)
    return dumps(head).encode(), raw


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
