"""Running one job: through the middleware, into the function, and to the acker.

Tested by test_outcomes.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import ConfigError, LeaseLost, LinkError, ResultError, WorkerLost
from blimp.queue.brokers.base import BrokerLeft, Completion
from blimp.queue.context import TaskContext
from blimp.queue.log import running_message
from blimp.queue.protocol.message import AGAIN
from blimp.queue.protocol.record import Outcome, State, failure, running_task, trace_of
from blimp.queue.protocol.unique import claim_of
from blimp.queue.steps import KEEP_S, Steps, here
from blimp.queue.task import check_returned
from blimp.queue.worker.aside import MISFITS, AsideRule
from blimp.queue.worker.completions import outcome_of, timed_out, worker_lost
from blimp.queue.worker.job import Limits, Place, Stage, limits_of
from blimp.queue.worker.middleware import (
    begun_before,
    chain,
    clear_begun,
    default_middleware,
    mark_begun,
    revoked,
)

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.extensions import Observers
    from blimp.queue.worker.acker import Acker
    from blimp.queue.worker.completions import Completions
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.shutdown import Stops

QUIET = (State.SUCCESS, State.PENDING)  # a log line for each costs more than a short task
FAILED = (State.FAILURE, State.INTERRUPTED)


class Runner:
    """Runs jobs from many threads.

    stops: tasks may look whether it stops; once it is abandoned, nothing is waited for any
        more, and what is not acknowledged is delivered again.
    on_done: called with each job that is no longer in flight.
    limits: watches the functions that have a time limit.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        worker: str,
        stops: Stops,
        on_done: Callable[..., None],
        acker: Acker,
        completions: Completions,
        aside: AsideRule,
        limits: Limits,
        observers: Observers,
        log: Any,
    ) -> None:
        self._app = app
        self._limits = limits
        self._observers = observers
        self._worker = worker
        self._stops = stops
        self._on_done = on_done
        self._acker = acker
        self._completions = completions
        self._log = log
        self._random = random.Random()
        self._aside = aside
        inner = default_middleware(app) if app.middleware is None else app.middleware
        self._inner = chain(tuple(inner), self._call)
        self._chain = chain(app.outer_middleware, self._logged)

    async def run(self, job: Job) -> None:
        """Run `job` to its end. Never raises. `job.in_thread` must be set."""
        if not job.begin():
            return
        running_message.set(job.message)
        assert job.in_thread is not None
        if not job.task.options.acks_late:
            acked = await job.in_thread(self._ack_early, job)
            if not acked or job.is_lost:  # at most once: not here, then
                if job.finish():
                    self._on_done(job)
                return
        if AGAIN in job.message.headers:  # what it repeats may have ended here just now
            await job.in_thread(self._acker.wait_written)
        while True:
            try:
                outcome = await self._chain(job)
            except LinkError as error:
                if job.is_called:
                    outcome = self._middleware_failed(job, error)
                elif job.lost.is_set() or self._stops.abandoned.is_set():
                    outcome = Outcome(state=State.PENDING, requeue=True)
                else:  # no broker before the function was called: the chain starts over
                    await job.in_thread(self._acker.wait_out, error)
                    continue
            except Exception as error:
                outcome = self._middleware_failed(job, error)
            break
        if outcome.retry_in_s is None and outcome.again_in_s is None and not outcome.requeue:
            self.conclude(job, outcome)
        else:  # the broker is asked something first
            await job.in_thread(self.conclude, job, outcome)

    def conclude(self, job: Job, outcome: Outcome, *, is_stuck: bool = False) -> None:
        """Have `outcome` written and the message acknowledged. is_stuck: the function runs on."""
        if not job.finish():
            return  # requeued meanwhile, in a cold stop
        job.outcome = outcome
        if job.is_called and self._observers.extensions:
            job.ended_s = self._app.clock.now_s()
        if job.is_lost:
            self._log.warning("result refused", task=job.task.name, id=job.message.id)
            self._on_done(job)
            return  # the worker that has the message now writes its end
        # A job that ends with a requeue did end. What another delivery began is not its own.
        may_begin = job.task.options.idempotent or (job.mark and not is_stuck)
        if outcome.requeue and job.task.options.begins_once and may_begin:
            self._acker.until_done(clear_begun, self._app, job.message)
        completion = self._completion(job, outcome)
        if completion is None:
            self._on_done(job)
        else:
            self._acker.put(completion)

    def refuse(self, job: Job, outcome: Outcome) -> None:
        """End a job that waits, unless it begins just now."""
        if job.begin():
            self.conclude(job, outcome)

    def _completion(self, job: Job, outcome: Outcome) -> Completion | None:
        """Return what the broker writes; None if the worker is abandoned before that is known."""
        while True:
            try:
                return self._completions.build(job, outcome)
            except LinkError as error:
                if self._acker.wait_out(error):
                    return None
            except Exception as error:
                self._log.exception("completion", task=job.task.name, id=job.message.id)
                return self._completions.could_not_be_built(job, error)

    def _ack_early(self, job: Job) -> bool:
        """Acknowledge a job before it runs; return whether that is known to be done.

        If its broker was left for another meanwhile, it is requeued there when that returns.
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

    def _middleware_failed(self, job: Job, error: Exception) -> Outcome:
        """Fail closed: the function was not run, or its outcome is lost."""
        self._log.exception("middleware", task=job.task.name, id=job.message.id)
        return failure(error, trace=trace_of(error))

    # --- the chain: outer middleware, log, inner middleware, function --------------------------

    async def _logged(self, job: Job) -> Outcome:
        """Pass the inner middleware and log the outcome, inside of what extensions wrap."""
        began_s = self._app.clock.now_s()
        outcome = await self._inner(job)
        if outcome.fault is not None and outcome.fault.exc_type in MISFITS:
            assert job.in_thread is not None
            try:
                job.aside = await job.in_thread(self._aside.misfit, job)
            except LinkError:  # nothing has begun: it is asked again at the next delivery
                return Outcome(state=State.PENDING, requeue=True)
            if job.aside is not None:
                return Outcome(state=State.PENDING, requeue=True)
        is_quiet = outcome.state in QUIET
        if is_quiet and self._app.log_level != "debug":
            return outcome
        fields: dict[str, Any] = {
            "task": job.task.name,
            "id": job.message.id,
            "state": outcome.state.value,
            "ms": round((self._app.clock.now_s() - began_s) * 1000.0, 3),
            "delivery": job.message.delivery,
        }
        if outcome.fault is not None:
            fields["reason"] = f"{outcome.fault.exc_type}: {outcome.fault.text}"
        if outcome.state in FAILED and not outcome.requeue:
            self._log.error("task", **fields, traceback=outcome.traceback or "")
        else:
            (self._log.debug if is_quiet else self._log.info)("task", **fields)
        return outcome

    async def _call(self, job: Job) -> Outcome:
        """Call the function: the innermost link of the chain."""
        options, call = job.task.options, job.call
        assert job.in_thread is not None
        assert call is not None
        if options.begins_once and not await job.in_thread(mark_begun, self._app, job):
            return begun_before(job)
        claim = claim_of(job.message.headers)
        # Of a misfit that may be set aside it lasts: its function is not called.
        if (
            claim is not None
            and claim.lasts == "start"
            and job.task.can_take(job.message.args, job.message.kwargs)
        ):
            await job.in_thread(job.delivery.free, claim, job.message.id)
        if options.track_started:
            await job.in_thread(self._store_started, job)
        args = job.message.args
        if options.bind:
            args = (self._context(job), *args)
        try:
            if job.grant is not None and options.requires is not None:
                job.grant.check()
            job.is_called = True
            job.started_s = self._app.clock.now_s()
            if self._observers.extensions:
                self._observers.started(job)
            running_task.set(job.task.name)
            hard_s, soft_s = limits_of(job)
            # A coroutine and a process are cancelled: only a thread must be interrupted.
            interruptible = job.place is Place.THREAD
            if hard_s is None and soft_s is None:
                result = await call.run(job, args, interruptible=interruptible)
            else:
                with self._limits.watch(job, hard_s=hard_s, soft_s=soft_s, on_stuck=self._give_up):
                    interruptible = interruptible or soft_s is not None
                    result = await call.run(job, args, interruptible=interruptible)
            check_returned(job.task.name, result)
        except BaseException as error:  # a task may raise SystemExit; the worker goes on
            if isinstance(error, asyncio.CancelledError) and self._stops.abandoned.is_set():
                raise  # cut off by the end of the worker: the message is delivered again
            return self._outcome_of(job, error)
        finally:
            running_task.set("")
        return (
            result if isinstance(result, Outcome) else Outcome(state=State.SUCCESS, result=result)
        )

    def _context(self, job: Job) -> TaskContext:
        return TaskContext(
            task=job.task,
            message=job.message,
            worker=self._worker,
            stopping=self._stops.stopping,
            lost=job.lost,
            revoked=job.revoked,
            previous=job.previous,
            grant=job.grant,
            steps=Steps(
                task=job.task,
                ask=partial(self._ask_steps, job),
                in_thread=job.in_thread or here,
            ),
        )

    def _ask_steps(self, job: Job, name: str = "", result: bytes = b"") -> dict[str, bytes]:
        """Read what the steps of a job returned, or store one. Waits for the broker.

        Raises LeaseLost, ConfigError; BrokerLeft if another broker is in use.
        """
        if not (self._app.capabilities.keeps_steps and job.task.options.acks_late):
            raise ConfigError(
                f"{job.task.name}: steps need a Redis broker with streams, and acks_late=True"
            )
        job.has_steps = True
        keep_s = max(KEEP_S, self._app.result_options.keep_s)
        answers: list[dict[str, bytes] | BrokerLeft | None] = []

        def ask() -> None:
            try:
                step = job.delivery.step
                answers.append(None if job.is_lost else step(job.message, keep_s, name, result))
            except BrokerLeft as error:
                answers.append(error)

        self._acker.until_done(ask)
        answer = answers[0] if answers else None  # none if the worker is abandoned
        if isinstance(answer, BrokerLeft):
            raise answer
        if answer is not None:
            return answer
        step = f"step {name!r}" if name else "its steps"
        raise LeaseLost(f"{job.task.name}: {step}: this worker does not hold its message any more")

    def _outcome_of(self, job: Job, error: BaseException) -> Outcome:
        if job.is_revoked:
            return revoked("while it ran")
        if job.timed_out_s is not None and isinstance(error, asyncio.CancelledError | WorkerLost):
            return timed_out(job.timed_out_s, task=job.task)
        if isinstance(error, WorkerLost):
            self._log.error("worker lost", task=job.task.name, id=job.message.id, reason=str(error))
            return worker_lost(error, task=job.task, delivery=job.message.delivery)
        return outcome_of(error, task=job.task, message=job.message, chance=self._random)

    def _give_up(self, job: Job) -> None:
        """End a job whose function cannot be ended, and restart the process."""
        # Not in the alarms' thread: the broker may be slow.
        threading.Thread(target=self._end_stuck, args=(job,), name="give-up", daemon=True).start()

    def _end_stuck(self, job: Job) -> None:
        if job.stage is Stage.DONE:
            return  # its function has ended by itself
        assert job.timed_out_s is not None
        name, limit_s = job.task.name, job.timed_out_s
        self._log.error("stuck", task=name, id=job.message.id, limit_s=limit_s)
        self._stops.has_stuck = True
        self.conclude(job, timed_out(limit_s, task=job.task))
        self._stops.restart(f"{name} is stuck past its time limit of {limit_s:g} s")

    def note_asked_to_end(self, job: Job) -> None:
        """Store that a thread was asked to end: what it calls in C it ends first."""
        self._store_started(job, revoked="asked to end; its thread ends its call into C first")

    def _store_started(self, job: Job, **details: str) -> None:
        if self._app.results is None:
            return
        started = Outcome(state=State.STARTED, result={"hostname": self._worker, **details})
        record = msgspec.structs.replace(self._completions.record(job, started), date_done=None)
        # Nothing relies on it: an unreachable broker must not keep a ship from flying.
        with contextlib.suppress(LinkError, ResultError):
            self._app.results.store(record)
