"""Jobs that do not begin: expired, revoked, superseded, or delivered too often."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from blimp.errors import Expired, LinkError, Revoked, Superseded, WorkerLost
from blimp.queue.protocol.outcome import Outcome, failure
from blimp.queue.protocol.record import State
from blimp.queue.publish.coalescing import Coalescing

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.publish.revocations import Revocations
    from blimp.queue.redis.clock import BrokerClock
    from blimp.queue.worker.job import CallNext, Job


class Expiry:
    """Judges `ttl_s` and `expires` on the broker's clock, right before the task would run.

    A redelivered task that began in time goes on if it is `resumable`.
    """

    def __init__(self, *, clock: BrokerClock) -> None:
        self._clock = clock

    def wants(self, job: Job) -> bool:
        return job.message.ttl_s is not None or job.message.expires_s is not None

    async def __call__(self, job: Job, call_next: CallNext) -> Outcome:
        message = job.message
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


class OverLimit:
    """Ends what was delivered too often as a FAILURE and a dead letter: it may kill its worker.

    The broker gives it up a few deliveries later by itself, but can inform neither a caller
    that waits for the result nor a chord that it is a part of.
    """

    def wants(self, job: Job) -> bool:
        return bool(job.delivery.over_delivery_limit)

    async def __call__(self, job: Job, _: CallNext) -> Outcome:
        error = WorkerLost(f"{job.task.name}: {job.delivery.over_delivery_limit}")
        return msgspec.structs.replace(failure(error), dead=str(error))


class SkipRevoked:
    """Ends what was revoked, as far as this worker knows: it asks no server."""

    def __init__(self, *, revocations: Revocations) -> None:
        self._revocations = revocations

    def wants(self, job: Job) -> bool:
        return job.message.id in self._revocations

    async def __call__(self, job: Job, _: CallNext) -> Outcome:  # noqa: ARG002
        return revoked("before it began")


def revoked(when: str) -> Outcome:
    return failure(Revoked(f"revoked {when}"), state=State.REVOKED)


class SkipSuperseded:
    """Ends a coalesced task if a newer message has its key. One that runs is not touched.

    The server is asked right before it would run. If it does not answer, the message is
    requeued, and asked for again.
    """

    def __init__(self, *, app: TaskApp) -> None:
        self._app = app

    def wants(self, job: Job) -> bool:
        return job.message.coalesce is not None and self._app.has_store

    async def __call__(self, job: Job, call_next: CallNext) -> Outcome:
        assert job.in_thread is not None
        coalescing = Coalescing(link=self._app.broker_link)
        try:
            newer: str | None = await job.in_thread(coalescing.newer, job.message)
        except LinkError:
            return Outcome(state=State.PENDING, requeue=True)
        if newer is not None:
            return failure(Superseded(f"superseded by {newer}"), state=State.SUPERSEDED)
        return await call_next(job)
