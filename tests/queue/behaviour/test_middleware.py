"""Middleware around tasks: order, errors, waiting."""

import asyncio
from typing import Any

import pytest

from blimp.errors import (
    TaskFailed,
)
from blimp.queue import TaskApp
from tests.queue.conftest import DEADLINE_S, working


def test_middleware_wraps_in_its_order_both_kinds_of_task(url: str) -> None:
    order: list[str] = []

    def layer(name: str) -> Any:
        async def call(job: Any, call_next: Any) -> Any:
            order.append(f"{name} in")
            outcome = await call_next(job)
            order.append(f"{name} out")
            return outcome

        return call

    middleware = [layer("outer"), layer("inner")]
    with TaskApp("tests", broker=url, result_backend=url, middleware=middleware) as app:

        @app.task(name="plain")
        def plain() -> None:
            order.append("task")

        @app.task(name="async")
        async def other() -> None:
            await asyncio.sleep(0)
            order.append("task")

        with working(app):
            plain.delay().get(DEADLINE_S)
            other.delay().get(DEADLINE_S)
    assert order == ["outer in", "inner in", "task", "inner out", "outer out"] * 2


def test_a_middleware_that_waits_in_a_plain_task_fails_it_and_no_more(url: str) -> None:
    async def waits(job: Any, call_next: Any) -> Any:
        if job.message.args:
            await asyncio.sleep(0)
        return await call_next(job)

    with TaskApp("tests", broker=url, result_backend=url, middleware=[waits]) as app:

        @app.task(name="plain")
        def plain(*args: int) -> int:
            return len(args)

        with working(app, sync_workers=1):
            with pytest.raises(TaskFailed, match="awaited something in a plain task's thread"):
                plain.delay(1).get(DEADLINE_S)
            assert plain.delay().get(DEADLINE_S) == 0
