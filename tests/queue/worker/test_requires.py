"""Which limit a task is under: that of its key, of its own app and name."""

from typing import Any

import pytest

from blimp.queue import TaskApp
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.worker.job import Job
from blimp.queue.worker.requires import pool_of

NOWHERE = "redis+socket:///nowhere?virtual_host=0"


def limit(app: str = "a", task: str = "t", key: str = "k") -> str:
    ours = TaskApp(app, broker=NOWHERE)

    def function(user: str) -> None: ...

    ours.task(name=task, concurrency_key="{user}", concurrency=2)(function)
    delivery: Any = None
    message = TaskMessage(id="x", task=task, args=(key,))
    return pool_of(ours, Job(message=message, task=ours.tasks[task], delivery=delivery)).name


@pytest.mark.parametrize("other", [{"app": "b"}, {"task": "u"}, {"key": "l"}])
def test_each_key_of_each_task_of_each_app_has_a_limit_of_its_own(other: dict[str, str]) -> None:
    assert limit() == limit()
    assert limit(**other) != limit()
