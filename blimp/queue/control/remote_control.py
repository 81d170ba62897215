"""Remote control of one worker: commands are queued, checked, run and answered.

Commands leave the broadcasts' thread at once, so that none delays an emergency stop. The thread
that runs them starts with the first one and ends when none has come for a while.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import ChainMap, Counter, OrderedDict, deque
from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from blimp.closing import Closing
from blimp.errors import BlimpError, MessageError
from blimp.queue.control.change_commands import CHANGE_COMMANDS
from blimp.queue.control.command import (
    EXCHANGE,
    MAX_COMMAND_BYTES,
    Command,
    CommandContext,
    CommandMailbox,
    connection_to,
    is_for,
    read_command,
)
from blimp.queue.control.inspect_commands import INSPECT_COMMANDS
from blimp.queue.options import ALL, OFF
from blimp.queue.protocol.message import CONTENT_ENCODING, CONTENT_TYPE, to_json

if TYPE_CHECKING:
    from blimp.queue.worker.worker import Worker

MAX_WAITING = 128
IDLE_S = 15.0
PAUSE_S = 0.002  # after each command: a flood must leave the interpreter to the tasks
CLOSE_S = 1.0
LOG_LENGTH = 200
REPLY_NAME = re.compile(r"reply\.[\w.-]{1,100}\.pidbox")
REPLY_POLICY = {"max_retries": 1, "interval_start": 0.0, "interval_step": 0.0}
FRESH_S = 30.0  # a signed command is run within it, and once
MAX_TICKETS = 4096
MAX_CLOCK = 2**53


class ControlMessage(NamedTuple):
    """One message of the pidbox as it came. clock: its sender's logical clock."""

    url: str
    body: bytes | str
    content_type: str | None
    clock: object


class RemoteControl:
    """`receive` may be called by any thread. Close is idempotent.

    revoke: see CommandContext. counts: commands received, dropped in a flood, unreadable, done
    and unanswered.
    """

    def __init__(self, worker: Worker, *, revoke: Callable[[str, bool], str]) -> None:
        self._worker = worker
        self._revoke = revoke
        self._started_s = worker.app.clock.now_s()
        self._changed = threading.Condition()
        self._waiting: deque[ControlMessage] = deque()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._is_flooded = False
        self._tickets: OrderedDict[str, None] = OrderedDict()  # of signed commands that ran
        self.counts: Counter[str] = Counter()

    @property
    def is_on(self) -> bool:
        return self._worker.app.remote_control != OFF

    def receive(self, url: str, message: Any) -> None:
        """Queue kombu's `message` from the broker at `url`. Neither waits nor raises."""
        body = message.body if len(message.body) <= MAX_COMMAND_BYTES else b""  # too long for one
        command = ControlMessage(url, body, message.content_type, message.headers.get("clock"))
        with self._changed:
            self.counts["received"] += 1
            if len(self._waiting) >= MAX_WAITING:
                self.counts["dropped"] += 1
                was_flooded, self._is_flooded = self._is_flooded, True
                if not was_flooded:
                    self._worker.log.error("remote control flooded", waiting=MAX_WAITING)
                return
            self._waiting.append(command)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._serve, name="remote", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Run no further command; the one that runs may end."""
        self._closed.set()
        with self._changed:
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=CLOSE_S)

    def _serve(self) -> None:
        with CommandHandler(
            self._worker,
            revoke=self._revoke,
            started_s=self._started_s,
            tickets=self._tickets,
            counts=self.counts,
        ) as handler:
            while (message := self._next()) is not None:
                handler.handle(message)
                self._closed.wait(PAUSE_S)

    def _next(self) -> ControlMessage | None:
        """Wait for a message; None if the thread shall end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed.is_set(), timeout=IDLE_S)
            if self._waiting and not self._closed.is_set():
                message = self._waiting.popleft()
                self._is_flooded = self._is_flooded and bool(self._waiting)
                return message
            self._thread = None
            return None


