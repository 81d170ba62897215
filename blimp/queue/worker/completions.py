"""From what a function did to what the broker writes.

First the outcome of a function that raised, was cut off or ran out of time; then the completion
of any outcome: the record, and the messages that follow. Tested by test_outcomes.py.
"""

from __future__ import annotations

import contextlib
import math
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import (
    Ignore,
    Interrupted,
    MessageError,
    Refused,
    Reject,
    Replace,
    ResultError,
    Retry,
    SoftTimeLimitExceeded,
    TimeLimitExceeded,
    WorkerLost,
)
from blimp.queue.brokers.base import MOST_DELIVERIES, Completion
from blimp.queue.protocol.message import to_json
from blimp.queue.protocol.record import (
    FINAL,
    Outcome,
    Record,
    State,
    failure,
    fault_of,
    repr_of,
    shortened,
    text_of,
    trace_of,
)
from blimp.queue.protocol.signing import SEAL
from blimp.queue.protocol.unique import claim_of
from blimp.queue.redis.keys import began_key
from blimp.queue.retry import is_given_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blimp.queue.app import TaskApp
    from blimp.queue.extensions import Followed
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.protocol.unique import UniqueClaim
    from blimp.queue.results.backend import ResultBackend
    from blimp.queue.task import Task
    from blimp.queue.worker.job import Job

RETRY_DELAY_S = 1.0  # of a retry without a time
FAILED = (State.FAILURE, State.REFUSED, State.INTERRUPTED)  # for good
MOST_REASON = 1000  # letters of why a message is a dead letter
# Of a failure that the backend refused: half of its limit, then what any backend takes.
SHORTER_BYTES = (10_000, 1000)


