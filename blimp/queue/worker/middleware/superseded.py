"""Superseded: what a newer message with the same key has taken the place of does not begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blimp.errors import LinkError, Superseded
from blimp.queue.protocol.outcome import Outcome, failure
from blimp.queue.protocol.record import State
from blimp.queue.publish.coalescing import Coalescing

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.middleware import CallNext


class SkipSuperseded:
    """Asks the server right before a coalesced task would run. One that runs is not touched.

    While the server is away nobody knows: the message goes back, and is asked for again.
    """

    def __init__(self, *, app: TaskApp) -> None:
        self._app = app

    async def __call__(self, job: Job, call_next: CallNext) -> Outcome:
        if job.message.coalesce is None or not self._app.has_store:
            return await call_next(job)
        assert job.in_thread is not None
        coalescing = Coalescing(link=self._app.broker_link)
        try:
            newer: str | None = await job.in_thread(coalescing.newer, job.message)
        except LinkError:
            return Outcome(state=State.PENDING, requeue=True)
        if newer is not None:
            return failure(Superseded(f"superseded by {newer}"), state=State.SUPERSEDED)
        return await call_next(job)
