"""The outcome of a job whose function raised, was cut off, or ran out of time."""

from __future__ import annotations

import random
import traceback
from typing import TYPE_CHECKING

import msgspec

from blimp.errors import (
    Interrupted,
    Refused,
    Reject,
    Replace,
    Retry,
    SoftTimeLimitExceeded,
    TimeLimitExceeded,
    WorkerLost,
)
from blimp.queue.brokers.base import MOST_DELIVERIES
from blimp.queue.protocol.fault import fault_of
from blimp.queue.protocol.outcome import Outcome, failure
from blimp.queue.protocol.record import State
from blimp.queue.retry import is_given_up

if TYPE_CHECKING:
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.task import Task

RETRY_DELAY_S = 1.0  # of a retry without a time


def outcome_of(
    error: BaseException, *, task: Task, message: TaskMessage, chance: random.Random
) -> Outcome:
    """Return what `error`, raised by the function of `task`, means for `message`."""
    options = task.options
    if isinstance(error, Refused):
        return failure(error, state=State.REFUSED)
    if isinstance(error, Interrupted):
        return failure(error, state=State.INTERRUPTED)
    if isinstance(error, Reject):
        reason = "" if error.requeue else str(error) or "rejected by its task"
        return Outcome(
            state=State.FAILURE, fault=fault_of(error), requeue=error.requeue, dead=reason
        )
    if isinstance(error, Replace):
        return Outcome(state=State.PENDING, replacement=error.signature)
    if isinstance(error, Retry):
        delay_s = error.countdown_s
        return _retry(error, RETRY_DELAY_S if delay_s is None else max(0.0, delay_s))
    trace = "".join(traceback.format_exception(error))
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


def _retry(error: BaseException, delay_s: float, *, trace: str | None = None) -> Outcome:
    return Outcome(state=State.RETRY, fault=fault_of(error), traceback=trace, retry_in_s=delay_s)
