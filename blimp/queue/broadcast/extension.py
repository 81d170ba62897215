"""Broadcasts, revocations and remote control, as an extension of each worker.

Commands leave the broadcasts' thread at once, so that none delays an emergency stop.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

import msgspec

from blimp.errors import LinkError
from blimp.queue.broadcast.listener import MAX_COMMAND_BYTES
from blimp.queue.broadcast.receiver import BroadcastReceiver, ControlMessage
from blimp.queue.extensions import Extension
from blimp.queue.neighbours import neighbour
from blimp.queue.options import OFF
from blimp.queue.worker.job import Place, Stage, place_of
from blimp.queue.worker.middleware import revoked

if TYPE_CHECKING:
    from collections.abc import Callable

    from blimp.queue.worker.job import Job
    from blimp.queue.worker.worker import Worker

LISTENING_S = 0.5
LOAD_BEATS = 5  # heartbeats between two looks at the server: a broadcast may have been missed
MAX_WAITING = 128  # commands
IDLE_S = 15.0
PAUSE_S = 0.002  # after each command: a flood must leave the interpreter to the tasks
CLOSE_S = 1.0
TERMINATED = {
    Place.LOOP: "cancelled",
    Place.THREAD: "its thread is asked to stop",
    Place.PROCESS: "its process is ended",
}


class CommandRunner(Protocol):
    """What runs remote-control commands: a neighbour."""

    def handle(self, message: ControlMessage) -> None: ...


class ControlExtension(Extension):
    """Receives broadcasts, revocations and remote-control commands, and acts on them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.revocation = Revoker(worker)
        self.remote = CommandThread(worker, revoke=self.revocation.receive)
        is_on = worker.app.remote_control != OFF
        self.broadcasts = BroadcastReceiver(
            app=worker.app,
            worker=worker.name,
            on_revoke=self.revocation.receive,
            on_command=self.remote.receive if is_on else None,
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


class CommandThread:
    """Runs remote-control commands, in a thread of its own. Close is idempotent.

    The thread starts with the first command and ends when none has come for a while. What runs
    commands is imported there: most workers get none, and the import would delay a stop.
    revoke: see CommandContext.
    """

    def __init__(self, worker: Worker, *, revoke: Callable[[str, bool], str]) -> None:
        self._worker = worker
        self._log = worker.log
        self._revoke = revoke
        self._started_s = worker.app.clock.now_s()
        self._remote: CommandRunner | None = None
        self._changed = threading.Condition()
        self._waiting: deque[ControlMessage] = deque()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._is_flooded = False

    def receive(self, message: ControlMessage) -> None:
        """Queue a command. Any thread; never waits nor raises."""
        if len(message.body) > MAX_COMMAND_BYTES:
            message = msgspec.structs.replace(message, body=b"")  # refused as unreadable
        with self._changed:
            if len(self._waiting) >= MAX_WAITING:
                if not self._is_flooded:
                    self._log.error("remote control flooded", waiting=MAX_WAITING)
                self._is_flooded = True
                return
            self._waiting.append(message)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._serve, name="remote", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError as error:  # the system has no thread left
                    self._failed(error)
            self._changed.notify()

    def close(self) -> None:
        """Run no further command; the one that runs may end."""
        self._closed.set()
        with self._changed:
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=CLOSE_S)

    def load(self) -> CommandRunner:
        """Return what runs the commands. May raise anything, and is called again then."""
        if self._remote is None:
            self._remote = neighbour("remote control")(
                self._worker, revoke=self._revoke, started_s=self._started_s
            )
        return self._remote

    def _serve(self) -> None:
        try:
            remote = self.load()
            while (message := self._next()) is not None:
                remote.handle(message)
                self._closed.wait(PAUSE_S)
        except Exception as error:  # such as too many open files to import
            with self._changed:
                self._failed(error)

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

    def _failed(self, error: Exception) -> None:
        """Drop what waits, which must not run much later; the next command tries again."""
        self._log.error("remote control failed", reason=repr(error), dropped=len(self._waiting))
        self._waiting.clear()
        self._is_flooded = False
        self._thread = None


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
