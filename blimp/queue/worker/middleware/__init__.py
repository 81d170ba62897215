"""What every job passes on its way to its function, in this order.

A middleware wraps the rest of the chain: it awaits `call_next(job)` or returns a verdict of
its own. What it raises ends the job as a FAILURE and the function is not run: the chain
fails closed. It is written once, as a coroutine; for plain functions it runs in their
thread and never waits. Calls that may wait for the broker go through `job.in_thread`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.outcome import Outcome
    from blimp.queue.worker.job import Job

CallNext = Callable[["Job"], Awaitable["Outcome"]]


class Middleware(Protocol):
    def __call__(self, job: Job, call_next: CallNext, /) -> Awaitable[Outcome]: ...


def default_middleware(app: TaskApp) -> list[Middleware]:
    """Return the table of middleware, outermost first. A new one is one line here."""
    from blimp.queue.worker.middleware.age import Age
    from blimp.queue.worker.middleware.delivery_limit import DeliveryLimit
    from blimp.queue.worker.middleware.once import Once
    from blimp.queue.worker.middleware.requires import NothingLeft, Requires
    from blimp.queue.worker.middleware.revoked import SkipRevoked
    from blimp.queue.worker.middleware.superseded import SkipSuperseded
    from blimp.queue.worker.middleware.timing import Timing

    return [
        Timing(app=app),
        NothingLeft(app=app),
        Once(app=app),
        DeliveryLimit(),
        SkipRevoked(revocations=app.revocations),
        SkipSuperseded(app=app),
        Age(clock=app.broker_clock),
        Requires(app=app),
    ]


def chain(middleware: tuple[Middleware, ...], last: CallNext) -> CallNext:
    """Return `last` wrapped in `middleware`, the first of them outermost."""
    for layer in reversed(middleware):
        last = _wrap(layer, last)
    return last


def _wrap(layer: Middleware, call_next: CallNext) -> CallNext:
    def call(job: Job) -> Awaitable[Outcome]:
        return layer(job, call_next)

    return call
