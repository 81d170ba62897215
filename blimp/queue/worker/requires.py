"""Requires: a task that needs a resource has one while it runs, or does not begin.

A `concurrency_key` is one of these, too: a pool of so many resources for each key.
Tested by test_pool_requires.py.
"""

from __future__ import annotations

import contextlib
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from blimp.errors import LeaseError, LeaseLost, LinkError, NoneFree
from blimp.queue.protocol.record import Outcome, State
from blimp.queue.worker.completions import outcome_of

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.resources.grant import Grant
    from blimp.queue.resources.pool import ResourcePool
    from blimp.queue.worker.job import CallNext, Job

FIRST_S = 0.1  # after which the first that waits is delivered again; those behind it later
LONGEST_S = 2.0
LONGEST_OF_LIMIT_S = 10.0  # thousands may wait for one key: each delivery costs
SLACK_S = 5.0  # how long a place is kept for a message that is late


class Requires:
    """Acquires a resource of the pool that `requires` names, and releases it at the end.

    If none is free, the message is requeued, to be delivered again a moment later: no thread
    waits, and neither a retry nor a delivery is counted. Its place among those that wait is
    kept. The holder is the task's id: delivered again after its worker was killed, it has its
    resource at once, with a new token, and the old token is void. An earlier delivery that was
    only stopped can acquire and release nothing more.

    A grant that is lost while the task runs cancels it, or sets `context.lost`; whatever it
    returns, it fails with LeaseLost.
    """

    grants = True  # tasks with `requires` are refused if no middleware has this

    def __init__(self, *, app: TaskApp) -> None:
        self._app = app

    wants = staticmethod(attrgetter("task.options.is_limited"))

    async def __call__(self, job: Job, call_next: CallNext) -> Outcome:
        pool = pool_of(self._app, job)
        assert job.in_thread is not None
        found: Grant | Outcome = await job.in_thread(self._take, job, pool)
        if isinstance(found, Outcome):
            return found
        is_running = True

        requires = job.task.options.requires is not None

        def lose(_: Grant) -> None:
            if is_running and requires:  # what only exceeds a limit goes on
                job.lose_grant()

        job.grant = found
        found.on_lost(lose)
        pool.keep(found)
        try:
            outcome = await call_next(job)
        except BaseException:
            pool.release_soon(found)  # the loop may be ending: await nothing
            raise
        finally:
            is_running = False
        await job.in_thread(pool.release_or_later, found)
        if not (requires and found.lost.is_set()) or outcome.state is State.RETRY:
            return outcome
        if job.is_revoked or job.timed_out_s is not None:
            return outcome
        reason = f"{found.resource} of pool {pool.name!r} was lost meanwhile: {found.reason}"
        return self._outcome_of(LeaseLost(reason), job)

    def _take(self, job: Job, pool: ResourcePool) -> Grant | Outcome:
        """Return the grant, or else the outcome of the message. Raises LinkError."""
        from blimp.queue.resources.grant import Grant

        holder = job.message.id
        requires = job.task.options.requires is not None
        longest_s = LONGEST_S if requires else LONGEST_OF_LIMIT_S
        try:
            found = pool.ask(
                holder, place_s=longest_s + SLACK_S, new_token=True, rank=job.message.delivery
            )
            if isinstance(found, Grant):
                return found
            if not found.resources:
                pool.leave(holder)
                raise NoneFree(f"{job.task.name} requires one of pool {pool.name!r}: it is empty")
        except LeaseLost:  # if it is another worker's now, this outcome is refused
            return Outcome(state=State.PENDING, again_in_s=longest_s)
        except LeaseError as error:
            return self._outcome_of(error, job)
        wait_s = min(longest_s, FIRST_S * (1 + found.before // found.resources))
        return Outcome(state=State.PENDING, again_in_s=wait_s)

    def _outcome_of(self, error: LeaseError, job: Job) -> Outcome:
        return outcome_of(error, task=job.task, message=job.message, chance=self._app.chance)


class Leftovers:
    """Releases what an earlier delivery held, if this one ends without beginning.

    For example, its worker was killed, and then the task was revoked.
    """

    def __init__(self, *, app: TaskApp) -> None:
        self._app = app

    wants = staticmethod(attrgetter("task.options.is_limited"))

    async def __call__(self, job: Job, call_next: CallNext) -> Outcome:
        pool = pool_of(self._app, job)
        assert job.in_thread is not None
        outcome = await call_next(job)
        comes_again = outcome.requeue or outcome.again_in_s is not None
        if job.grant is None and not outcome.settled and not comes_again:
            with contextlib.suppress(LinkError, LeaseError):  # it ends with its time to live
                await job.in_thread(
                    partial(pool.dismiss, job.message.id, rank=job.message.delivery)
                )
        return outcome


def pool_of(app: TaskApp, job: Job) -> ResourcePool:
    """Return the pool of which `job` needs a resource. Raises MessageError."""
    options, message = job.task.options, job.message
    if options.requires is not None:
        return app.pools[options.requires]
    key = job.task.key_of("concurrency_key", message.args, message.kwargs)
    return app.pools.limit(f"{app.name} {job.task.name} {key}", options.concurrency)
