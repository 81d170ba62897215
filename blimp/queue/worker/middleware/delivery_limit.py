"""Deadly: what was delivered often and never completed may be what kills its workers."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import msgspec

from blimp.errors import WorkerLost
from blimp.queue.protocol.outcome import failure

if TYPE_CHECKING:
    from blimp.queue.protocol.outcome import Outcome
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.middleware import CallNext


class DeliveryLimit:
    """Has it end as a FAILURE and a dead letter, unrun, where the broker counts deliveries.

    The transport gives up a few deliveries later by itself, but cannot tell anybody: neither
    who waits for the result, nor a chord that it is a part of.
    """

    def __call__(self, job: Job, call_next: CallNext) -> Awaitable[Outcome]:
        return self._give_up(job) if job.delivery.over_delivery_limit else call_next(job)

    async def _give_up(self, job: Job) -> Outcome:
        error = WorkerLost(f"{job.task.name}: {job.delivery.over_delivery_limit}")
        return msgspec.structs.replace(failure(error), dead=str(error))
