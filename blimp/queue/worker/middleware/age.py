"""Age: what is too old does not begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blimp.errors import Expired
from blimp.queue.protocol.outcome import failure
from blimp.queue.protocol.record import State

if TYPE_CHECKING:
    from blimp.queue.protocol.outcome import Outcome
    from blimp.queue.redis.clock import BrokerClock
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.middleware import CallNext


class Age:
    """Judges `ttl_s` and `expires` on the broker's clock, right before the task would run.

    A redelivered task that had begun in time goes on where it is `resumable`.
    """

    def __init__(self, *, clock: BrokerClock) -> None:
        self._clock = clock

    async def __call__(self, job: Job, call_next: CallNext) -> Outcome:
        message = job.message
        if message.ttl_s is None and message.expires_s is None:
            return await call_next(job)
        began = job.previous is not None and job.previous.state is not State.PENDING
        if began and job.task.options.resumable:
            return await call_next(job)
        assert job.in_thread is not None
        now_s: float = await job.in_thread(self._clock.latest_s)
        if message.ttl_s is not None and message.issued_ms is not None:
            age_s = now_s - message.issued_ms / 1000.0
            if age_s > message.ttl_s:
                return failure(
                    Expired(f"{age_s:.3f} s old, its time to live is {message.ttl_s:g} s"),
                    state=State.EXPIRED,
                )
        if message.expires_s is not None and now_s > message.expires_s:
            late_s = now_s - message.expires_s
            return failure(Expired(f"{late_s:.3f} s past its expiry"), state=State.EXPIRED)
        return await call_next(job)
