"""Broadcasts, revocations and remote control, as an extension of each worker.

Commands leave the broadcasts' thread at once, so that none delays an emergency stop. The thread
that runs them starts with the first one and ends when none has come for a while.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from blimp.errors import BlimpError, LinkError, MessageError
from blimp.queue.brokers.base import Exchange
from blimp.queue.control.broadcast import BroadcastReceiver
from blimp.queue.control.command import (
    EXCHANGE,
    MAX_COMMAND_BYTES,
    Command,
    CommandContext,
    is_for,
    read_command,
)
from blimp.queue.control.handlers import CHANGE_COMMANDS, INSPECT_COMMANDS
from blimp.queue.extensions import ControlCommand, Extension
from blimp.queue.options import ALL, OFF
from blimp.queue.protocol.message import to_json
from blimp.queue.worker.job import Place, Stage, place_of
from blimp.queue.worker.middleware.skip import revoked

if TYPE_CHECKING:
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.worker import Worker

LISTENING_S = 0.5
LOAD_BEATS = 5  # heartbeats between two looks at the server: a broadcast may have been missed
TERMINATED = {
    Place.LOOP: "cancelled",
    Place.THREAD: "its thread is asked to stop",
    Place.PROCESS: "its process is ended",
}
MAX_WAITING = 128
IDLE_S = 15.0
PAUSE_S = 0.002  # after each command: a flood must leave the interpreter to the tasks
CLOSE_S = 1.0
LOG_LENGTH = 200
REPLY_NAME = re.compile(r"reply\.[\w.-]{1,100}\.pidbox")
FRESH_S = 30.0  # a signed command is run within it, and once
MAX_TICKETS = 4096
MAX_CLOCK = 2**53


class ControlExtension(Extension):
    """Receives broadcasts, revocations and remote-control commands, and acts on them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.revocation = Revoker(worker)
        self.remote = RemoteControl(worker, revoke=self.revocation.receive)
        self.broadcasts = BroadcastReceiver(
            app=worker.app,
            worker=worker.name,
            on_revoke=self.revocation.receive,
            on_command=None if worker.app.remote_control == OFF else self.remote.receive,
            counts=worker.counts,
            log=worker.log,
        )

    def starting(self) -> None:
        app = self._worker.app
        if app.broadcasts or app.capabilities.is_shared:
            self.broadcasts.start()

    def consuming(self) -> None:
        app = self._worker.app
        if app.broadcasts and not self.broadcasts.wait_listening(app.timeout_s):
            # Tasks are taken all the same: a ship that can be flown can also be landed.
            self._worker.log.error("emergency broadcasts not received yet")
        elif app.remote_control != OFF and not self._worker.ready.is_set():
            self.broadcasts.wait_listening(LISTENING_S)  # a worker that is ready answers
        self.revocation.load()

    def beat(self, alive: bool) -> None:
        self.revocation.beat(alive)

    def stopping(self) -> None:
        self.broadcasts.close()
        self.remote.close()


class Revoker:
    """Ends revoked tasks of one worker: what waits at once, what runs if asked. Any thread."""

    def __init__(self, worker: Worker) -> None:
        self._app = worker.app
        self._worker = worker
        self._beats = 0

    def receive(self, id: str, terminate: bool) -> str:
        """Revoke `id` here and now; return what becomes of it, "" if it is not in this worker."""
        self._app.revocations.add(id, terminate=terminate)
        return self._apply({id: terminate}).get(id, "")

    def load(self) -> None:
        """Apply what was revoked earlier, or in an outage. Raises LinkError."""
        self._apply(self._app.revocations.load(now_s=self._app.broker_clock.now_s()))

    def beat(self, alive: bool) -> None:
        self._beats += 1
        if alive and self._beats % LOAD_BEATS == 0:
            try:
                self.load()
            except LinkError:
                return  # the next heartbeat reports it

    def _apply(self, revocations: dict[str, bool]) -> dict[str, str]:
        """Return what becomes of each task that is in flight here, by id."""
        found: dict[str, str] = {}
        waiting: list[Job] = []
        asked: list[Job] = []
        for job in self._worker.jobs() if revocations else ():
            id = job.message.id
            terminate = revocations.get(id)
            if terminate is None:
                continue
            if job.stage is Stage.WAITING and job.task.options.acks_late:
                waiting.append(job)
                found[id] = "revoked before it began"
            elif job.stage is Stage.RUNNING:
                found[id] = "it runs on"
                if terminate:
                    self._worker.log.warning("revoked while it runs", task=job.task.name, id=id)
                    job.revoke()
                    found[id] = TERMINATED[place_of(job.task)]
                    if place_of(job.task) is Place.THREAD:
                        asked.append(job)
        if waiting or asked:  # not in this thread: the broker may be slow
            threading.Thread(
                target=self._refuse, args=(waiting, asked), name="revoke", daemon=True
            ).start()
        return found

    def _refuse(self, waiting: list[Job], asked: list[Job]) -> None:
        for job in asked:
            self._worker.runner.note_asked_to_end(job)
        for job in waiting:
            self._worker.runner.refuse(job, revoked("before it began"))


