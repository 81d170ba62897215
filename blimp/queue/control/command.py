"""Remote-control commands: kombu's pidbox with signatures, which Celery's clients speak too.

Sources: kombu 5.7 `pidbox.py`, Celery 5.7 `worker/control.py`. Our own clients add three fields
that Celery ignores: `app`, so that only its workers act, `sent_s` and `signature`.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from kombu import Producer
from kombu.common import maybe_declare
from kombu.exceptions import OperationalError, SerializationError
from kombu.pidbox import Mailbox

from blimp.errors import LinkError, MessageError
from blimp.nesting import shallow
from blimp.queue.brokers.kombu_consumer import guard_channel
from blimp.queue.protocol.message import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    MAX_NAME_LENGTH,
    to_json,
)
from blimp.queue.redis.urls import link_error

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.signing import Signer
    from blimp.queue.worker.worker import Worker

NAMESPACE = "celery"
EXCHANGE = f"{NAMESPACE}.pidbox"
REPLY_EXCHANGE = f"reply.{EXCHANGE}"
MAX_COMMAND_BYTES = 262_144
MAX_PATTERN_LENGTH = 100

OnReply = Callable[[str, Any], None]  # the worker's name, its answer


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
    connect: returns a kombu connection to the broker in use. started_s: on the app's clock.
    """

    worker: Worker
    revoke: Callable[[str, bool], str]
    connect: Callable[[], Any]
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


class CommandMailbox(Mailbox):
    """kombu's, named as Celery names it; what it sends is signed if the app has a key.

    clock: the sender's logical one. exclusive: a queue ends with the connection that made it.
    """

    def __init__(self, app: TaskApp, *, clock: Any = None, exclusive: bool = True) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            NAMESPACE,
            type="fanout",
            clock=clock,
            accept=["json"],
            serializer="json",
            queue_exclusive=exclusive,
        )
        self._app = app

    def _publish(  # type: ignore[override]  # kombu's own waits for a lost broker for ever
        self,
        type: str,
        arguments: dict[str, Any],
        destination: list[str] | None = None,
        reply_ticket: str | None = None,
        channel: Any = None,
        timeout: float = 1.0,
        **_: Any,
    ) -> None:
        maybe_declare(self.reply_queue(channel))
        command = Command(
            method=type,
            arguments=arguments,
            destination=destination,
            ticket=reply_ticket,
            reply_to=ReplyTo(exchange=REPLY_EXCHANGE, routing_key=self.oid),
            app=self._app.name,
            sent_s=self._app.broker_clock.now_s(),
        )
        if self._app.signer is not None:
            signature = self._app.signer.sign_document(command.signed_part(), place=EXCHANGE)
            command = msgspec.structs.replace(command, signature=signature)
        try:
            body = to_json(msgspec.to_builtins(command))
        except (TypeError, ValueError) as error:
            raise MessageError(f"{type}: JSON cannot hold its arguments: {error}") from None
        Producer(channel, auto_declare=False).publish(
            body,
            exchange=self.exchange,
            declare=[self.exchange],
            headers={"clock": self.clock.forward(), "expires": time.time() + timeout},
            content_type=CONTENT_TYPE,
            content_encoding=CONTENT_ENCODING,
        )


def send_command(
    app: TaskApp,
    method: str,
    arguments: dict[str, Any] | None = None,
    *,
    destination: Sequence[str] = (),
    timeout_s: float = 1.0,
    on_reply: OnReply = lambda *_: None,
) -> dict[str, Any]:
    """Return the answer of each worker of `app`, by its name.

    Signed if the app has a key. Returns when all of `destination` have answered, or no worker
    has for `timeout_s`. Raises LinkError, and MessageError for arguments that JSON cannot hold.
    """
    url = app.broker
    replies: dict[str, Any] = {}

    def receive(reply: Any) -> None:
        if isinstance(reply, dict):
            for name, answer in reply.items():
                replies[name] = answer
                on_reply(name, answer)

    try:
        with connected(app, url) as connection:
            channel = connection.default_channel
            guard_channel(channel)
            CommandMailbox(app)(connection)._broadcast(
                method,
                arguments or {},
                destination=list(destination) or None,
                reply=True,
                timeout=timeout_s,
                callback=receive,
                channel=channel,
            )
    except SerializationError as error:
        raise MessageError(f"{method}: an answer cannot be read: {error}") from None
    return replies


@contextlib.contextmanager
def connected(app: TaskApp, url: str, **options: Any) -> Iterator[Any]:
    """Yield a connection, connected. Its errors inside are raised as LinkError."""
    connection = app.broker_kind.open_connection(url, timeout_s=app.timeout_s, **options)
    transport = connection.transport
    try:
        with connection:
            connection.ensure_connection(max_retries=0)
            yield connection
    except LinkError:
        raise
    except (
        *transport.connection_errors,
        *transport.channel_errors,
        OperationalError,
        OSError,
    ) as error:
        raise link_error(url, error) from None
