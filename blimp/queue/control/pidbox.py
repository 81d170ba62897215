"""A remote-control command as it is written: kombu's pidbox, which Celery's clients speak.

Sources: kombu 5.7 `pidbox.py`, Celery 5.7 `worker/control.py`. Our own clients add three fields,
which Celery passes over: `app`, so that only workers of that app are meant; `sent_s` and
`signature`, for workers that take no unsigned command.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import MessageError
from blimp.queue.protocol.message import CONTENT_TYPE, MAX_NAME_LENGTH

if TYPE_CHECKING:
    from kombu import Exchange, Queue

EXCHANGE = "celery.pidbox"
REPLY_EXCHANGE = "reply.celery.pidbox"
MAX_COMMAND_BYTES = 262_144
MAX_PATTERN = 100
MAX_REPEATS = 3  # in a pattern: a search may take the name's length to that power


class ReplyTo(msgspec.Struct, frozen=True):
    exchange: str
    routing_key: str


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command. destination: names of workers; None for all that pattern and matcher mean."""

    method: str
    arguments: Any = None
    destination: list[str] | None = None
    pattern: str | None = None
    matcher: str | None = None
    ticket: str | None = None
    reply_to: ReplyTo | None = None
    app: str | None = None
    sent_s: float | None = None
    signature: str = ""

    def signed_part(self) -> dict[str, Any]:
        """Return what its signature is of, as Signer takes a document."""
        payload = msgspec.to_builtins(self)
        id, name = payload.pop("ticket"), payload.pop("method")
        del payload["signature"]
        return {"id": id, "name": name, "payload": payload}


_decoder = msgspec.json.Decoder(Command)


def read_command(body: bytes | str, *, content_type: str | None) -> Command:
    """Return the command in a message. Raises MessageError saying what is wrong."""
    if content_type != CONTENT_TYPE:
        raise MessageError(f"content type {content_type!r:.80}: only {CONTENT_TYPE!r} is accepted")
    if not body:
        raise MessageError(f"command is empty, or above the limit of {MAX_COMMAND_BYTES} bytes")
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"command cannot be read: {error}") from None


def is_meant(command: Command, *, worker: str, app: str) -> bool:
    """Say whether this worker is meant. Raises MessageError for a pattern that cannot be used."""
    if command.app is not None and command.app != app:
        return False
    if command.destination:
        return worker in command.destination
    if command.pattern and command.matcher:
        return _matches(worker, command.pattern, command.matcher)
    return True


def _matches(name: str, pattern: str, matcher: str) -> bool:
    if len(pattern) > MAX_PATTERN:
        raise MessageError(f"pattern of {len(pattern)} letters: the limit is {MAX_PATTERN}")
    # A search holds the interpreter, and everything else in it, for as long as it takes.
    if matcher == "pcre" and (
        len(re.findall(r"[*+{]", pattern)) > MAX_REPEATS or re.search(r"\)[*+{?]", pattern)
    ):
        raise MessageError(
            f"pattern {pattern!r}: may have up to {MAX_REPEATS} repeats, and none of a group"
        )
    if matcher == "glob" and pattern.count("*") > MAX_REPEATS:
        raise MessageError(f"pattern {pattern!r}: may have up to {MAX_REPEATS} stars")
    from kombu import matcher as kombu_matcher

    match: Any = kombu_matcher.match
    try:
        return bool(match(name, pattern, matcher))
    except Exception as error:  # of whatever matcher, for whatever pattern
        raise MessageError(f"pattern {pattern!r} with matcher {matcher!r:.80}: {error}") from None


def command_queue(worker: str, *, suffix: str = "") -> Queue:
    """Return the queue that brings `worker` its commands, named as Celery does."""
    from kombu import Queue

    return Queue(
        f"{worker}.{EXCHANGE}{suffix}",
        exchange=command_exchange(),
        durable=False,
        exclusive=bool(suffix),
        auto_delete=True,
    )


def command_exchange() -> Exchange:
    from kombu import Exchange

    return Exchange(EXCHANGE, type="fanout", durable=False, delivery_mode="transient")


def reply_exchange(name: str = REPLY_EXCHANGE) -> Exchange:
    from kombu import Exchange

    return Exchange(name, type="direct", durable=False, delivery_mode="transient")


def text(value: object, name: str) -> str:
    """Return `value`, a name or an id. Raises MessageError naming the limit."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH:
        raise MessageError(f"{name} {value!r:.80}: must be a text of 1 to {MAX_NAME_LENGTH}")
    if not value.isprintable():
        raise MessageError(f"{name} {value!r:.80}: must be printable")
    return value