class ControlMessage(NamedTuple):
    """One message of the pidbox as it came. clock: its sender's logical clock."""

    url: str
    body: bytes | str
    content_type: str | None
    clock: object


class RemoteControl:
    """Runs and answers commands, in a thread of its own. Close is idempotent.

    revoke: see CommandContext.
    """

    def __init__(self, worker: Worker, *, revoke: Callable[[str, bool], str]) -> None:
        self._worker = worker
        self._app = worker.app
        self._log = worker.log
        self._context = CommandContext(
            worker=worker, revoke=revoke, started_s=worker.app.clock.now_s()
        )
        self._commands: dict[str, ControlCommand] = {}
        self._tickets: OrderedDict[str, None] = OrderedDict()  # of signed commands that ran
        self._changed = threading.Condition()
        self._waiting: deque[ControlMessage] = deque()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._is_flooded = False

    def receive(self, url: str, message: Any) -> None:
        """Queue kombu's `message` from the broker at `url`. Any thread; never waits nor raises."""
        body = message.body if len(message.body) <= MAX_COMMAND_BYTES else b""  # too long for one
        command = ControlMessage(url, body, message.content_type, message.headers.get("clock"))
        with self._changed:
            if len(self._waiting) >= MAX_WAITING:
                if not self._is_flooded:
                    self._log.error("remote control flooded", waiting=MAX_WAITING)
                self._is_flooded = True
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

    # --- the thread ------------------------------------------------------------------------------

    def _serve(self) -> None:
        for table, is_change in ((INSPECT_COMMANDS, False), (CHANGE_COMMANDS, True)):
            for name, function in table.items():
                own = partial(function, self._context)
                self._commands[name] = ControlCommand(function=own, is_change=is_change)
        for extension in self._worker.extensions:
            self._commands |= extension.commands
        while (message := self._next()) is not None:
            self._handle(message)
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

    def _handle(self, message: ControlMessage) -> None:
        """Run one command if this worker is meant, and answer if an answer is wanted."""
        if isinstance(message.clock, int) and 0 <= message.clock < MAX_CLOCK:
            self._worker.logical_clock.adjust(message.clock)
        app, name = self._app, self._worker.name
        try:
            command = read_command(message.body, content_type=message.content_type)
            if not is_for(command, worker=name, app=app.name, signer=app.signer):
                return
        except (MessageError, RecursionError) as error:  # this thread must go on
            self._log.error("remote command unreadable", reason=str(error)[:LOG_LENGTH])
            return
        reply = self._run(command)
        if command.reply_to is None:
            return
        try:
            self._reply(command, reply, url=message.url)
        except Exception as error:  # this caller gets no answer; the next one may
            fields = {"command": command.method[:LOG_LENGTH], "reason": str(error)[:LOG_LENGTH]}
            self._log.warning("remote command unanswered", **fields)

    def _run(self, command: Command) -> Any:
        """Run it; return the answer, `{"error": …}` if it was not done."""
        name = command.method
        arguments = {} if command.arguments is None else command.arguments
        try:
            found = self._commands.get(name)
            if found is None:
                known = ", ".join(sorted(self._commands))
                raise MessageError(f"{KeyError(name[:80])!r}: no such command; there are: {known}")
            if found.is_change:
                self._check_allowed(command)
            if not isinstance(arguments, dict):
                raise MessageError(f"arguments are {type(arguments).__name__}, must be an object")
            signature(found.function).bind(**arguments)
            reply = found.function(**arguments)
        except (BlimpError, TypeError) as error:
            fields = {"command": name[:LOG_LENGTH], "reason": str(error)[:LOG_LENGTH]}
            self._log.warning("remote command refused", **fields)
            return {"error": str(error)}
        except Exception as error:
            self._log.exception("remote command", command=name)
            return {"error": repr(error)}
        if found.is_change:
            self._log.info("remote command", command=name, arguments=repr(arguments)[:LOG_LENGTH])
        return reply

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
        self._app.publisher.notify(
            body,
            exchange=Exchange(to.exchange, "direct", durable=False),
            routing_key=to.routing_key,
            headers={"ticket": command.ticket, "clock": self._worker.logical_clock.forward()},
            at=url,
        )
