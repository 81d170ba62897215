"""What tasks do in tests of more than one broker."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from blimp.queue import TaskApp, TaskContext, Worker
from tests.queue.conftest import DEADLINE_S, wait_until, working


@contextlib.contextmanager
def a_hundred_done(app: TaskApp) -> Iterator[Worker]:
    """Have a worker run fifty plain and fifty async tasks; it has acknowledged them all."""

    @app.task(name="add")
    def add(a: int, b: int = 0) -> int:
        """Add."""
        return a + b

    @app.task(name="slow")
    async def slow(value: str) -> list[str]:
        await asyncio.sleep(0)
        return [value]

    with working(app) as worker:
        sums = [add.delay(n, b=1) for n in range(50)]
        waits = [slow.delay(f"{n}") for n in range(50)]
        assert [handle.get(DEADLINE_S) for handle in sums] == list(range(1, 51))
        assert [handle.get(DEADLINE_S) for handle in waits] == [[f"{n}"] for n in range(50)]
        wait_until(lambda: worker.counts["done"] == 100, "not all acknowledged")
        yield worker
    assert add(2, 3) == 5
    assert add.__doc__ == "Add."


class LongTask:
    """A task named "long" that is busy until it may `go`, and returns "ended".

    runs: the fences that it began with.
    """

    def __init__(self, app: TaskApp, **options: Any) -> None:
        self.runs: list[int] = []
        self.busy, self.go = threading.Event(), threading.Event()
        self.task = app.task(name="long", bind=True, **options)(self._run)

    def _run(self, context: TaskContext) -> str:
        self.runs.append(context.fence)
        self.busy.set()
        self.go.wait(DEADLINE_S)
        return "ended"
