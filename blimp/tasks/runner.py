"""Running one job: through the middleware, into the function, then written and acknowledged.

Nothing ends here but in the settler, which tells the broker of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import (
    Interrupted,
    LinkError,
    MessageError,
    Refused,
    Reject,
    ResultError,
    Retry,
)
from blimp.tasks.job import Ending, Job, Verdict, failure, fault_of
from blimp.tasks.middleware import chain
from blimp.tasks.middleware.once import begun_before, mark_begun
from blimp.tasks.results.record import Record, State
from blimp.tasks.task import TaskContext

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp
    from blimp.tasks.settler import Settler

RETRY_DELAY_S = 1.0  # for a task that asks for a retry and does not say when


class Runner:
    """Runs jobs from many threads.

    stopping: a warm stop was asked for; tasks may look at it.
    abandoned: nothing is waited for any more: what is not acknowledged comes again.
    on_done: called with each job that has left the worker's hands.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        worker: str,
        stopping: threading.Event,
        abandoned: threading.Event,
        on_done: Callable[[Job], None],
        settler: Settler,
        log: Any,
    ) -> None:
        self._app = app
        self._worker = worker
        self._stopping = stopping
        self._abandoned = abandoned
        self._on_done = on_done
        self._settler = settler
        self._log = log
        self._chance = random.Random()
        self._chain = chain(app.middleware, self._call)

    async def run(self, job: Job) -> None:
        """Run `job` to its end. Never raises. `job.in_thread` must be set."""
        if not job.begin():
            return
        assert job.in_thread is not None
        if not job.task.options.acks_late:
            await job.in_thread(self._settler.until_done, job.delivery.ack)
        try:
            verdict = await self._chain(job)
        except Exception as error:  # fails closed: the function was not run, or its end is lost
            self._log.exception("middleware", task=job.task.name, id=job.message.id)
            verdict = failure(error, trace=traceback.format_exc())
        await job.in_thread(self.conclude, job, verdict)

    def conclude(self, job: Job, verdict: Verdict) -> None:
        """Have the verdict written and the message acknowledged, and let the job go."""
        if not job.finish():
            return  # given back meanwhile, in a stop that would not wait
        if job.lost.is_set():
            self._log.warning("result refused", task=job.task.name, id=job.message.id)
            self._on_done(job)
            return  # whoever has the message now says what became of it
        endings: list[Ending] = []
        self._settler.until_done(lambda: endings.append(self._ending(job, verdict)))
        if endings:
            self._settler.settle(endings[0])
        else:
            self._on_done(job)

    def _ending(self, job: Job, verdict: Verdict) -> Ending:
        """Return what the broker is to be told. Raises LinkError where it must be asked first."""
        late = job.task.options.acks_late
        again = msgspec.structs.replace(job.message, delivery=job.message.delivery + 1)
        if verdict.give_back:
            return Ending(job=job, give_back=late, next=() if late else (again,), acks=late)
        following = verdict.next
        if verdict.retry_in_s is not None:
            eta_s = self._app.broker_clock.now_s() + verdict.retry_in_s
            following = (
                msgspec.structs.replace(again, retries=again.retries + 1, eta_s=eta_s),
                *following,
            )
        return Ending(
            job=job,
            record=b"" if verdict.settled else self._encode(job, verdict),
            next=following,
            acks=late,
            dead=verdict.dead,
        )

    def _encode(self, job: Job, verdict: Verdict) -> bytes:
        """Return the result as it is stored; nothing where it is not to be."""
        if self._app.results is None or _is_ignored(job):
            return b""
        try:
            return self._app.results.encode(self._record(job, verdict))
        except ResultError as error:
            self._log.error("result", task=job.task.name, id=job.message.id, reason=str(error))
            return self._app.results.encode(self._record(job, failure(error)))

    def _record(self, job: Job, verdict: Verdict) -> Record:
        return Record(
            id=job.message.id,
            state=verdict.state,
            result=verdict.result,
            fault=verdict.fault,
            traceback=verdict.traceback,
            date_done=datetime.fromtimestamp(self._app.clock.wall_s(), UTC).isoformat(),
            name=job.task.name,
            worker=self._worker,
            retries=job.message.retries,
            queue=job.message.queue,
            parent_id=job.message.parent_id,
            group_id=job.message.group_id,
        )

    # --- the innermost link of the chain -----------------------------------------------------

    async def _call(self, job: Job) -> Verdict:
        assert job.in_thread is not None
        options = job.task.options
        if not options.idempotent and not await job.in_thread(mark_begun, self._app, job.message):
            return begun_before(job)
        if options.track_started:
            await job.in_thread(self._started, job)
        args = job.message.args
        if options.bind:
            context = TaskContext(
                task=job.task,
                message=job.message,
                worker=self._worker,
                stopping=self._stopping,
                lost=job.lost,
                previous=job.previous,
            )
            args = (context, *args)
        try:
            job.task.check_arguments(args, job.message.kwargs)
        except MessageError as error:
            return failure(error)
        try:
            result = job.task.function(*args, **job.message.kwargs)
            if job.task.is_async:
                job.is_cancellable = True
                try:
                    result = await result
                finally:
                    job.is_cancellable = False
        except BaseException as error:  # a task may raise SystemExit; the worker goes on
            if isinstance(error, asyncio.CancelledError) and self._abandoned.is_set():
                raise  # cut off by the end of the worker: the message comes again
            return self._judge(job, error)
        return Verdict(state=State.SUCCESS, result=result)

    def _judge(self, job: Job, error: BaseException) -> Verdict:
        options = job.task.options
        if isinstance(error, Refused):
            return failure(error, state=State.REFUSED)
        if isinstance(error, Interrupted):
            return failure(error, state=State.INTERRUPTED)
        if isinstance(error, Reject):
            reason = "" if error.requeue else str(error) or "rejected by its task"
            return Verdict(
                state=State.FAILURE, fault=fault_of(error), give_back=error.requeue, dead=reason
            )
        if isinstance(error, Retry):
            delay_s = error.countdown_s
            return self._retry(error, RETRY_DELAY_S if delay_s is None else max(0.0, delay_s))
        trace = "".join(traceback.format_exception(error))
        tries_left = options.max_retries is None or job.message.retries < options.max_retries
        if isinstance(error, options.autoretry_for) and tries_left:
            delay_s = options.backoff.delay_s(job.message.retries, chance=self._chance)
            return self._retry(error, delay_s, trace=trace)
        return failure(error, trace=trace)

    def _retry(self, error: BaseException, delay_s: float, *, trace: str | None = None) -> Verdict:
        return Verdict(
            state=State.RETRY, fault=fault_of(error), traceback=trace, retry_in_s=delay_s
        )

    def _started(self, job: Job) -> None:
        if self._app.results is None:
            return
        record = msgspec.structs.replace(
            self._record(job, Verdict(state=State.STARTED, result={"hostname": self._worker})),
            date_done=None,
        )
        # Only told, not relied on: a broker that is away must not keep a ship from flying.
        with contextlib.suppress(LinkError):
            self._app.results.store(record)


def _is_ignored(job: Job) -> bool:
    return job.task.options.ignore_result or bool(job.message.ignore_result)
