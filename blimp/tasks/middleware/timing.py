"""Timing: how long each job took, for the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp
    from blimp.tasks.job import Job, Verdict
    from blimp.tasks.middleware import CallNext


class Timing:
    """Logs every job's end with its duration on this machine's clock."""

    def __init__(self, *, app: TaskApp, log: Any = None) -> None:
        self._app = app
        self._clock = app.clock
        self._log = log

    async def __call__(self, job: Job, call_next: CallNext) -> Verdict:
        began_s = self._clock.now_s()
        verdict = await call_next(job)
        if self._log is None:
            from blimp.tasks.log import stderr_logger

            self._log = stderr_logger(level=self._app.log_level)
        self._log.info(
            "task",
            task=job.task.name,
            id=job.message.id,
            state=verdict.state.value,
            ms=round((self._clock.now_s() - began_s) * 1000.0, 3),
            delivery=job.message.delivery,
            **({"reason": verdict.fault.text} if verdict.fault else {}),
        )
        return verdict
