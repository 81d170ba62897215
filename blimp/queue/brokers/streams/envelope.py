"""A message as it stands in a stream entry: how it is packed, and how it is read.

The head is JSON, the body stays as it is: it is the larger part, and most of it is text.
Tested by test_streams_sender.py.
"""

from __future__ import annotations

import itertools
import os
import uuid
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.nesting import shallow
from blimp.queue.protocol.message import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    FAIR,
    MAX_MESSAGE_BYTES,
    write_message,
)
from blimp.queue.redis.keys import QueueKeys

if TYPE_CHECKING:
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.protocol.signing import Signer
    from blimp.queue.redis.keys import Keys

PROPERTY = "once"
DEFAULT_REMEMBER_S = 600.0
REMEMBERED = 64  # of each sender, as in publish.lua


class Stamp(msgspec.Struct, frozen=True):
    """One publish: its sender's key on the server, and its number there."""

    key: str = ""
    number: int = 0
    remember_ms: int = 0


NONE = Stamp()


class Stamps:
    """Stamps what one channel publishes. Thread-safe; a fork stamps as another sender.

    kombu prepares a message again for each attempt, with the same properties: the first attempt
    puts the stamp there, the next finds it, and it is never sent. `once`, given as a
    property, is a stamp of the caller's own: a publish with the same text within
    `remember_s` publishes nothing.
    """

    def __init__(self, *, keys: Keys, remember_s: float) -> None:
        self._keys = keys
        self._remember_ms = int(remember_s * 1000)
        self._process = 0
        self._key = ""
        self._numbers = itertools.count(1)

    def stamp(self, properties: dict[str, Any]) -> None:
        """Have a stamp in `properties`, unless it has one or nothing is to be remembered."""
        if self._remember_ms > 0 and PROPERTY not in properties:
            properties[PROPERTY] = self.next()

    def next(self) -> Stamp:
        """Return the stamp of one more publish."""
        if self._process != os.getpid():
            self._key, self._process = self._keys.sender(uuid.uuid4().hex), os.getpid()
        return Stamp(self._key, next(self._numbers), self._remember_ms)

    def read(self, properties: dict[str, Any]) -> Stamp:
        """Return the stamp in `properties`. Raises ValueError for an `once` that is no text."""
        found = properties.get(PROPERTY, NONE)
        if isinstance(found, Stamp):
            return found
        if not isinstance(found, str) or not found:
            raise ValueError(f"once={found!r:.40}: must be a text, not empty")
        return Stamp(self._keys.published(found), 1, self._remember_ms)


HEAD, BODY, REVOKED, ASIDE = b"h", b"b", b"r", b"u"
SEPARATOR = b"\n"  # of head and body in what is published: no JSON of one line has it
TEXT, BYTES = "text", "bytes"
NORMAL_LEVEL = 2
# The level of each kombu priority, first served first. 0 is what kombu sends for none.
LEVEL_OF = (NORMAL_LEVEL, 0, 0, 1, 1, 1, 2, 2, 2, 3)


@cache
def _kombu_json() -> Any:
    """Return kombu's JSON: it takes 40 ms to load, and what this project sends needs none."""
    from kombu.utils import json

    return json


@cache
def _encoder() -> Any:
    return _kombu_json().JSONEncoder()  # kombu's `dumps` makes one for each message


class WasAside(msgspec.Struct, frozen=True):
    """Until when a message waited, on the broker's clock, for another version of its task."""

    until_s: float
    versions: tuple[str, ...]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery: an entry of a level, held by a consumer for the `fence`-th time.

    aside: of one that was set aside in another entry. before: how often that was delivered.
    """

    tag: str  # kombu's delivery tag: no two deliveries share one
    queue: QueueKeys
    level: int
    id: str
    fence: int
    before: int = 0
    aside: WasAside | None = None

    @property
    def counted(self) -> int:
        """How often the message was delivered, this time included."""
        return self.before + self.fence

    @property
    def stream(self) -> str:
        return self.queue.levels[self.level]

    @property
    def issued_ms(self) -> int:
        """When the message came to the server, on the server's clock."""
        return int(self.id.partition("-")[0])


class Envelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message to be put. due_ms: 0 for now. ttl_ms: None if it may wait for ever.

    tenant: whose turn it waits for, "" for none; such a message has no ttl_ms.
    """

    level: int
    due_ms: int
    head: bytes
    body: bytes
    ttl_ms: int | None = None
    tenant: str = ""


def level_of(properties: dict[str, Any]) -> int:
    """Return the level of a message: 0 emergency, 1 high, 2 normal, 3 low."""
    priority = properties.get("priority")
    if not isinstance(priority, int) or not 0 <= priority < len(LEVEL_OF):
        return NORMAL_LEVEL
    return LEVEL_OF[priority]


def due_ms(headers: dict[str, Any]) -> int:
    """Return when a message may be delivered, ms since the epoch; 0 for at once.

    Read from Celery's `eta` header, ISO 8601; without a zone it is UTC, as Celery means it.
    What cannot be read is left to the consumer.
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
    to a worker however old it is: only a worker records its end, for all that wait for it.
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
        level=level_of(properties),
        due_ms=due_ms(message["headers"]),
        ttl_ms=ttl_ms(message["headers"], properties),
        head=_encoder().encode(head).encode(),
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
        is_typed = b"__type__" in shallow(raw)
        head = _kombu_json().loads(raw) if is_typed else msgspec.json.decode(raw)
    except Exception as error:  # kombu's decoders, and those registered there, may raise anything
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
    message: TaskMessage, *, signer: Signer | None = None, limit_bytes: int = MAX_MESSAGE_BYTES
) -> Envelope:
    """Return `message` as the publisher would have put it into its queue.

    Raises MessageError if JSON cannot hold its arguments, or it is longer than the limit.
    """
    headers, body = write_message(message, signer=signer, limit_bytes=limit_bytes)
    return pack_task(body, headers=headers, queue=message.queue, priority=message.priority)


def pack_task(body: bytes, *, headers: dict[str, Any], queue: str, priority: int) -> Envelope:
    """Return what `write_message` returned as a kombu producer would have sent it.

    The headers are known to be JSON, so kombu's own writer, which is slower, is not needed.
    """
    priority = max(priority, 1)  # 0 is what kombu sends for none; 1 is the first level too
    head = {
        "content-encoding": CONTENT_ENCODING,
        "content-type": CONTENT_TYPE,
        "headers": headers,
        "properties": {
            "correlation_id": headers["id"],
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": priority,
            "delivery_tag": headers["id"],  # the consumer gives it its own
        },
        "kind": BYTES,
    }
    return Envelope(
        level=LEVEL_OF[priority] if priority < len(LEVEL_OF) else NORMAL_LEVEL,
        due_ms=due_ms(headers) if headers["eta"] else 0,
        head=_encode(head),
        body=body,
        tenant=tenant if isinstance(tenant := headers.get(FAIR), str) else "",
    )


def pack_broadcast(
    body: bytes, *, exchange: str, routing_key: str = "", headers: dict[str, Any] | None = None
) -> Envelope:
    """Return a JSON body as a kombu producer would have sent it to a fanout exchange."""
    head = {
        "content-encoding": CONTENT_ENCODING,
        "content-type": CONTENT_TYPE,
        "headers": headers or {},
        "properties": {
            "delivery_mode": 1,
            "delivery_info": {"exchange": exchange, "routing_key": routing_key},
            "delivery_tag": str(uuid.uuid4()),
            "priority": 0,
        },
        "kind": BYTES,
    }
    return Envelope(level=NORMAL_LEVEL, due_ms=0, head=_encode(head), body=body)


class StreamsMessage(msgspec.Struct, kw_only=True, rename={
    "content_type": "content-type", "content_encoding": "content-encoding"
}):  # fmt: skip
    """Its names are kombu's, so that a reader takes either. The fence is in the header where others
    carry it. revoked: the mark of one that was revoked while it waited. Decoded from the head;
    claim, body and revoked are set after that, whatever the head has under these names.
    """

    headers: dict[str, Any]
    properties: dict[str, Any]
    content_type: str | None = None
    content_encoding: str | None = None
    claim: Any = None  # a Claim
    body: Any = b""  # bytes or text
    revoked: bytes = b""


_decode = msgspec.json.Decoder(StreamsMessage).decode


def open_message(claim: Claim, fields: list[bytes], *, head_limit_bytes: int) -> StreamsMessage:
    """Return the message in an entry's fields. Raises ValueError saying why it cannot be read."""
    message = None
    if len(fields) >= 2 and len(fields[1]) > head_limit_bytes:
        raise ValueError(f"headers of {len(fields[1])} bytes: the limit is {head_limit_bytes}")
    if len(fields) >= 4 and fields[0] == HEAD and fields[2] == BODY:
        try:
            message = None if b"__type__" in fields[1] else _decode(shallow(fields[1]))
        except (ValueError, RecursionError):
            message = None  # what is wrong with it is said below
    if message is not None:
        message.claim, message.body, message.revoked = claim, fields[3], b""
    else:
        payload = unpack(fields)
        message = StreamsMessage(
            claim=claim,
            headers=payload["headers"],
            properties=payload["properties"],
            body=payload["body"],
            content_type=payload.get("content-type"),
            content_encoding=payload.get("content-encoding"),
        )
    if len(fields) >= 6 and fields[4] == REVOKED:
        message.revoked = fields[5]
    if len(fields) >= 6 and fields[-2] == ASIDE:
        before, until_ms, tried = fields[-1].decode().split(":")
        was = WasAside(float(until_ms) / 1e3, tuple(filter(None, tried.split(","))))
        claim = message.claim = msgspec.structs.replace(claim, before=int(before), aside=was)
    if claim.counted > 1:
        said = message.headers.get("blimp_delivery")
        again = (said if isinstance(said, int) else 0) + claim.counted - 1
        message.headers["blimp_delivery"] = again
    return message
