"""The backend as Django's tests expect one to behave: see django_judged.py.

They read the results of the dummy backend from its memory, and have the immediate one end a task
before `enqueue` returns. Here what is read is asked of the server, and a worker runs the tasks.
"""

from __future__ import annotations

import threading
from typing import Any, ClassVar

from blimp.queue.django import DjangoTaskApp, TasksBackend
from blimp.queue.extras.django.outbox import in_transaction
from blimp.queue.extras.django.ticket import KEPT_AS
from blimp.queue.worker.worker import Worker

RESULT_S = 20.0  # after which a task that does not end is a failure of its test
MAY_BEGIN = threading.Event()
WAITING, RUNNING = DjangoTaskApp("waiting"), DjangoTaskApp("running")


class Waiting(TasksBackend):
    """In the place of the dummy: no worker takes what is sent."""

    app = WAITING
    sent: ClassVar[list[str]] = []  # ids

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self.sent.append(result.id)
        return result

    @property
    def results(self) -> list[Any]:
        return [self.get_result(id) for id in self.sent]

    def clear(self) -> None:
        assert self.app.results is not None
        for id in self.sent:
            self.app.results.forget(KEPT_AS.format(id))
        self.sent.clear()


class Running(TasksBackend):
    """In the place of the immediate one: waits until a worker has run the task.

    The tests want the signals in their order, so that it does not begin before it was sent.
    """

    app = RUNNING

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        MAY_BEGIN.clear()
        result = super().enqueue(task, args, kwargs)
        MAY_BEGIN.set()
        if not in_transaction("default"):
            self.app.result(result.id).wait(timeout=RESULT_S)
            result.refresh()
        return result


async def begin(job: Any, call_next: Any) -> Any:
    await job.in_thread(MAY_BEGIN.wait)
    return await call_next(job)


def start_worker() -> tuple[Worker, threading.Thread]:
    """Start one in this process, where the tests look for its log."""
    RUNNING.import_tasks()
    RUNNING.outer_middleware = (begin,)
    worker = Worker(app=RUNNING)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    return worker, thread
