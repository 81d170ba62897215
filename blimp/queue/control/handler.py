"""Where commands from afar are judged, done and answered. One thread's."""

from __future__ import annotations

import contextlib
import re
from collections import ChainMap, OrderedDict
from inspect import signature
from typing import TYPE_CHECKING, Any

from blimp.closing import Closing
from blimp.errors import BlimpError, MessageError
from blimp.queue.control.changes import CHANGES
from blimp.queue.control.pidbox import (
    EXCHANGE,
    Command,
    is_meant,
    read_command,
    reply_exchange,
)
from blimp.queue.control.questions import QUESTIONS
from blimp.queue.options import ALL
from blimp.queue.protocol.message import CONTENT_ENCODING, CONTENT_TYPE, to_json

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from blimp.queue.control.remote_control import ControlMessage, WorkerHandle

LOG_LENGTH = 200
REPLY_NAME = re.compile(r"reply\.[\w.-]{1,100}\.pidbox")
FRESH_S = 30.0  # a signed command is done within it, and once
REMEMBERED = 4096
MAX_CLOCK = 2**53


class CommandHandler(Closing):
    """Never raises. A context manager.

    tickets: those of signed commands that were done; they are remembered past the desk.
    """

    def __init__(
        self,
        *,
        worker_handle: WorkerHandle,
        tickets: OrderedDict[str, None],
        counts: Counter[str],
    ) -> None:
        self.worker_handle = worker_handle
        self.clock = worker_handle.clock
        self._tickets = tickets
        self._counts = counts
        self._connections: dict[str, Any] = {}  # by the broker's URL
        self._changes = ChainMap({}, CHANGES)  # those of extensions first
        self._questions = ChainMap({}, QUESTIONS)
        for extension in worker_handle.extensions:
            for name, command in extension.commands.items():
                table = self._changes if command.is_change else self._questions
                table[name] = _without_handler(command.function)

    def handle(self, letter: ControlMessage) -> None:
        """Do what one message asks for, and answer where an answer is wanted."""
        heard = letter.clock
        if isinstance(heard, int) and 0 <= heard < MAX_CLOCK:
            self.clock.adjust(heard)
        try:
            command = read_command(letter.body, content_type=letter.content_type)
            meant = is_meant(
                command, worker=self.worker_handle.name, app=self.worker_handle.app.name
            )
        except MessageError as error:
            self._counts["unreadable"] += 1
            self.worker_handle.log.error(
                "remote command unreadable", reason=str(error)[:LOG_LENGTH]
            )
            return
        if not meant:
            return
        reply = self._done(command)
        self._counts["done"] += 1
        if command.reply_to is not None:
            try:
                self._reply(command, reply, url=letter.url)
            except Exception as error:  # whoever asked hears nothing; the next one may
                self._counts["unanswered"] += 1
                self.worker_handle.log.warning(
                    "remote command unanswered",
                    command=command.method[:LOG_LENGTH],
                    reason=str(error)[:LOG_LENGTH],
                )

    def _done(self, command: Command) -> Any:
        """Do it; return the answer, `{"error": …}` where it was not done."""
        name = command.method
        change = self._changes.get(name)
        function = change or self._questions.get(name)
        try:
            if function is None:
                return self._unknown(name)
            if change is not None:
                self._check_allowed(command)
            arguments = _arguments(command, function)
            reply = function(self, **arguments)
        except (BlimpError, TypeError) as error:
            return self._not_done(name, str(error))
        except Exception as error:
            self.worker_handle.log.exception("remote command", command=name)
            return {"error": repr(error)}
        if change is not None and "error" in (reply or {}):
            return self._not_done(name, reply["error"])
        if change is not None:
            self.worker_handle.log.info(
                "remote command", command=name, arguments=repr(arguments)[:200]
            )
        return reply

    def _unknown(self, name: str) -> dict[str, str]:
        known = ", ".join(sorted({*self._questions, *self._changes}))
        return self._not_done(name, f"{KeyError(name[:80])!r}: no such command; there are: {known}")

    def _not_done(self, name: str, reason: str) -> dict[str, str]:
        self.worker_handle.log.warning(
            "remote command refused", command=name[:LOG_LENGTH], reason=reason[:LOG_LENGTH]
        )
        return {"error": reason}

    def _check_allowed(self, command: Command) -> None:
        """Raise MessageError where not everybody may ask for a change, and this was not signed."""
        app = self.worker_handle.app
        if app.remote_control == ALL:
            return
        where = f"{command.method}: this worker only answers questions (remote_control='inspect')"
        if app.signer is None:
            raise MessageError(where)
        try:
            document = command.signed_part()
            app.signer.check_document(document, command.signature, place=EXCHANGE)
        except MessageError as error:
            raise MessageError(f"{where}, but for who signs: {error}") from None
        sent_s, ticket = command.sent_s, command.ticket
        if sent_s is None or ticket is None:
            raise MessageError(f"{where}: a signed command says when it was sent, and has a ticket")
        age_s = app.broker_clock.now_s() - sent_s
        if not abs(age_s) <= FRESH_S:
            raise MessageError(f"{where}: it is {age_s:.0f} s old, the limit is {FRESH_S:.0f}")
        if (
            age_s > app.clock.now_s() - self.worker_handle.began_s
        ):  # it may have been done by the one before
            raise MessageError(f"{where}: it was sent before this worker began")
        if ticket in self._tickets:
            raise MessageError(f"{where}: this one was done already")
        self._tickets[ticket] = None
        while len(self._tickets) > REMEMBERED:
            self._tickets.popitem(last=False)

    # --- answering ---------------------------------------------------------------------------

    def _reply(self, command: Command, reply: Any, *, url: str) -> None:
        assert command.reply_to is not None
        to, name = command.reply_to, self.worker_handle.name
        if not REPLY_NAME.fullmatch(to.exchange):
            raise MessageError(f"reply exchange {to.exchange!r:.80}: must be reply.NAME.pidbox")
        body = to_json({name: reply})
        limit_bytes = self.worker_handle.app.limit_bytes
        if len(body) > limit_bytes:
            reason = f"the answer is {len(body)} bytes: the limit is {limit_bytes}"
            body = to_json({name: {"error": reason}})
        from kombu.exceptions import InconsistencyError

        headers = {"ticket": command.ticket, "clock": self.clock.forward()}
        for is_last in (False, True):
            try:
                self._publish(url, body, headers, exchange=to.exchange, key=to.routing_key)
                return
            except InconsistencyError:  # kombu's: nobody waits for it any more
                self._counts["unanswered"] += 1
                return
            except Exception:  # the connection may have died since it was last used
                self._drop(url)
                if is_last:
                    raise

    def _publish(
        self, url: str, body: bytes, headers: dict[str, Any], *, exchange: str, key: str
    ) -> None:
        from kombu import Producer

        where = reply_exchange(exchange)
        Producer(self.connection(url).default_channel, auto_declare=False).publish(
            body,
            exchange=where,
            routing_key=key,
            declare=[where],
            headers=headers,
            content_type=CONTENT_TYPE,
            content_encoding=CONTENT_ENCODING,
            retry=False,
        )

    def connection(self, url: str | None = None) -> Any:
        """Return the desk's own connection to a broker, by default the one in use."""
        app = self.worker_handle.app
        url = url or app.broker
        if url not in self._connections:
            connection = app.broker_kind.open_connection(url, timeout_s=app.timeout_s)
            connection.ensure_connection(max_retries=0)
            self._connections[url] = connection
        return self._connections[url]

    def _drop(self, url: str) -> None:
        connection = self._connections.pop(url, None)
        if connection is not None:
            with contextlib.suppress(Exception):  # it is lost
                connection.release()

    def close(self) -> None:
        for url in list(self._connections):
            self._drop(url)


def _without_handler(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command of an extension, called as those of this package are."""

    def call(handler: CommandHandler, **arguments: Any) -> Any:  # noqa: ARG001
        return function(**arguments)

    return call


def _arguments(command: Command, function: Any) -> dict[str, Any]:
    """Return what `function` is to be called with. Raises MessageError where it takes no such."""
    arguments = {} if command.arguments is None else command.arguments
    if not isinstance(arguments, dict):
        kind = type(arguments).__name__
        raise MessageError(f"{command.method}: arguments are {kind}, must be an object")
    try:
        signature(function).bind(None, **arguments)
    except TypeError as error:
        raise MessageError(f"{command.method}: {error}") from None
    return arguments
