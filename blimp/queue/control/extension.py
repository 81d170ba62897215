"""Broadcasts, revocations and remote control, as an extension of each worker.

Commands leave the broadcasts' thread at once, so that none delays an emergency stop.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING

from blimp.errors import LinkError
from blimp.queue.control.broadcast import BroadcastReceiver
from blimp.queue.extensions import Extension
from blimp.queue.options import OFF
from blimp.queue.worker.job import Place, Stage, place_of
from blimp.queue.worker.middleware.skip import revoked

if TYPE_CHECKING:
    from blimp.queue.control.remote_control import RemoteControl
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.worker import Worker

LISTENING_S = 0.5
LOAD_BEATS = 5  # heartbeats between two looks at the server: a broadcast may have been missed
TERMINATED = {
    Place.LOOP: "cancelled",
    Place.THREAD: "its thread is asked to stop",
    Place.PROCESS: "its process is ended",
}


class ControlExtension(Extension):
    """Receives broadcasts, revocations and remote-control commands, and acts on them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._started_s = worker.app.clock.now_s()
        self.revocation = Revoker(worker)
        is_on = worker.app.remote_control != OFF
        self.broadcasts = BroadcastReceiver(
            app=worker.app,
            worker=worker.name,
            on_revoke=self.revocation.receive,
            on_command=(lambda *found: self.remote.receive(*found)) if is_on else None,
            counts=worker.counts,
            log=worker.log,
        )

    @cached_property
    def remote(self) -> RemoteControl:
        from blimp.queue.control.remote_control import RemoteControl  # most workers get no command

        made = RemoteControl(
            self._worker, revoke=self.revocation.receive, started_s=self._started_s
        )
        one: RemoteControl = vars(self).setdefault("remote", made)  # each broker has a thread
        return one

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
        if "remote" in vars(self):
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
