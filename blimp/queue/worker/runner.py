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

from blimp.errors import LinkError, ResultError, WorkerLost
from blimp.queue.brokers.base import Completion
from blimp.queue.brokers.streams.deferred import BrokerLeft
from blimp.queue.context import TaskContext
from blimp.queue.protocol.message import AGAIN, to_json
from blimp.queue.protocol.outcome import Outcome, failure
from blimp.queue.protocol.record import Record, State
from blimp.queue.worker.job import Job
from blimp.queue.worker.middleware import chain, default_middleware
from blimp.queue.worker.middleware.once import begun_before, clear_begun, is_marked, mark_begun
from blimp.queue.worker.middleware.revoked import revoked
from blimp.queue.worker.outcome import outcome_of, timed_out, worker_lost
from blimp.queue.worker.pools import Place, place_of
from blimp.queue.worker.time_limits import Limits, limit_of

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.canvas.follow import After
    from blimp.queue.extensions import Observers
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.worker.acker import Acker


class Runner:
    """Runs jobs from many threads.

    stopping: a warm stop was asked for; tasks may look at it.
    abandoned: nothing is waited for any more: what is not acknowledged comes again.
    on_done: called with each job that has left the worker's hands.
    limits: watches the functions that may not run for ever.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        worker: str,
        stopping: threading.Event,
        abandoned: threading.Event,
        on_done: Callable[..., None],
        acker: Acker,
        limits: Limits,
        observers: Observers,
        log: Any,
    ) -> None:
        self._app = app
        self._limits = limits
        self._observers = observers
        self._worker = worker
        self._stopping = stopping
        self._abandoned = abandoned
        self._on_done = on_done
        self._acker = acker
        self._log = log
        self._chance = random.Random()
        self._is_extended = app.result_options.result_extended
        inner = default_middleware(app) if app.middleware is None else app.middleware
        self._chain = chain((*app.outer_middleware, *inner), self._call)

    async def run(self, job: Job) -> None:
        """Run `job` to its end. Never raises. `job.in_thread` must be set."""
        if not job.begin():
            return
        assert job.in_thread is not None
        if not job.task.options.acks_late:
            acked = await job.in_thread(self._ack_early, job)
            if not acked or job.is_lost:  # it is to run once at most: not here, then
                if job.finish():
                    self._on_done(job)
                return
        if AGAIN in job.message.headers:  # what it repeats may have ended here just now
            await job.in_thread(self._acker.wait_written)
        try:
            outcome = await self._through_chain(job)
        except Exception as error:  # fails closed: the function was not run, or its end is lost
            self._log.exception("middleware", task=job.task.name, id=job.message.id)
            outcome = failure(error, trace=traceback.format_exc())
        if outcome.retry_in_s is None and outcome.again_in_s is None and not outcome.requeue:
            self.conclude(job, outcome)
        else:  # the broker is asked something first
            await job.in_thread(self.conclude, job, outcome)

    def _ack_early(self, job: Job) -> bool:
        """Acknowledge a job before it runs; say whether that is known to be done.

        Where its broker is left for another, it goes back to that broker when it returns.
        """
        left: list[BrokerLeft] = []

        def ack() -> None:
            try:
                job.delivery.ack()
            except BrokerLeft as error:
                left.append(error)

        if not self._acker.until_done(ack):
            return False
        if left:
            self._acker.until_done(job.delivery.requeue)
            self._log.warning("left unrun", task=job.task.name, id=job.message.id)
        return not left

    async def _through_chain(self, job: Job) -> Outcome:
        """Pass the middleware; anew where the broker was away before the function was called."""
        assert job.in_thread is not None
        while True:
            try:
                return await self._chain(job)
            except LinkError as error:
                if job.is_called:
                    raise
                if job.lost.is_set() or self._abandoned.is_set():
                    return Outcome(state=State.PENDING, requeue=True)
                await job.in_thread(self._acker.wait_out, error)

    def conclude(self, job: Job, outcome: Outcome, *, is_stuck: bool = False) -> None:
        """Have the verdict written and the message acknowledged, and let the job go.

        is_stuck: its function runs on.
        """
        if not job.finish():
            return  # given back meanwhile, in a stop that would not wait
        job.outcome = outcome
        if self._observers and job.is_called:
            job.ended_s = self._app.clock.now_s()
        if job.is_lost:
            self._log.warning("result refused", task=job.task.name, id=job.message.id)
            self._on_done(job)
            return  # whoever has the message now says what became of it
        # Given back by its own verdict, it came to its end. What another began is not its own.
        may_begin = job.task.options.idempotent or (job.mark and not is_stuck)
        if outcome.requeue and is_marked(job.task.options) and may_begin:
            self._acker.until_done(clear_begun, self._app, job.message)
        endings: list[Completion] = []
        try:
            self._acker.until_done(lambda: endings.append(self._ending(job, outcome)))
        except Exception as error:
            self._log.exception("settle", task=job.task.name, id=job.message.id)
            reason = f"its end cannot be written: {error}"
            endings.append(
                Completion(
                    delivery=job.delivery,
                    message=job.message,
                    job=job,
                    acks=job.task.options.acks_late,
                    dead=reason,
                )
            )
        if endings:
            self._acker.settle(endings[0])
        else:
            self._on_done(job)

    def refuse(self, job: Job, outcome: Outcome) -> None:
        """End a job that waits, unless it begins just now."""
        if job.begin():
            self.conclude(job, outcome)

    def _ending(self, job: Job, outcome: Outcome) -> Completion:
        """Return what the broker is to be told. Raises LinkError where it must be asked first."""
        late = job.task.options.acks_late
        if outcome.requeue:
            again = msgspec.structs.replace(job.message, delivery=job.message.delivery + 1)
            return Completion(
                delivery=job.delivery,
                message=job.message,
                job=job,
                requeue=late,
                next=() if late else (again,),
                acks=late,
            )
        if outcome.again_in_s is not None:
            eta_s = self._app.broker_clock.now_s() + outcome.again_in_s
            return Completion(
                delivery=job.delivery,
                message=job.message,
                job=job,
                next=(msgspec.structs.replace(job.message, eta_s=eta_s),),
                acks=late,
            )
        found, outcome = self._follow(job, outcome)
        record, told = self._encode(job, outcome, found)
        if told is not outcome:
            outcome = told
            found, _ = self._follow(job, outcome)
        job.outcome = outcome
        canvas = None
        if found is not None:
            from blimp.queue.canvas.follow import update_of

            canvas = update_of(self._app, found, outcome)
        return Completion(
            delivery=job.delivery,
            message=job.message,
            job=job,
            record=record,
            next=(*self._tries(job, outcome), *outcome.next, *(found.messages if found else ())),
            acks=late,
            dead=outcome.dead,
            chords=canvas,
        )

    def _tries(self, job: Job, outcome: Outcome) -> tuple[TaskMessage, ...]:
        """Return the next try where there is to be one."""
        if outcome.retry_in_s is None:
            return ()
        eta_s = self._app.broker_clock.now_s() + outcome.retry_in_s
        message = job.message
        return (
            msgspec.structs.replace(
                message, delivery=message.delivery + 1, retries=message.retries + 1, eta_s=eta_s
            ),
        )

    def _follow(self, job: Job, outcome: Outcome) -> tuple[After | None, Outcome]:
        """Return what follows the task's end; of most tasks, nothing."""
        if not job.message.is_followed and outcome.replacement is None:
            return None, outcome
        from blimp.queue.canvas.follow import follow

        found, outcome = follow(self._app, job.message, outcome, previous=job.previous)
        for complaint in found.complaints:
            self._log.error("errback", task=job.task.name, id=job.message.id, reason=complaint)
        return found, outcome

    def _encode(
        self, job: Job, outcome: Outcome, found: After | None = None
    ) -> tuple[bytes, Outcome]:
        """Return the result as it is stored, nothing where it is not to be; and what it says.

        A value that cannot be written, or cannot be handed to a callback, is a failure.
        """
        if outcome.settled or outcome.replacement is not None:
            return b"", outcome
        try:
            return self._record_bytes(job, outcome, found), outcome
        except Exception as error:  # a result may be of a class whose own methods raise
            if not isinstance(error, ResultError):
                error = ResultError(f"{job.task.name} returned what cannot be written: {error!r}")
            self._log.error("result", task=job.task.name, id=job.message.id, reason=str(error))
            outcome = failure(error)
            return self._record_bytes(job, outcome), outcome

    def _record_bytes(self, job: Job, outcome: Outcome, found: After | None = None) -> bytes:
        if self._app.results is not None and not _is_ignored(job):
            return self._app.results.encode(self._record(job, outcome, found))
        if job.message.is_followed and outcome.state is State.SUCCESS:
            to_json(outcome.result)
        elif job.message.chord and outcome.fault is not None:
            to_json(outcome.fault.document())
        return b""

    def _record(self, job: Job, outcome: Outcome, found: After | None = None) -> Record:
        return Record(
            id=job.message.id,
            state=outcome.state,
            result=outcome.result,
            fault=outcome.fault,
            traceback=outcome.traceback,
            date_done=datetime.fromtimestamp(self._app.clock.wall_s(), UTC).isoformat(),
            name=job.task.name,
            worker=self._worker,
            retries=job.message.retries,
            queue=job.message.queue,
            args=list(job.message.args) if self._is_extended else None,
            kwargs=job.message.kwargs if self._is_extended else None,
            parent_id=job.message.parent_id,
            group_id=job.message.group_id,
            children=tuple(node.as_tuple() for node in found.children) if found else (),
        )

    # --- the innermost link of the chain -----------------------------------------------------

    async def _call(self, job: Job) -> Outcome:
        assert job.in_thread is not None
        options = job.task.options
        if is_marked(options) and not await job.in_thread(mark_begun, self._app, job):
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
                revoked=job.revoked,
                previous=job.previous,
                grant=job.grant,
            )
            args = (context, *args)
        try:
            result = await self._function(job, args)
        except BaseException as error:  # a task may raise SystemExit; the worker goes on
            if isinstance(error, asyncio.CancelledError) and self._abandoned.is_set():
                raise  # cut off by the end of the worker: the message comes again
            return self._outcome_of(job, error)
        return (
            result if isinstance(result, Outcome) else Outcome(state=State.SUCCESS, result=result)
        )

    async def _function(self, job: Job, args: tuple[Any, ...]) -> Any:
        assert job.call is not None
        if job.grant is not None:
            job.grant.check()
        job.is_called = True
        job.started_s = self._app.clock.now_s()
        if self._observers:
            self._observers.started(job)
        limit = limit_of(job)
        # What can be cancelled needs no interruption to be revoked.
        revocable = place_of(job.task) is Place.THREAD
        if limit is None:
            return await job.call.run(args, interruptible=revocable)
        with self._limits.watch(job, limit):
            return await job.call.run(args, interruptible=revocable or limit.soft_s is not None)

    def _outcome_of(self, job: Job, error: BaseException) -> Outcome:
        if job.is_revoked:
            return revoked("while it ran")
        if job.timed_out_s is not None and isinstance(error, asyncio.CancelledError | WorkerLost):
            return timed_out(job.timed_out_s, task=job.task)
        if isinstance(error, WorkerLost):
            self._log.error("worker lost", task=job.task.name, id=job.message.id, reason=str(error))
            return worker_lost(error, task=job.task, delivery=job.message.delivery)
        return outcome_of(error, task=job.task, message=job.message, chance=self._chance)

    def _started(self, job: Job) -> None:
        if self._app.results is None:
            return
        record = msgspec.structs.replace(
            self._record(job, Outcome(state=State.STARTED, result={"hostname": self._worker})),
            date_done=None,
        )
        # Only told, not relied on: a broker that is away must not keep a ship from flying.
        with contextlib.suppress(LinkError, ResultError):
            self._app.results.store(record)


def _is_ignored(job: Job) -> bool:
    return job.task.options.ignore_result or bool(job.message.ignore_result)
