"""Deadly: what was delivered often and never completed may be what kills its workers."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import msgspec

from blimp.errors import WorkerLost
from blimp.queue.worker.job import failure

if TYPE_CHECKING:
    from blimp.queue.worker.job import Job, Verdict
    from blimp.queue.worker.middleware import CallNext


class NotDeadly:
    """Has it end as a FAILURE and a dead letter, unrun, where the broker counts deliveries.

    The transport gives up a few deliveries later by itself, but cannot tell anybody: neither
    who waits for the result, nor a chord that it is a part of.
    """

    def __call__(self, job: Job, call_next: CallNext) -> Awaitable[Verdict]:
        return self._give_up(job) if job.delivery.spent else call_next(job)

    async def _give_up(self, job: Job) -> Verdict:
        error = WorkerLost(f"{job.task.name}: {job.delivery.spent}")
        return msgspec.structs.replace(failure(error), dead=str(error))
