"""Task messages: Celery's task protocol version 2, as it is written.

Headers carry what the queue needs, the body is `[args, kwargs, embed]` in JSON. Our own
headers begin with `blimp_`; Celery passes over them:

blimp_issued_ms   when the message was issued, milliseconds on the broker's clock
blimp_ttl_s       the age past which it must not begin any more
blimp_delivery    how often it was delivered before this time: the fence
blimp_vehicle     the vehicle it is meant for
blimp_source      who sent it, for people
blimp_authority   the token of its sender's control of the vehicle; see authority.py
blimp_coalesce    its key: a newer message with the same supersedes it
blimp_number      its place among the messages of its queue that coalesce
blimp_version     the version of these headers; absent in the first
blimp_again       sent a second time: the answer to the first was lost
blimp_signature   see signing.py

`traceparent` and `tracestate` say which trace it belongs to, as Celery's own instrumentation
writes them; see observe/context.py.

Source: docs.celeryq.dev, "Message Protocol", version 2; Celery 5.7 `app/amqp.py`.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from blimp.errors import ConfigError, MessageError
from blimp.queue.protocol.kombu_body import encode_value
from blimp.queue.protocol.trace_context import PARENT, trace_headers

if TYPE_CHECKING:
    import json
    from collections.abc import Mapping


MAX_MESSAGE_BYTES = 1_000_000
MAX_NAME_LENGTH = 255
MAX_REPR_LENGTH = 1024
MAX_LIMIT_S = 365 * 86_400.0  # of a time limit
MAX_NUMBER = 1e15  # milliseconds since the epoch stay below it for 30,000 years
CONTENT_TYPE = "application/json"
CONTENT_ENCODING = "utf-8"
VERSION = 1  # of our own headers
AGAIN = "blimp_again"

# The stock transport serves level 0 first and rounds down to these steps.
EMERGENCY, HIGH, NORMAL, LOW = 0, 3, 6, 9


class TaskMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One task to be run. Times are seconds since the epoch.

    delivery: 1 for the first delivery, one more each time it is requeued or restored.
    callbacks, errbacks: Celery's signatures of what follows its end; chain: the links after
        it, last first; chord: the body of the chord that it is part `group_index` of. See
        protocol/embed.py. nesting: how often it was replaced, as Celery counts; stamps: Celery's.
    headers: as received, for middleware; carried over when the task is retried.
    """

    id: str
    task: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    queue: str = ""
    priority: int = NORMAL
    retries: int = 0
    eta_s: float | None = None
    expires_s: float | None = None
    issued_ms: int | None = None
    ttl_s: float | None = None
    coalesce: str | None = None
    coalesce_number: int | None = None
    delivery: int = 1
    ignore_result: bool | None = None
    root_id: str | None = None
    parent_id: str | None = None
    group_id: str | None = None
    group_index: int | None = None
    timelimit: tuple[float | None, float | None] = (None, None)
    callbacks: tuple[dict[str, Any], ...] = ()
    errbacks: tuple[dict[str, Any], ...] = ()
    chain: tuple[dict[str, Any], ...] = ()
    chord: dict[str, Any] | None = None
    nesting: int = 0
    stamps: dict[str, Any] = msgspec.field(default_factory=dict)
    origin: str = ""
    headers: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def is_followed(self) -> bool:
        """Whether anything may follow its end; see canvas/follow.py."""
        return bool(self.callbacks or self.errbacks or self.chain or self.chord)


def build_headers(message: TaskMessage, *, is_large: bool = False) -> dict[str, Any]:
    """Return the headers of `message`, the extra ones in `message.headers` included.

    is_large: its arguments are too long to be written out before they are cut.
    """
    text_of = _shortener().repr if is_large else repr
    headers: dict[str, Any] = {
        "lang": "py",
        "task": message.task,
        "id": message.id,
        "shadow": None,
        "eta": None if message.eta_s is None else _to_iso(message.eta_s),
        "expires": None if message.expires_s is None else _to_iso(message.expires_s),
        "group": message.group_id,
        "group_index": message.group_index,
        "retries": message.retries,
        "timelimit": list(message.timelimit),
        "root_id": message.root_id or message.id,
        "parent_id": message.parent_id,
        "argsrepr": text_of(message.args)[:MAX_REPR_LENGTH],
        "kwargsrepr": text_of(message.kwargs)[:MAX_REPR_LENGTH],
        "origin": message.origin,
        "ignore_result": bool(message.ignore_result),
        "replaced_task_nesting": message.nesting,
        "stamped_headers": list(message.stamps) or None,
        "stamps": message.stamps,
    }
    if message.issued_ms is not None:
        headers["blimp_issued_ms"] = message.issued_ms
    if message.ttl_s is not None:
        headers["blimp_ttl_s"] = message.ttl_s
    if message.coalesce is not None:
        headers["blimp_coalesce"] = message.coalesce
        headers["blimp_number"] = message.coalesce_number
    if message.headers:
        for name, value in message.headers.items():
            if name.startswith("blimp_"):
                headers.setdefault(name, value)
        if PARENT in message.headers:
            headers |= trace_headers(message.headers)
    if message.delivery > 1:
        headers["blimp_delivery"] = message.delivery - 1
    return headers


