"""Time limits: what a task hears of, what ends it, and what comes of one that cannot be ended."""

import asyncio
import time
from typing import Any

import pytest

from blimp.errors import ConfigError, SoftTimeLimitExceeded, TaskFailed
from blimp.queue import TaskApp
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.queue.server_view import Look

LIMIT_S = 0.1
LONG_S = 60.0


def busy(seconds: float = LONG_S) -> None:
    """Run in small steps, so that an exception may strike between two."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        time.sleep(0.001)


def test_a_plain_task_that_does_not_care_fails_by_its_soft_limit(app: TaskApp, look: Look) -> None:
    @app.task(name="long", soft_time_limit=LIMIT_S)
    def long() -> None:
        busy()

    with working(app) as worker:
        with pytest.raises(TaskFailed, match="ran longer than its soft time limit") as caught:
            long.delay().get(DEADLINE_S)
        assert caught.value.kind == "SoftTimeLimitExceeded"
        wait_until(lambda: worker.counts["done"] == 1, "not acknowledged")
        assert worker.restart_reason is None
    assert look.left_behind() == []


def test_a_coroutine_hears_of_its_soft_limit_and_its_groups_end(app: TaskApp) -> None:
    ended: list[str] = []

    @app.task(name="long", soft_time_limit=LIMIT_S)
    async def long() -> str:
        async def part(name: str) -> None:
            try:
                await asyncio.sleep(LONG_S)
            finally:
                ended.append(name)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(part("a"))
                group.create_task(part("b"))
        except SoftTimeLimitExceeded:
            await asyncio.sleep(0.001)  # it may wait for what tidying up needs
            return "tidied up"
        return "not noticed"

    with working(app):
        assert long.delay().get(DEADLINE_S) == "tidied up"
    assert sorted(ended) == ["a", "b"]


def test_a_coroutine_past_its_hard_limit_is_cancelled_and_fails(app: TaskApp, look: Look) -> None:
    @app.task(name="long", time_limit=LIMIT_S)
    async def long() -> None:
        await asyncio.sleep(LONG_S)

    with working(app) as worker:
        with pytest.raises(TaskFailed, match=r"longer than its time limit of 0\.1 s") as caught:
            long.delay().get(DEADLINE_S)
        assert caught.value.kind == "TimeLimitExceeded"
        wait_until(lambda: worker.counts["done"] == 1, "not acknowledged")
        assert worker.restart_reason is None
    assert look.left_behind() == []


def test_a_sender_may_set_the_limits(app: TaskApp) -> None:
    @app.task(name="long")
    async def long() -> None:
        await asyncio.sleep(LONG_S)

    with working(app):
        with pytest.raises(TaskFailed, match="SoftTimeLimitExceeded"):
            long.apply_async(soft_time_limit=LIMIT_S, time_limit=LONG_S).get(DEADLINE_S)
        with pytest.raises(TaskFailed, match=r"time limit of 0\.1 s"):
            long.apply_async(time_limit=LIMIT_S).get(DEADLINE_S)
    with pytest.raises(
        ConfigError, match="time_limit 0: must be above 0 and up to 31536000 seconds"
    ):
        long.apply_async(time_limit=0.0)


def test_within_its_limits_nothing_strikes(app: TaskApp) -> None:
    """A soft limit that comes as the function ends must not strike outside of it."""

    @app.task(name="short", soft_time_limit=0.002)
    def short() -> str:
        try:
            busy(0.002)
        except SoftTimeLimitExceeded:
            return "noticed"
        return "in time"

    with working(app, sync_workers=2) as worker:
        handles = [short.delay() for _ in range(200)]
        states = [handle.wait(DEADLINE_S) for handle in handles]
        wait_until(lambda: worker.counts["done"] == 200, "not all acknowledged")
    for record in states:
        reported = record.fault.exc_type if record.fault else record.result
        assert reported in ("noticed", "in time", "SoftTimeLimitExceeded")


def test_an_apps_limits_are_of_the_tasks_that_give_none(url: str) -> None:
    limits = {"time_limit": 8 * LIMIT_S, "soft_time_limit": LIMIT_S}
    with TaskApp("tests", broker=url, result_backend=url, **limits) as app:  # type: ignore[arg-type]

        async def long(seconds: float = LONG_S) -> str:
            await asyncio.sleep(seconds)
            return "lasted"

        own: dict[str, dict[str, Any]] = {
            "default": {},
            "hard": {"soft_time_limit": None},
            "longer": {"time_limit": LONG_S, "soft_time_limit": None},
            "none": {"time_limit": None, "soft_time_limit": None},
        }
        tasks = {name: app.task(name=name, **more)(long) for name, more in own.items()}
        with working(app):
            ends = {name: task.delay(12 * LIMIT_S) for name, task in tasks.items()}
            for record in [one.wait(DEADLINE_S) for one in ends.values()]:
                assert record.final
        kinds = {name: getattr(one.record.fault, "exc_type", "") for name, one in ends.items()}
        # Ended sooner than the app's soft limit, or not to be interrupted: it is not for these.
        shorter = app.task(name="shorter", time_limit=LIMIT_S / 2)(long)
        steady = app.task(name="steady", interruptible=False)(busy)
        assert (shorter.options.soft_time_limit, steady.options.soft_time_limit) == (None, None)
    assert kinds == {
        "default": "SoftTimeLimitExceeded", "hard": "TimeLimitExceeded", "longer": "", "none": "",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="time_limit 0: must be above 0"):
        TaskApp("tests", broker=url, time_limit=0.0)
