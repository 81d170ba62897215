"""Task messages: Celery's task protocol version 2, as it is written.

Headers carry what the queue needs, the body is `[args, kwargs, embed]` in JSON. Our own
headers begin with `blimp_`; Celery passes over them:

blimp_issued_ms   when the message was issued, milliseconds on the broker's clock
blimp_ttl_s       the age past which it must not begin any more
blimp_delivery    how often it was delivered before this time: the fence
blimp_vehicle     the vehicle it is meant for
blimp_source      who sent it, for people
blimp_authority   the token of its sender's control of the vehicle; see tasks/authority.py
blimp_coalesce    its key: a newer message with the same supersedes it
blimp_number      its place among the messages of its queue that coalesce
blimp_version     the version of these headers; absent in the first
blimp_again       sent a second time: the answer to the first was lost
blimp_fair        its tenant, who gets a fair share of its queue
blimp_unique      its claim, if it is not to be sent twice; see unique.py
blimp_life        how often it was a dead letter that was requeued: what follows its next end is new
blimp_signature, blimp_seal   see signing.py

`traceparent` and `tracestate` say which trace it belongs to, as Celery's own instrumentation
writes them. They are carried even if nothing traces here, so that another program's trace goes on
through retries and what a task calls. What is no trace context is left out.

Sources: docs.celeryq.dev, "Message Protocol", version 2; Celery 5.7 `app/amqp.py`; W3C, "Trace
Context", level 2, sections 3.2 and 3.3.
"""

from __future__ import annotations

import math
import os
import re
import reprlib
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from blimp.errors import ConfigError, MessageError
from blimp.nesting import shallow
from blimp.queue.protocol.kombu_body import encode_value

if TYPE_CHECKING:
    import json

MAX_MESSAGE_BYTES = 1_000_000
MAX_NAME_LENGTH = 255
MAX_REPR_LENGTH = 1024
MAX_LIMIT_S = 365 * 86_400.0  # of a time limit
MAX_NUMBER = 1e15  # milliseconds since the epoch stay below it for 30,000 years
CONTENT_TYPE = "application/json"
CONTENT_ENCODING = "utf-8"
VERSION = 1  # of our own headers
AGAIN = "blimp_again"
FAIR = "blimp_fair"
LIFE = "blimp_life"
PARENT, STATE = "traceparent", "tracestate"
MAX_PARENT_LENGTH = 256  # of a version to come; the present one's is 55
MAX_STATE_LENGTH, MAX_STATE_MEMBERS = 512, 32

# The stock transport serves level 0 first and rounds down to these steps.
EMERGENCY, HIGH, NORMAL, LOW = 0, 3, 6, 9


class TaskMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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

    @property
    def lineage(self) -> str:
        """What the ids of what follows it are made from: another one in each of its lives."""
        life = self.headers.get(LIFE)
        return f"{self.id}/{life}" if life else self.id


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

    def seal(self) -> str: ...
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
        headers["blimp_seal"] = signer.seal()
        headers["blimp_signature"] = signer.sign(headers, body, queue=message.queue)
    return headers, body


def to_json(value: Any) -> bytes:
    """Encode strictly: what another JSON reader would not accept raises ValueError, TypeError or
    RecursionError.

    Dates, UUID, Decimal and bytes are written as kombu writes them; see kombu_body.py. msgspec
    would write NaN as null, and turn dates, bytes and sets into text and lists.
    """
    return shallow(_encoder().encode(value).encode())


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


def zoned(moment: datetime, option: str) -> datetime:
    """Return `moment`. Raises MessageError without a zone: the sender means its own, Celery UTC."""
    if moment.tzinfo is None:
        raise MessageError(
            f"option {option!r} is {moment.isoformat()}, which has no time zone: write "
            "datetime.now(UTC) + timedelta(…), or a number of seconds"
            f"{' as `countdown`' if option == 'eta' else ''}"
        )
    return moment


def new_id() -> str:
    """Return a random id, a UUID of version 4: uuid.uuid4() takes 2 µs more."""
    text = os.urandom(16).hex()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


def check_priority(priority: int) -> int:
    """Return `priority`. Raises ConfigError naming the limits."""
    if not isinstance(priority, int) or not EMERGENCY <= priority <= LOW:
        raise ConfigError(
            f"priority {priority!r}: must be from {EMERGENCY} (first) to {LOW} (last)"
        )
    return priority


def check_limits(*, soft_s: float | None, hard_s: float | None) -> None:
    """Raise ConfigError for time limits that cannot be, naming the limit."""
    for name, limit_s in (("soft_time_limit", soft_s), ("time_limit", hard_s)):
        if limit_s is not None and not 0.0 < limit_s <= MAX_LIMIT_S:
            most_s = int(MAX_LIMIT_S)
            raise ConfigError(f"{name} {limit_s:g}: must be above 0 and up to {most_s} seconds")
    if soft_s is not None and hard_s is not None and soft_s >= hard_s:
        raise ConfigError(f"soft_time_limit {soft_s:g}: must be below time_limit, {hard_s:g}")


# No version "ff", nothing after the flags of version "00", no ids of zeros alone.
_PARENT = re.compile(
    r"(?!ff)(?!00-.{53})[0-9a-f]{2}-(?!0+-)([0-9a-f]{32})-(?!0+-)([0-9a-f]{16})-[0-9a-f]{2}"
    r"(?:-[!-~]*)?"
)
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[ -+\--<>-~]{1,256}")


def read_context(headers: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the ids of the trace and the span that `headers` name, in hexadecimal digits.

    None if they name none, or a malformed one.
    """
    value = headers.get(PARENT)
    if not isinstance(value, str) or len(value) > MAX_PARENT_LENGTH:
        return None
    found = _PARENT.fullmatch(value)
    return None if found is None else (found[1], found[2])


def trace_headers(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return those of `headers` that name a trace, as they are carried on."""
    if read_context(headers) is None:
        return {}
    state = headers.get(STATE)
    if not isinstance(state, str) or not 0 < len(state) <= MAX_STATE_LENGTH:
        return {PARENT: headers[PARENT]}
    members = [one.strip(" \t") for one in state.split(",")]
    if len(members) > MAX_STATE_MEMBERS or not all(map(_MEMBER.fullmatch, filter(None, members))):
        return {PARENT: headers[PARENT]}
    return {PARENT: headers[PARENT], STATE: state}


def current_trace() -> dict[str, str]:
    """Return the headers that name the span which is current in a program that has such.

    OpenTelemetry is asked if the program has loaded it, and never imported.
    """
    ask = getattr(sys.modules.get("opentelemetry.trace"), "get_current_span", None)
    if ask is None:
        return {}
    span = ask().get_span_context()
    if not span.is_valid:
        return {}
    parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    return trace_headers({PARENT: parent, STATE: span.trace_state.to_header()})


def check_name(name: object, what: str) -> None:
    """Raise MessageError for a name that is no text, empty, too long or not printable."""
    is_name = isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()
    if not is_name:
        raise MessageError(f"{what} {name!r:.80}: must be 1 to {MAX_NAME_LENGTH} printable letters")
