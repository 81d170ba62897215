"""The spans of a worker: how long a message waited, and its task's run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from blimp.errors import LinkError
from blimp.queue.observability.tracing import Tracer, carrying, context_of, fail

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.outcome import Outcome
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.middleware import CallNext


class TracedJobs:
    """A middleware, outside of all others.

    What follows from a job, its next try and what it calls, has its run for a parent.
    """

    def __init__(self, *, app: TaskApp, tracer: Tracer) -> None:
        self._clock = app.broker_clock
        self._tracer = tracer

    async def __call__(self, job: Job, call_next: CallNext) -> Outcome:
        await self._tell_wait(job)
        message = job.message
        with self._tracer.processing(message, delivery=message.delivery) as span:
            job.message = carrying(message)
            outcome = await call_next(job)
            _tell_end(span, outcome)
        return outcome

    async def _tell_wait(self, job: Job) -> None:
        """Make a span of the time from when it was due until now, by the broker's clock."""
        message = job.message
        if message.issued_ms is None:
            return
        assert job.in_thread is not None
        try:
            now_s: float = await job.in_thread(self._clock.recent_s)
        except LinkError:
            return
        due_s = max(message.issued_ms / 1000.0, message.eta_s or 0.0)
        now_ns = time.time_ns()
        self._tracer.record(
            f"wait {message.queue}",
            began_ns=now_ns - int(max(0.0, now_s - due_s) * 1e9),
            ended_ns=now_ns,
            context=context_of(message),
        )


def _tell_end(span: Span, outcome: Outcome) -> None:
    if outcome.requeue:
        span.set_attribute("blimp.state", "GIVEN BACK")
        return
    span.set_attribute("blimp.state", outcome.state.value)
    if outcome.fault is not None and outcome.retry_in_s is None:
        fail(span, outcome.fault.exc_type, outcome.fault.text)
