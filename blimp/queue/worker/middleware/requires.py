"""Requires: a task that needs an executor has one while it runs, or does not begin."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from blimp.errors import LeaseError, LeaseLost, LinkError, NoneFree
from blimp.queue.protocol.outcome import Outcome
from blimp.queue.protocol.record import State
from blimp.queue.worker.outcome import outcome_of

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.resources.grant import Grant
    from blimp.queue.resources.pool import ResourcePool
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.middleware import CallNext

FIRST_S = 0.1  # after which the first in the line comes again; those behind it later
LONGEST_S = 2.0
SLACK_S = 5.0  # a place is kept so long for one that should have come again


class Requires:
    """Takes an executor of the pool that `requires` names, and gives it back at the end.

    Where none is free the message goes back into its queue, to come again a moment later: no
    thread waits, and neither a retry nor a delivery is counted. Its place in the line is kept
    meanwhile. The holder is the task's id: delivered again, because its worker was killed, it
    has its executor at once, with a new token, and the old one is worth nothing. An earlier
    delivery that only slept has nothing more to take, and nothing to give back.

    A grant that is lost while the task runs cancels it, or sets `context.lost`; whatever it
    ends with, it fails with LeaseLost then.
    """

    grants = True  # a middleware without one that does is refused for tasks that require it

    def __init__(self, *, app: TaskApp) -> None:
        self._app = app

    def __call__(self, job: Job, call_next: CallNext) -> Awaitable[Outcome]:
        if job.task.options.requires is None:
            return call_next(job)
        return self._with(job, call_next, pool=self._app.pools[job.task.options.requires])

    async def _with(self, job: Job, call_next: CallNext, *, pool: ResourcePool) -> Outcome:
        assert job.in_thread is not None
        found: Grant | Outcome = await job.in_thread(self._take, job, pool)
        if isinstance(found, Outcome):
            return found
        is_running = True

        def lose(_: Grant) -> None:
            if is_running:
                job.lose_grant()

        job.grant = found
        found.on_lost(lose)
        pool.keep(found)
        try:
            outcome = await call_next(job)
        except BaseException:
            pool.release_soon(found)  # this may be the end of the loop: nothing is awaited
            raise
        finally:
            is_running = False
        await job.in_thread(pool.release_or_later, found)
        if not found.lost.is_set() or outcome.state is State.RETRY:
            return outcome
        if job.is_revoked or job.timed_out_s is not None:
            return outcome
        reason = f"{found.resource} of pool {pool.name!r} was lost meanwhile: {found.reason}"
        return self._outcome_of(LeaseLost(reason), job)

    def _take(self, job: Job, pool: ResourcePool) -> Grant | Outcome:
        """Return the grant, else what is to become of the message. Raises LinkError."""
        from blimp.queue.resources.grant import Grant

        holder = job.message.id
        try:
            found = pool.ask(
                holder, place_s=LONGEST_S + SLACK_S, new_token=True, rank=job.message.delivery
            )
            if isinstance(found, Grant):
                return found
            if not found.resources:
                pool.leave(holder)
                raise NoneFree(f"{job.task.name} requires one of pool {pool.name!r}: it is empty")
        except LeaseLost:  # where it is not ours any more, nothing comes of this
            return Outcome(state=State.PENDING, again_in_s=LONGEST_S)
        except LeaseError as error:
            return self._outcome_of(error, job)
        wait_s = min(LONGEST_S, FIRST_S * (1 + found.before // found.resources))
        return Outcome(state=State.PENDING, again_in_s=wait_s)

    def _outcome_of(self, error: LeaseError, job: Job) -> Outcome:
        return outcome_of(error, task=job.task, message=job.message, chance=self._app.chance)


class NothingLeft:
    """Gives back what an earlier delivery held where this one ends without beginning.

    Its worker was killed, and then it was revoked, say, or may not begin twice.
    """

    def __init__(self, *, app: TaskApp) -> None:
        self._app = app

    def __call__(self, job: Job, call_next: CallNext) -> Awaitable[Outcome]:
        if job.task.options.requires is None:
            return call_next(job)
        return self._after(job, call_next, pool=self._app.pools[job.task.options.requires])

    async def _after(self, job: Job, call_next: CallNext, *, pool: ResourcePool) -> Outcome:
        assert job.in_thread is not None
        outcome = await call_next(job)
        comes_again = outcome.requeue or outcome.again_in_s is not None
        if job.grant is None and not outcome.settled and not comes_again:
            with contextlib.suppress(LinkError, LeaseError):  # then it ends with its time
                await job.in_thread(self._dismiss, job, pool)
        return outcome

    def _dismiss(self, job: Job, pool: ResourcePool) -> None:
        pool.dismiss(job.message.id, rank=job.message.delivery)
