"""What a job passes on its way to its function.

A middleware wraps the rest of the chain: it awaits `call_next(job)`, or returns an outcome of
its own. If it raises, the job ends as a FAILURE and the function is not run: the chain fails
closed. It is written once, as a coroutine; for plain functions it runs in their thread and never
waits. Calls that may wait for the broker go through `job.in_thread`.

A middleware may have a method `wants(job) -> bool`, asked when its turn comes: False has it
passed over. Most jobs need none of the default ones, and a coroutine costs a fifth of a short
task. Tested by test_middleware.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import Expired, Interrupted, LinkError, Revoked, Superseded, WorkerLost
from blimp.queue.brokers.base import MARK_KEEP_S
from blimp.queue.protocol.message import AGAIN
from blimp.queue.protocol.record import Outcome, State, failure
from blimp.queue.publish.coalescing import Coalescing
from blimp.queue.redis.client import type_checked
from blimp.queue.worker.completions import mark_key, worker_lost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redis import Redis

    from blimp.queue.app import TaskApp
    from blimp.queue.extensions import Middleware
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.protocol.record import Outcome
    from blimp.queue.publish.revocations import Revocations
    from blimp.queue.redis.clock import BrokerClock
    from blimp.queue.results.backend import ResultBackend
    from blimp.queue.worker.job import CallNext, Job


def default_middleware(app: TaskApp) -> list[Middleware]:
    """Return the table of middleware, outermost first. A new one is one line here."""
    from blimp.queue.worker.requires import Leftovers, Requires

    return [
        Leftovers(app=app),
        Once(app=app),
        OverLimit(),
        SkipRevoked(revocations=app.revocations),
        SkipSuperseded(app=app),
        Expiry(clock=app.broker_clock),
        Requires(app=app),
    ]


def chain(middleware: tuple[Middleware, ...], last: CallNext) -> CallNext:
    """Return `last` wrapped in `middleware`, the first of them outermost."""
    steps: tuple[tuple[Callable[[Job], bool], Middleware, CallNext], ...] = ()
    call = last
    for one in reversed(middleware):
        steps = ((getattr(one, "wants", lambda _: True), one, call), *steps)
        call = _first_of(steps, last)
    return call


def _first_of(
    steps: tuple[tuple[Callable[[Job], bool], Middleware, CallNext], ...], last: CallNext
) -> CallNext:
    """Return a call of the first middleware that wants the job, else of `last`."""

    def call(job: Job) -> Awaitable[Outcome]:
        for wants, layer, call_next in steps:
            if wants(job):
                return layer(job, call_next)
        return last(job)

    return call


# --- jobs that do not begin: expired, revoked, superseded, over the limit, or begun --------------

AHEAD_S = 1.0  # clocks are read in turn


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
            issued_s = message.issued_ms / 1000.0
            doubt_s = 0.0 if job.task.options.acts_in_doubt else self._clock.doubt_s(issued_s)
            age_s = now_s - issued_s + doubt_s
            if not -AHEAD_S <= age_s <= message.ttl_s:  # the broker's clock may have gone back
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

    wants = staticmethod(attrgetter("delivery.over_delivery_limit"))

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


class Once:
    """Looks for what an earlier delivery left.

    A final result: its worker was killed between result and acknowledgement, and only the
    acknowledgement is missing. The mark of a task that may not begin twice: it had begun, see
    `begun_before`. The runner sets the mark, right before the function.
    """

    def __init__(self, *, app: TaskApp) -> None:
        self._app = app

    def wants(self, job: Job) -> bool:
        message = job.message
        return message.delivery > 1 or AGAIN in message.headers or job.task.options.begins_once

    async def __call__(self, job: Job, call_next: CallNext) -> Outcome:
        assert job.in_thread is not None
        again = job.message.delivery > 1 or AGAIN in job.message.headers
        results: ResultBackend | None = self._app.results
        if again and results is not None:
            job.previous = await job.in_thread(results.get, job.message.id)
            if job.previous is not None and job.previous.final:
                return Outcome(state=job.previous.state, settled=True)
        if job.task.options.begins_once and await job.in_thread(self._has_begun, job):
            return begun_before(job)
        return await call_next(job)

    def _has_begun(self, job: Job) -> bool:
        key = mark_key(job.message)
        mark: Any = self._app.broker_link.ask(lambda client: type_checked(lambda: client.get(key)))
        return mark is not None and mark != job.mark


def begun_before(job: Job) -> Outcome:
    """Return the outcome of a job that may not begin twice and has begun already.

    Delivered again, it was cut off, and ends as INTERRUPTED, or as a dead letter if its task
    asks for that. Delivered for the first time, it is a copy by a publisher that lost its
    answer: the original's end counts.
    """
    if job.message.delivery == 1:
        return Outcome(state=State.STARTED, settled=True)
    if job.task.options.reject_on_worker_lost:
        error = WorkerLost(f"{job.task.name} had begun when its worker was cut off")
        return worker_lost(error, task=job.task)
    return failure(
        Interrupted(f"{job.task.name} had begun when its worker was cut off; it is not run again"),
        state=State.INTERRUPTED,
    )


def mark_begun(app: TaskApp, job: Job) -> bool:
    """Note that `job` begins; return False if another delivery of its message has begun.

    Asked again because an answer was lost, it knows its own mark. A mark does not expire while
    its message is pending, however long that lies: see `Completion.mark`.
    """
    job.mark = job.mark or uuid.uuid4().bytes
    key = mark_key(job.message)

    def mark(client: Redis) -> bool:
        if client.set(key, job.mark, nx=True):
            return True
        return bool(type_checked(lambda: client.get(key)) == job.mark)

    return app.broker_link.ask(mark)


def let_marks_expire(app: TaskApp, marks: Iterable[str]) -> None:
    """Have the marks of messages that have ended expire. Raises LinkError.

    For a broker that cannot do so in the step of the completion. Not before the acknowledgement:
    the message may lie longer than any expiry. So a worker that is killed in between leaves a
    key of some 100 bytes.
    """

    def expire(client: Redis) -> None:
        with client.pipeline(transaction=False) as pipe:
            for key in marks:
                pipe.expire(key, MARK_KEEP_S)
            pipe.execute()

    app.broker_link.ask(expire)


def clear_begun(app: TaskApp, message: TaskMessage) -> None:
    """Remove the mark of `message`: it came to its end, and is to run again."""
    if not app.has_store:  # then nothing is marked, see guarantees.check_tasks
        return
    with app.broker_link.link():
        app.broker_link.client.delete(mark_key(message))