@cache
def _shortener() -> reprlib.Repr:
    short = reprlib.Repr()
    short.maxstring = short.maxother = MAX_REPR_LENGTH
    short.maxlist = short.maxtuple = short.maxdict = 64
    return short


def build_body(message: TaskMessage) -> bytes:
    """Return the body of `message`. Raises MessageError if JSON cannot hold it."""
    embed = {
        "callbacks": message.callbacks or None,
        "errbacks": message.errbacks or None,
        "chain": message.chain or None,
        "chord": message.chord,
    }
    try:
        if _is_plain(message.args) and not (message.kwargs or message.is_followed):
            return _encode([message.args, message.kwargs, embed])
        return to_json([message.args, message.kwargs, embed])
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"arguments of {message.task!r}: JSON cannot hold them: {error}") from (
            error
        )


_encode = msgspec.json.Encoder().encode
_PLAIN = frozenset({str, bool, type(None)})


def _is_plain(args: tuple[Any, ...]) -> bool:
    """Say whether msgspec writes `args` as `to_json` does, at a fifth of the price."""
    for one in args:
        kind = type(one)
        if not (
            kind in _PLAIN
            or (kind is int and -(2**53) < one < 2**53)
            or (kind is float and math.isfinite(one))
        ):
            return False
    return True


class MessageSigner(Protocol):
    """What `write_message` uses of `protocol.signing.Signer`."""

    def sign(self, headers: Mapping[str, Any], body: bytes, *, queue: str) -> str: ...


def write_message(
    message: TaskMessage, *, signer: MessageSigner | None, limit_bytes: int = MAX_MESSAGE_BYTES
) -> tuple[dict[str, Any], bytes]:
    """Return headers and body as they are sent, signed if there is a signer.

    Raises MessageError if JSON cannot hold them, or they are longer than the limit.
    """
    body = build_body(message)
    headers = build_headers(message, is_large=len(body) > 4 * MAX_REPR_LENGTH)
    try:
        size = len(body) + (len(to_json(headers)) if message.headers else 0)
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"headers of {message.task!r}: JSON cannot hold them: {error}") from (
            None
        )
    if size > limit_bytes:
        raise MessageError(f"{message.task!r} is {size} bytes as JSON: the limit is {limit_bytes}")
    if signer is not None:
        headers["blimp_signature"] = signer.sign(headers, body, queue=message.queue)
    return headers, body


def to_json(value: Any) -> bytes:
    """Encode strictly: what another JSON reader would not accept raises ValueError or TypeError.

    Dates, UUID, Decimal and bytes are written as kombu writes them; see kombu_body.py. msgspec
    would write NaN as null, and turn dates, bytes and sets into text and lists.
    """
    return _encoder().encode(value).encode()


@cache
def _encoder() -> json.JSONEncoder:
    import json

    return json.JSONEncoder(
        allow_nan=False, separators=(",", ":"), ensure_ascii=False, default=encode_value
    )


def _to_iso(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s, UTC).isoformat()


def epoch_s(moment: datetime | str) -> float:
    """Return a time in seconds since the epoch; without a zone it is UTC, as Celery reads it.

    Raises TypeError, ValueError or OverflowError for what is no ISO 8601 time.
    """
    if not isinstance(moment, datetime):
        moment = datetime.fromisoformat(moment)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def new_id() -> str:
    """Return a random id, a UUID of version 4: uuid.uuid4() takes 2 µs more."""
    number = int.from_bytes(os.urandom(16), "big")
    text = f"{number & ~0xF000C000000000000000 | 0x40008000000000000000:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def check_priority(priority: int) -> int:
    """Return `priority`. Raises ConfigError naming the limits."""
    if not EMERGENCY <= priority <= LOW:
        raise ConfigError(f"priority {priority}: must be from {EMERGENCY} (first) to {LOW} (last)")
    return priority


