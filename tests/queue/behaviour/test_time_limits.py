"""Time limits: what a task hears of, what ends it, and what comes of one that cannot be ended."""

import asyncio
import threading
import time
from typing import Any

import pytest

from blimp.errors import ConfigError, Reject, SoftTimeLimitExceeded, TaskFailed
from blimp.queue import State, TaskApp, TaskContext
from tests.queue.celery_messages import envelope
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.server_view import Look

LIMIT_S = 0.1
LONG_S = 60.0


def busy(seconds: float = LONG_S) -> None:
    """Run in small steps, so that an exception may strike between two."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        time.sleep(0.001)


def test_a_plain_task_hears_of_its_soft_limit(app: TaskApp) -> None:
    @app.task(name="long", soft_time_limit=LIMIT_S)
    def long() -> str:
        try:
            busy()
        except SoftTimeLimitExceeded:
            return "tidied up"
        return "not noticed"

    with working(app):
        assert long.delay().get(DEADLINE_S) == "tidied up"


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


def test_a_coroutine_that_does_not_care_fails_by_its_soft_limit(app: TaskApp) -> None:
    @app.task(name="long", soft_time_limit=LIMIT_S)
    async def long() -> None:
        async with asyncio.timeout(LONG_S):
            await asyncio.sleep(LONG_S)

    with working(app), pytest.raises(TaskFailed, match="soft time limit") as caught:
        long.delay().get(DEADLINE_S)
    assert caught.value.kind == "SoftTimeLimitExceeded"


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


def test_both_limits_soft_first(app: TaskApp) -> None:
    heard: list[str] = []

    @app.task(name="long", soft_time_limit=LIMIT_S, time_limit=3 * LIMIT_S)
    async def long() -> None:
        try:
            await asyncio.sleep(LONG_S)
        except SoftTimeLimitExceeded:
            heard.append("soft")
            await asyncio.sleep(LONG_S)

    with working(app), pytest.raises(TaskFailed, match="TimeLimitExceeded"):
        long.delay().get(DEADLINE_S)
    assert heard == ["soft"]


@pytest.mark.parametrize("timelimit", [[LIMIT_S, None], [None, LIMIT_S]])
def test_the_messages_own_limit_comes_first(
    app: TaskApp, look: Look, timelimit: list[float | None]
) -> None:
    @app.task(name="long", time_limit=LONG_S, soft_time_limit=LONG_S / 2.0)
    async def long() -> None:
        await asyncio.sleep(LONG_S)

    look.push("tests", envelope(task="long", id="one", args=[], timelimit=timelimit))
    with working(app), pytest.raises(TaskFailed, match="TimeLimitExceeded"):
        app.result("one").get(DEADLINE_S)


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


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"acks_on_timeout": False, "soft_time_limit": LIMIT_S}, None),
        ({"acks_on_timeout": False, "time_limit": LIMIT_S}, None),
        ({"acks_on_failure": False}, KeyError("flaky")),
    ],
)
def test_not_acknowledged_it_comes_again(
    app: TaskApp, look: Look, options: dict[str, Any], error: Exception | None
) -> None:
    task: Any = app.task  # the options are a table's

    @task(name="flaky", bind=True, **options)  # type: ignore[untyped-decorator]
    async def flaky(context: TaskContext) -> int:
        if context.fence < 3:
            if error is not None:
                raise error
            await asyncio.sleep(LONG_S)
        return context.fence

    with working(app):
        assert flaky.delay().get(DEADLINE_S) == 3
    assert look.left_behind() == []


def test_a_failure_and_a_timeout_are_distinguished(app: TaskApp) -> None:
    @app.task(name="fails", acks_on_timeout=False)
    def fails() -> None:
        raise KeyError("once")

    @app.task(name="late", acks_on_failure=False, time_limit=LIMIT_S)
    async def late() -> None:
        await asyncio.sleep(LONG_S)

    with working(app):
        assert fails.delay().wait(DEADLINE_S).state is State.FAILURE
        assert late.delay().wait(DEADLINE_S).state is State.FAILURE


def test_a_stuck_thread_ends_in_a_restart_that_waits_for_the_others(
    app: TaskApp, look: Look
) -> None:
    go, other, never = threading.Event(), threading.Event(), threading.Event()

    @app.task(name="stuck", time_limit=LIMIT_S)
    def stuck() -> None:
        never.wait(DEADLINE_S)

    @app.task(name="other", bind=True)
    def other_task(context: TaskContext) -> int:
        other.set()
        go.wait(DEADLINE_S)
        return context.fence

    with working(app, sync_workers=2, prefetch=4) as worker:
        beside = other_task.delay()
        assert other.wait(DEADLINE_S)
        caught = stuck.delay().wait(DEADLINE_S)
        assert caught.fault is not None
        assert caught.fault.exc_type == "TimeLimitExceeded"
        wait_until(lambda: worker.restart_reason is not None, "it does not restart")
        assert worker.restart_reason == "stuck is stuck past its time limit of 0.1 s"
        waiting = [other_task.delay() for _ in range(3)]
        go.set()
        assert beside.get(DEADLINE_S) == 1
    assert look.in_flight() == 0
    with working(app):
        for handle in waiting:
            handle.get(DEADLINE_S)
    never.set()
    assert look.left_behind() == []


def test_a_stuck_thread_is_not_waited_for_and_its_end_is_written(app: TaskApp) -> None:
    """Even where nothing else is waited for."""
    never = threading.Event()

    @app.task(name="stuck", time_limit=LIMIT_S)
    def stuck() -> None:
        never.wait(DEADLINE_S)

    with working(app, grace_s=0.0):
        caught = stuck.delay().wait(DEADLINE_S)
    never.set()
    assert caught.fault is not None
    assert caught.fault.exc_type == "TimeLimitExceeded"


def test_what_may_not_begin_twice_may_where_it_came_to_its_end(app: TaskApp, look: Look) -> None:
    """`reject_on_worker_lost` must not take a task that gave its message back for a lost one."""

    @app.task(name="later", reject_on_worker_lost=True, bind=True)
    def later(context: TaskContext) -> int:
        if context.fence == 1:
            raise Reject("not yet", requeue=True)
        return context.fence

    with working(app):
        assert later.delay().get(DEADLINE_S) == 2
    assert [key for key in look.left_behind() if b"began" not in key] == []


def test_what_ended_just_before_it_was_found_stuck_restarts_nothing(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    restarts: list[str] = []

    @app.task(name="slow")
    def slow() -> str:
        begun.set()
        go.wait(DEADLINE_S)
        return "done"

    log = Silence()
    with working(app, log=log) as worker:
        monkeypatch.setattr(worker._stops, "restart", restarts.append)
        handle = slow.delay()
        assert begun.wait(DEADLINE_S)
        (job,) = worker.in_flight.jobs()
        go.set()
        assert handle.get(DEADLINE_S) == "done"
        job.timed_out_s = LIMIT_S
        worker._end_stuck(job)
    assert restarts == []
    assert log.events("stuck") == []
