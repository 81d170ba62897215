"""Remote-control commands as workers read them: kombu's pidbox with signatures.

Sources: kombu 5.7 `pidbox.py`, Celery 5.7 `worker/control.py`. Our own clients add three fields
that Celery ignores: `app`, so that only its workers act, `sent_s` and `signature`.
Tested by test_extension.py.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import MessageError
from blimp.nesting import shallow
from blimp.queue.broadcast.listener import EXCHANGE, MAX_COMMAND_BYTES
from blimp.queue.protocol.message import CONTENT_TYPE, MAX_NAME_LENGTH

if TYPE_CHECKING:
    from blimp.queue.protocol.signing import Signer
    from blimp.queue.worker.worker import Worker

MAX_PATTERN_LENGTH = 100


class ReplyTo(msgspec.Struct, frozen=True):
    exchange: str
    routing_key: str


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command. destination: names of workers; None for all that the pattern matches."""

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
        """Return what its signature covers, as Signer takes a document."""
        payload = msgspec.to_builtins(self)
        id, name = payload.pop("ticket"), payload.pop("method")
        del payload["signature"]
        return {"id": id, "name": name, "payload": payload}


class CommandContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a command may look at and change.

    revoke: revokes a task here at once, and says what becomes of it, "" for an unknown one.
    started_s: when the worker did, on the app's clock.
    """

    worker: Worker
    revoke: Callable[[str, bool], str]
    started_s: float


_decoder = msgspec.json.Decoder(Command)


def read_command(body: bytes | str, *, content_type: str | None) -> Command:
    """Return the command in a message. Raises MessageError saying what is wrong."""
    if content_type != CONTENT_TYPE:
        raise MessageError(f"content type {content_type!r:.80}: only {CONTENT_TYPE!r} is accepted")
    if not body:
        raise MessageError(f"command is empty, or above the limit of {MAX_COMMAND_BYTES} bytes")
    try:
        return _decoder.decode(shallow(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"command cannot be read: {error}") from None


def is_for(command: Command, *, worker: str, app: str, signer: Signer | None) -> bool:
    """Return whether `worker` shall run it.

    Raises MessageError for a pattern that may not be matched. With a key only a signed one is, and
    never a regular expression: kombu's `pcre` held the interpreter lock for as long as its sender
    chose, and no emergency stop arrived meanwhile.
    """
    if command.app is not None and command.app != app:
        return False
    if command.destination:
        return worker in command.destination
    pattern = command.pattern
    if not pattern:
        return True
    if signer is not None:
        signer.check_document(command.signed_part(), command.signature, place=EXCHANGE)
    if command.matcher not in (None, "glob"):
        raise MessageError(f"matcher {command.matcher!r:.80}: must be 'glob'")
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise MessageError(f"pattern of {len(pattern)} letters: the limit is {MAX_PATTERN_LENGTH}")
    # Not fnmatchcase, which keeps 32,768 patterns; what it translates to never backtracks.
    return re.match(fnmatch.translate(pattern), worker) is not None


def text(value: object, name: str) -> str:
    """Return `value`, a name or an id. Raises MessageError naming the limit."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH:
        raise MessageError(f"{name} {value!r:.80}: must be a text of 1 to {MAX_NAME_LENGTH}")
    if not value.isprintable():
        raise MessageError(f"{name} {value!r:.80}: must be printable")
    return value
