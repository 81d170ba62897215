"""What a worker does about revoked tasks that it has in hand."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError
from blimp.queue.worker.job import Stage
from blimp.queue.worker.middleware.revoked import revoked

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.worker.in_flight import InFlight
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.runner import Runner

REFRESH_BEATS = 5  # of the pulse: a broadcast may be missed


class Revoking:
    """Ends what waits in hand at once, and what runs where that was asked. Any thread's."""

    def __init__(self, *, app: TaskApp, in_flight: InFlight, runner: Runner, log: Any) -> None:
        self._app = app
        self._in_flight = in_flight
        self._runner = runner
        self._log = log
        self._beats = 0

    def hear(self, id: str, terminate: bool) -> None:
        """`id` was revoked just now."""
        self._app.revocations.add(id, terminate=terminate)
        self._apply({id: terminate})

    def load(self) -> None:
        """Know what was revoked before, or while nobody listened. Raises LinkError."""
        self._apply(self._app.revocations.load(now_s=self._app.broker_clock.now_s()))

    def refresh(self, alive: bool) -> None:
        """Look again now and then; called with every beat of the pulse."""
        self._beats += 1
        if alive and self._beats % REFRESH_BEATS == 0:
            try:
                self.load()
            except LinkError:
                return  # the next beat tells of it

    def _apply(self, ids: dict[str, bool]) -> None:
        if not ids:
            return
        waiting: list[Job] = []
        for job in self._in_flight.jobs():
            terminate = ids.get(job.message.id)
            if terminate is None:
                continue
            if job.stage is Stage.WAITING and job.task.options.acks_late:
                waiting.append(job)
            elif terminate and job.stage is Stage.RUNNING:
                self._end(job)

        if waiting:  # not in this thread: the broker may be slow
            threading.Thread(
                target=self._refuse, args=(waiting,), name="revoke", daemon=True
            ).start()

    def _refuse(self, jobs: list[Job]) -> None:
        for job in jobs:
            self._runner.refuse(job, revoked("before it began"))

    def _end(self, job: Job) -> None:
        self._log.warning("revoked while it runs", task=job.task.name, id=job.message.id)
        job.revoke()
