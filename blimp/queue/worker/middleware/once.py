"""Once: a job that has ended, or that may not begin twice, does not run again."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from blimp.errors import Interrupted, WorkerLost
from blimp.queue.protocol.message import AGAIN
from blimp.queue.protocol.outcome import Outcome, failure
from blimp.queue.protocol.record import State
from blimp.queue.redis.keys import began_key
from blimp.queue.results.waiting import type_checked
from blimp.queue.worker.failures import worker_lost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redis import Redis

    from blimp.queue.app import TaskApp
    from blimp.queue.options import TaskOptions
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.worker.job import CallNext, Job

KEEP_ENDED_S = 86_400  # a mark outlives its message so long, for a copy of that


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
        return message.delivery > 1 or AGAIN in message.headers or is_marked(job.task.options)

    async def __call__(self, job: Job, call_next: CallNext) -> Outcome:
        assert job.in_thread is not None
        again = job.message.delivery > 1 or AGAIN in job.message.headers
        if again and self._app.results is not None:
            job.previous = await job.in_thread(self._app.results.get, job.message.id)
            if job.previous is not None and job.previous.final:
                return Outcome(state=job.previous.state, settled=True)
        if is_marked(job.task.options) and await job.in_thread(self._has_begun, job):
            return begun_before(job)
        return await call_next(job)

    def _has_begun(self, job: Job) -> bool:
        key = _key(job.message)
        mark: Any = self._app.broker_link.ask(lambda client: type_checked(lambda: client.get(key)))
        return mark is not None and mark != job.mark


def is_marked(options: TaskOptions) -> bool:
    """Return whether it must be known that a task has begun: it may not begin twice."""
    return not options.idempotent or options.reject_on_worker_lost


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
    its message is pending, however long that lies: see `let_marks_expire`.
    """
    job.mark = job.mark or uuid.uuid4().bytes
    key = _key(job.message)

    def mark(client: Redis) -> bool:
        if client.set(key, job.mark, nx=True):
            return True
        return bool(type_checked(lambda: client.get(key)) == job.mark)

    return app.broker_link.ask(mark)


def let_marks_expire(app: TaskApp, messages: Iterable[TaskMessage]) -> None:
    """Have the marks of messages that have ended expire. Raises LinkError.

    A worker that is killed between the end and this leaves a key of some 100 bytes.
    """
    keys = [_key(message) for message in messages]

    def expire(client: Redis) -> None:
        with client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.expire(key, KEEP_ENDED_S)
            pipe.execute()

    app.broker_link.ask(expire)


def clear_begun(app: TaskApp, message: TaskMessage) -> None:
    """Remove the mark of `message`: it came to its end, and is to run again."""
    if not app.has_store:  # then nothing is marked, see guarantees.check_tasks
        return
    with app.broker_link.link():
        app.broker_link.client.delete(_key(message))


def _key(message: TaskMessage) -> str:
    return began_key(message.id, message.retries, message.nesting)
