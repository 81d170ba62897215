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

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.extensions import Middleware
    from blimp.queue.protocol.record import Outcome
    from blimp.queue.worker.job import CallNext, Job


def default_middleware(app: TaskApp) -> list[Middleware]:
    """Return the table of middleware, outermost first. A new one is one line here."""
    from blimp.queue.worker.middleware.requires import Leftovers, Requires
    from blimp.queue.worker.middleware.skip import (
        Expiry,
        Once,
        OverLimit,
        SkipRevoked,
        SkipSuperseded,
    )

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
