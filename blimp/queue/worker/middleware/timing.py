"""Timing: how long each job took, for the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blimp.queue.protocol.record import State

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.outcome import Outcome
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.middleware import CallNext

PLAIN = (State.SUCCESS, State.PENDING)


class Timing:
    """Logs how every job ended, with its duration on this machine's clock.

    A success is told at level debug only: a line for each costs more than a short task does.
    So is what has not begun, and comes again.
    """

    def __init__(self, *, app: TaskApp, log: Any = None) -> None:
        self._app = app
        self._clock = app.clock
        self._log = log

    async def __call__(self, job: Job, call_next: CallNext) -> Outcome:
        began_s = self._clock.now_s()
        outcome = await call_next(job)
        is_plain = outcome.state in PLAIN
        if is_plain and self._app.log_level != "debug":
            return outcome
        if self._log is None:
            self._log = self._app.make_log(level=self._app.log_level)
        tell = self._log.debug if is_plain else self._log.info
        tell(
            "task",
            task=job.task.name,
            id=job.message.id,
            state=outcome.state.value,
            ms=round((self._clock.now_s() - began_s) * 1000.0, 3),
            delivery=job.message.delivery,
            **(
                {"reason": f"{outcome.fault.exc_type}: {outcome.fault.text}"}
                if outcome.fault
                else {}
            ),
        )
        return outcome