def check_limits(*, soft_s: float | None, hard_s: float | None) -> None:
    """Raise ConfigError for time limits that cannot be, naming the limit."""
    for name, limit_s in (("soft_time_limit", soft_s), ("time_limit", hard_s)):
        if limit_s is not None and not limit_s > 0.0:
            raise ConfigError(f"{name} {limit_s:g}: must be above 0 seconds")
        if limit_s is not None and limit_s > MAX_LIMIT_S:
            raise ConfigError(f"{name} {limit_s:g}: must be up to {MAX_LIMIT_S:.0f} seconds")
    if soft_s is not None and hard_s is not None and soft_s >= hard_s:
        raise ConfigError(f"soft_time_limit {soft_s:g}: must be below time_limit, {hard_s:g}")


# --- the one builder of new messages ---------------------------------------------------------


class TaskDefaults(Protocol):
    """The options of a registered task that its messages inherit."""

    @property
    def queue(self) -> str | None: ...
    @property
    def priority(self) -> int: ...
    @property
    def ttl_s(self) -> float | None: ...
    @property
    def ignore_result(self) -> bool: ...


def make_message(
    task: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Mapping[str, Any],
    *,
    defaults: TaskDefaults | None,
    queue: str,
    now_s: float | None,
    origin: str,
    id: str | None = None,
    **fields: Any,
) -> TaskMessage:
    """Return the message of a task that is sent with `options`: SendOptions, or a signature's.

    defaults: for missing options, None if the task is not registered here. queue: for a task
    without one. now_s: the broker's time; None leaves the message without a time of issue.
    fields: of the message, instead of what the options say. Raises MessageError for a wrong
    option.
    """
    priority, ignore_result = NORMAL, False
    if defaults is not None:
        queue, priority = defaults.queue or queue, defaults.priority
        ignore_result = defaults.ignore_result
        if defaults.ttl_s is not None:
            fields["ttl_s"] = defaults.ttl_s
    if options:
        id, queue = id or options.get("task_id"), options.get("queue") or queue
        given, ignored = options.get("priority"), options.get("ignore_result")
        priority = priority if given is None else given
        ignore_result = ignore_result if ignored is None else ignored
        fields = _times(options, now_s) | _numbers(options) | fields
        if options.get("ttl_s") is not None:
            fields["ttl_s"] = _number(options, "ttl_s")
        if options.get("headers"):
            fields.setdefault("headers", options["headers"])
    return TaskMessage(
        id=id or new_id(),
        task=task,
        args=args,
        kwargs=kwargs,
        queue=queue,
        priority=priority,
        issued_ms=None if now_s is None else int(now_s * 1000),
        ignore_result=bool(ignore_result),
        origin=origin,
        **fields,
    )


def needs_now(options: Mapping[str, Any], defaults: TaskDefaults | None) -> bool:
    """Return whether a message with these options needs the broker's time."""
    if defaults is not None and defaults.ttl_s is not None:
        return True
    return any(options.get(name) is not None for name in ("ttl_s", "countdown", "expires"))


def _times(options: Mapping[str, Any], now_s: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field, name, from_now in (
        ("eta_s", "eta", "countdown"),
        ("expires_s", "expires", "expires"),
    ):
        value, after_s = options.get(name), options.get(from_now)
        if value is not None and not isinstance(value, int | float):
            try:
                found[field] = epoch_s(value)
            except (TypeError, ValueError, OverflowError):
                raise MessageError(
                    f"option {name!r} is {value!r:.80}, must be an ISO 8601 time"
                ) from None
        elif after_s is not None:
            if isinstance(after_s, bool) or not isinstance(after_s, int | float):
                raise MessageError(f"option {from_now!r} is {after_s!r:.40}, must be seconds")
            assert now_s is not None
            found[field] = now_s + after_s
    return found


def _numbers(options: Mapping[str, Any]) -> dict[str, Any]:
    hard_s, soft_s = _number(options, "time_limit"), _number(options, "soft_time_limit")
    return {} if hard_s is None and soft_s is None else {"timelimit": (hard_s, soft_s)}


def _number(options: Mapping[str, Any], name: str) -> float | None:
    value = options.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MAX_NUMBER:
        raise MessageError(f"option {name!r} is {value!r:.40}, must be a number above 0")
    return value