class CommandHandler(Closing):
    """Checks, runs and answers commands, in one thread. Never raises. A context manager."""

    def __init__(
        self,
        worker: Worker,
        *,
        revoke: Callable[[str, bool], str],
        started_s: float,
        tickets: OrderedDict[str, None],
        counts: Counter[str],
    ) -> None:
        self._worker = worker
        self._app = worker.app
        self._log = worker.log
        self._context = CommandContext(
            worker=worker, revoke=revoke, connect=self._connect, started_s=started_s
        )
        self._mailbox: Any = CommandMailbox(worker.app, clock=worker.logical_clock)
        self._tickets = tickets
        self._counts = counts
        self._connections: dict[str, Any] = {}  # by the broker's URL
        self._changes = ChainMap({}, CHANGE_COMMANDS)  # those of extensions first
        self._inspects = ChainMap({}, INSPECT_COMMANDS)
        for extension in worker.extensions:
            for name, command in extension.commands.items():
                table = self._changes if command.is_change else self._inspects
                table[name] = _without_context(command.function)

    def handle(self, message: ControlMessage) -> None:
        """Run one command if this worker is meant, and answer if an answer is wanted."""
        if isinstance(message.clock, int) and 0 <= message.clock < MAX_CLOCK:
            self._worker.logical_clock.adjust(message.clock)
        try:
            command = read_command(message.body, content_type=message.content_type)
            is_ours = is_for(command, worker=self._worker.name, app=self._app.name)
        except MessageError as error:
            self._counts["unreadable"] += 1
            self._log.error("remote command unreadable", reason=str(error)[:LOG_LENGTH])
            return
        if not is_ours:
            return
        reply = self._run(command)
        self._counts["done"] += 1
        if command.reply_to is not None:
            try:
                self._reply(command, reply, url=message.url)
            except Exception as error:  # this caller gets no answer; the next one may
                self._drop(message.url)
                self._counts["unanswered"] += 1
                self._log.warning(
                    "remote command unanswered",
                    command=command.method[:LOG_LENGTH],
                    reason=str(error)[:LOG_LENGTH],
                )

    def _run(self, command: Command) -> Any:
        """Run it; return the answer, `{"error": …}` if it was not done."""
        name = command.method
        change = self._changes.get(name)
        function = change or self._inspects.get(name)
        try:
            if function is None:
                return self._unknown(name)
            if change is not None:
                self._check_allowed(command)
            arguments = _arguments(command, function)
            reply = function(self._context, **arguments)
        except (BlimpError, TypeError) as error:
            return self._not_done(name, str(error))
        except Exception as error:
            self._log.exception("remote command", command=name)
            return {"error": repr(error)}
        if change is not None and "error" in (reply or {}):
            return self._not_done(name, reply["error"])
        if change is not None:
            self._log.info("remote command", command=name, arguments=repr(arguments)[:LOG_LENGTH])
        return reply

    def _unknown(self, name: str) -> dict[str, str]:
        known = ", ".join(sorted({*self._inspects, *self._changes}))
        return self._not_done(name, f"{KeyError(name[:80])!r}: no such command; there are: {known}")

    def _not_done(self, name: str, reason: str) -> dict[str, str]:
        self._log.warning(
            "remote command refused", command=name[:LOG_LENGTH], reason=reason[:LOG_LENGTH]
        )
        return {"error": reason}

    def _check_allowed(self, command: Command) -> None:
        """Raise MessageError for a change that needs a signature, and has no good one."""
        app = self._app
        if app.remote_control == ALL:
            return
        where = f"{command.method}: this worker only answers questions (remote_control='inspect')"
        if app.signer is None:
            raise MessageError(where)
        try:
            document = command.signed_part()
            app.signer.check_document(document, command.signature, place=EXCHANGE)
        except MessageError as error:
            raise MessageError(f"{where}, except for signed changes: {error}") from None
        sent_s, ticket = command.sent_s, command.ticket
        if sent_s is None or ticket is None:
            raise MessageError(f"{where}: a signed command needs a ticket, and when it was sent")
        age_s = app.broker_clock.now_s() - sent_s
        if not abs(age_s) <= FRESH_S:
            raise MessageError(f"{where}: it is {age_s:.0f} s old, the limit is {FRESH_S:.0f}")
        if age_s > app.clock.now_s() - self._context.started_s:  # its predecessor may have run it
            raise MessageError(f"{where}: it was sent before this worker started")
        if ticket in self._tickets:
            raise MessageError(f"{where}: this one was done already")
        self._tickets[ticket] = None
        while len(self._tickets) > MAX_TICKETS:
            self._tickets.popitem(last=False)

    def _reply(self, command: Command, reply: Any, *, url: str) -> None:
        assert command.reply_to is not None
        to, name = command.reply_to, self._worker.name
        if not REPLY_NAME.fullmatch(to.exchange):
            raise MessageError(f"reply exchange {to.exchange!r:.80}: must be reply.NAME.pidbox")
        body = to_json({name: reply})
        if len(body) > self._app.limit_bytes:
            reason = f"the answer is {len(body)} bytes: the limit is {self._app.limit_bytes}"
            body = to_json({name: {"error": reason}})
        self._mailbox._publish_reply(
            body,
            to.exchange,
            to.routing_key,
            command.ticket,
            channel=self._connect(url).default_channel,
            content_type=CONTENT_TYPE,
            content_encoding=CONTENT_ENCODING,
            retry_policy=REPLY_POLICY,
        )

    def _connect(self, url: str | None = None) -> Any:
        """Return a kombu connection to a broker, by default the one in use."""
        url = url or self._app.broker
        if url not in self._connections:
            connection = connection_to(self._app, url)
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


def _without_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an extension's command as one of ours is called."""
    return lambda _, **arguments: function(**arguments)


def _arguments(command: Command, function: Any) -> dict[str, Any]:
    """Return what `function` is called with. Raises MessageError if it does not take that."""
    arguments = {} if command.arguments is None else command.arguments
    if not isinstance(arguments, dict):
        kind = type(arguments).__name__
        raise MessageError(f"{command.method}: arguments are {kind}, must be an object")
    try:
        signature(function).bind(None, **arguments)
    except TypeError as error:
        raise MessageError(f"{command.method}: {error}") from None
    return arguments