class Completions:
    """Builds the completions of one worker. Thread-safe."""

    def __init__(self, *, app: TaskApp, worker: str, log: Any) -> None:
        self._app = app
        self._worker = worker
        self._log = log
        self._is_extended = app.result_options.result_extended

    def build(self, job: Job, outcome: Outcome) -> Completion:
        """Return what the broker writes of `outcome`.

        Sets `job.outcome`, which differs if the result cannot be written. Raises LinkError if
        the broker must be asked first and does not answer.
        """
        message = job.message
        if outcome.requeue:
            if job.task.options.acks_late:
                _forget(job)  # the server may make it a dead letter, or revoke it, in a new entry
                return _completion(job, requeue=True)
            again = msgspec.structs.replace(message, delivery=message.delivery + 1)
            return _completion(job, next=(again,))
        if outcome.again_in_s is not None:
            eta_s = self._app.broker_clock.now_s() + outcome.again_in_s
            return _completion(job, next=(msgspec.structs.replace(message, eta_s=eta_s),))
        if message.is_followed or outcome.replacement is not None:
            return self._build_followed(job, outcome)
        record, outcome = self._encode(job, outcome, None)
        job.outcome = outcome
        return _end(job, outcome, record=record, next=self._next(job, outcome))

    def could_not_be_built(self, job: Job, error: Exception) -> Completion:
        """Return the completion of a job whose own raised `error`: a dead letter."""
        reason = f"its end cannot be written: {error}"
        return _end(job, msgspec.structs.replace(failure(error), dead=reason))

    def record(self, job: Job, outcome: Outcome, found: Followed | None = None) -> Record:
        """Return `outcome` as it is stored. found: what follows it.

        Of a task that failed for good the arguments are stored, too: it may be sent again.
        """
        message = job.message
        has_arguments = self._is_extended or outcome.state in FAILED
        return Record(
            id=message.id,
            state=outcome.state,
            result=outcome.result,
            fault=outcome.fault,
            traceback=outcome.traceback,
            date_done=datetime.fromtimestamp(self._app.clock.wall_s(), UTC).isoformat(),
            name=job.task.name,
            worker=self._worker,
            retries=message.retries,
            queue=message.queue,
            args=list(message.args) if has_arguments else None,
            kwargs=message.kwargs if has_arguments else None,
            parent_id=message.parent_id,
            group_id=message.group_id,
            children=tuple(node.as_tuple() for node in found.children) if found else (),
        )

    def _build_followed(self, job: Job, outcome: Outcome) -> Completion:
        found, outcome = self._follow(job, outcome)
        record, stored = self._encode(job, outcome, found)
        if stored is not outcome:
            outcome = stored
            found, _ = self._follow(job, outcome)
        job.outcome = outcome
        return _end(
            job,
            outcome,
            record=record,
            next=(*self._next(job, outcome), *found.messages),
            follow_up=self._app.follow_ups.update(found, outcome),
        )

    def _next(self, job: Job, outcome: Outcome) -> tuple[TaskMessage, ...]:
        """Return the next try, if there is to be one, and what the outcome itself sends."""
        if outcome.retry_in_s is None:
            return outcome.next
        message = job.message
        again = msgspec.structs.replace(
            message,
            delivery=message.delivery + 1,
            retries=message.retries + 1,
            eta_s=self._app.broker_clock.now_s() + outcome.retry_in_s,
            **outcome.changes,
        )
        return (again, *outcome.next)

    def _follow(self, job: Job, outcome: Outcome) -> tuple[Followed, Outcome]:
        """Return what follows the task's end, and its end: a canvas may fail it."""
        found, outcome = self._app.follow_ups.follow(job.message, outcome, previous=job.previous)
        for complaint in found.complaints:
            self._log.error("errback", task=job.task.name, id=job.message.id, reason=complaint)
        return found, outcome

    def _encode(self, job: Job, outcome: Outcome, found: Followed | None) -> tuple[bytes, Outcome]:
        """Return the record, b"" if none is stored, and the outcome that it says.

        A value that cannot be written, or cannot be given to a callback, is a failure. A failure
        that is too long is cut, and stays what it is.
        """
        if outcome.settled or outcome.replacement is not None:
            return b"", outcome
        try:
            return self._record_bytes(job, outcome, found), outcome
        except Exception as error:  # a result may be of a class whose own methods raise
            if outcome.fault is not None:
                return self._encode_shorter(job, outcome, found)
            if not isinstance(error, ResultError):
                error = ResultError(
                    f"{job.task.name} returned what cannot be written: {repr_of(error)}"
                )
            self._log.error("result", task=job.task.name, id=job.message.id, reason=str(error))
            outcome = failure(error)
            return self._record_bytes(job, outcome, None), outcome

    def _encode_shorter(
        self, job: Job, outcome: Outcome, found: Followed | None
    ) -> tuple[bytes, Outcome]:
        """Return what `_encode` does, of a failure. Raises ResultError if no length will do."""
        *several, least = (self._app.result_limit_bytes // 2, *SHORTER_BYTES)
        for most_bytes in several:
            shorter = shortened(outcome, most_bytes=most_bytes)
            with contextlib.suppress(ResultError):
                return self._record_bytes(job, shorter, found), shorter
        shorter = shortened(outcome, most_bytes=least)
        return self._record_bytes(job, shorter, found), shorter

    def _record_bytes(self, job: Job, outcome: Outcome, found: Followed | None) -> bytes:
        message = job.message
        results: ResultBackend | None = self._app.results
        if results is not None and not (job.task.options.ignore_result or message.ignore_result):
            return results.encode(self.record(job, outcome, found))
        if message.is_followed and outcome.state is State.SUCCESS:
            to_json(outcome.result)
        elif message.chord and outcome.fault is not None:
            to_json(outcome.fault.document())
        return b""


def _completion(job: Job, **fields: Any) -> Completion:
    acks = job.task.options.acks_late
    return Completion(delivery=job.delivery, message=job.message, job=job, acks=acks, **fields)


def _end(
    job: Job, outcome: Outcome, *, next: Sequence[TaskMessage] = (), **fields: Any
) -> Completion:
    """Return a completion after which this try does not come again: its mark may expire.

    Its claim is free, too, unless the task goes on in what comes next.
    """
    mark = mark_key(job.message) if job.task.options.begins_once else ""
    if outcome.dead:
        _forget(job)
    goes_on = any(one.id == job.message.id for one in next)
    frees = None if goes_on else freed_claim(job, outcome)
    return _completion(
        job,
        mark=mark,
        next=tuple(next),
        dead=outcome.dead,
        frees=frees,
        # A dead letter may be sent again, and goes on then.
        forgets_steps=job.has_steps and not goes_on and not outcome.dead,
        **fields,
    )


def freed_claim(job: Job, outcome: Outcome) -> UniqueClaim | None:
    """Return the claim that is free after this end of a unique task, None for none."""
    claim = claim_of(job.message.headers)
    # Settled, it is a copy of a message that runs, the end of one that has ended, or Ignore.
    is_copy = outcome.settled and outcome.state not in FINAL and not job.is_called
    if claim is None or is_copy or claim.outlives(success=outcome.state is State.SUCCESS):
        return None
    return claim


def _forget(job: Job) -> None:
    """Accept this message in another entry, too: this one is given up."""
    signer = job.task.app.signer
    if signer is not None:
        signer.window.forget(job.message.headers.get(SEAL))


def mark_key(message: TaskMessage) -> str:
    """Return the key that says that this try of a task has begun."""
    return began_key(message.id, message.retries, message.nesting)


def outcome_of(
    error: BaseException, *, task: Task, message: TaskMessage, chance: random.Random
) -> Outcome:
    """Return what `error`, raised by the function of `task`, means for `message`."""
    options = task.options
    if isinstance(error, Refused):
        return failure(error, state=State.REFUSED)
    if isinstance(error, Interrupted):
        return failure(error, state=State.INTERRUPTED)
    if isinstance(error, Ignore):
        return Outcome(state=State.STARTED, settled=True)
    if isinstance(error, Reject):
        reason = "" if error.requeue else text_of(error)[:MOST_REASON] or "rejected by its task"
        return Outcome(
            state=State.FAILURE, fault=fault_of(error), requeue=error.requeue, dead=reason
        )
    if isinstance(error, Replace):
        return Outcome(state=State.PENDING, replacement=error.signature)
    if isinstance(error, Retry):
        delay_s: Any = RETRY_DELAY_S if error.countdown_s is None else error.countdown_s
        try:
            if math.isfinite(delay_s):
                return _retry(error, max(0.0, float(delay_s)), changes=error.changes)
        except (TypeError, OverflowError):
            pass
        what = f"{task.name}: the countdown of a retry is {repr_of(delay_s):.80}"
        error = MessageError(f"{what}, must be a number of seconds")
    trace = trace_of(error)
    tries_left = options.max_retries is None or message.retries < options.max_retries
    if isinstance(error, options.autoretry_for) and tries_left and not is_given_up(error):
        delay_s = options.backoff.delay_s(message.retries, chance=chance)
        return _retry(error, delay_s, trace=trace)
    is_timeout = isinstance(error, SoftTimeLimitExceeded | TimeLimitExceeded)
    acks = options.acks_on_timeout if is_timeout else options.acks_on_failure
    outcome = failure(error, trace=trace)
    return outcome if acks else msgspec.structs.replace(outcome, requeue=options.acks_late)


def timed_out(limit_s: float, *, task: Task) -> Outcome:
    """Return the outcome of a job that was ended at its hard time limit."""
    error = TimeLimitExceeded(f"{task.name} ran longer than its time limit of {limit_s:g} s")
    requeue = task.options.acks_late and not task.options.acks_on_timeout
    return msgspec.structs.replace(failure(error), requeue=requeue)


def worker_lost(error: WorkerLost, *, task: Task, delivery: int = 1) -> Outcome:
    """Return the outcome of a job whose process died, at its `delivery`-th delivery.

    It runs again, unless the task's options exclude that; not for ever, with any broker.
    """
    options = task.options
    is_poison = delivery >= MOST_DELIVERIES and options.idempotent
    if options.reject_on_worker_lost or is_poison:
        return msgspec.structs.replace(failure(error), dead=str(error))
    if not options.idempotent:
        interrupted = Interrupted(f"{task.name} had begun: {error}; it is not run again")
        return failure(interrupted, state=State.INTERRUPTED)
    return msgspec.structs.replace(failure(error), requeue=options.acks_late)


def _retry(
    error: BaseException,
    delay_s: float,
    *,
    trace: str | None = None,
    changes: dict[str, Any] | None = None,
) -> Outcome:
    return Outcome(
        state=State.RETRY,
        fault=fault_of(error),
        traceback=trace,
        retry_in_s=delay_s,
        changes=changes or {},
    )
