"""Several loops: jobs go to the least loaded, each runs so many at once, none holds up another."""

import asyncio
import threading

import pytest

from blimp.queue import TaskApp
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working


def test_jobs_go_to_the_loop_that_has_the_fewest(app: TaskApp) -> None:
    go = threading.Event()
    where: list[str] = []

    @app.task(name="hold")
    async def hold() -> None:
        where.append(threading.current_thread().name)
        while not go.is_set():
            await asyncio.sleep(0.001)

    with working(app, loop_workers=3, loop_concurrency=2):
        handles = [hold.delay() for _ in range(6)]
        wait_until(lambda: len(where) == 6, "they do not all run")
        assert sorted(where) == ["loop-0", "loop-0", "loop-1", "loop-1", "loop-2", "loop-2"]
        go.set()
        for handle in handles:
            handle.get(DEADLINE_S)


def test_a_loop_runs_so_many_at_once_and_no_more(app: TaskApp) -> None:
    most, now = 0, 0

    @app.task(name="count")
    async def count() -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.005)
        now -= 1

    with working(app, loop_workers=1, loop_concurrency=3):
        for handle in [count.delay() for _ in range(30)]:
            handle.get(DEADLINE_S)
    assert most == 3


def test_a_coroutine_that_blocks_its_loop_does_not_block_another(app: TaskApp) -> None:
    go, blocked = threading.Event(), threading.Event()
    busy: list[str] = []  # whichever loop was there first took it

    @app.task(name="block")
    async def block() -> None:
        busy.append(threading.current_thread().name)
        blocked.set()
        go.wait(DEADLINE_S)

    @app.task(name="quick")
    async def quick() -> str:
        return threading.current_thread().name

    with working(app, loop_workers=2) as worker:
        held = block.delay()
        assert blocked.wait(DEADLINE_S)
        loops = worker.pools._loops
        for _ in range(5):
            # A result is there before its job has left its loop: two loops would be as loaded.
            wait_until(lambda: sum(loop.load for loop in loops) == 1, "a job does not leave")
            assert {quick.delay().get(DEADLINE_S), *busy} == {"loop-0", "loop-1"}
        go.set()
        held.get(DEADLINE_S)


@pytest.mark.parametrize("where", ["task", "part", "callback"])
def test_a_blocked_loop_is_reported_once_with_its_task(app: TaskApp, where: str) -> None:
    go = threading.Event()
    log = Silence()

    @app.task(name="blocks")
    async def blocks() -> None:
        async def part() -> None:
            go.wait(DEADLINE_S)

        if where == "task":
            go.wait(DEADLINE_S)
        elif where == "part":
            await asyncio.create_task(part())
        else:
            asyncio.get_running_loop().call_soon(go.wait, DEADLINE_S)
            await asyncio.sleep(0)

    @app.task(name="waits")
    async def waits() -> None:
        await asyncio.sleep(0.001)

    with working(app, log=log) as worker:
        waits.delay().get(DEADLINE_S)
        handle = blocks.delay()
        wait_until(lambda: log.events("loop blocked"), "it is not reported")
        watch = worker.pools._loops[0]._watch
        looks = watch._looks
        wait_until(lambda: watch._looks > looks, "it is not looked at")
        go.set()
        handle.get(DEADLINE_S)
        wait_until(lambda: log.events("loop runs again"), "its end is not reported")
        (line,) = log.events("loop blocked")
        assert (line["task"], line["id"], line["loop"]) == ("blocks", handle.id, "loop-0")
        assert 0.9 <= line["for_s"] <= log.events("loop runs again")[0]["after_s"] < DEADLINE_S
        assert __file__ in line["at"] or "threading.py" in line["at"]
        # Nothing wakes an idle worker for it.
        wait_until(lambda: not watch._is_on and not worker._alarms._heap, "it is watched idle")


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_a_part_of_one_task_ends_that_task_alone(
    app: TaskApp, error: type[BaseException]
) -> None:
    go, begun = threading.Event(), threading.Event()
    log = Silence()

    @app.task(name="leave")
    async def leave(where: str) -> str:
        async def part() -> None:
            raise error("the part gives up")

        def callback() -> None:
            raise error("the callback gives up")

        if where == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(part())
        elif where == "callback":
            asyncio.get_running_loop().call_soon(callback)
        else:
            child = asyncio.create_task(part())
            await asyncio.wait([child])
            child.exception()
        await asyncio.sleep(0)
        return "goes on"

    @app.task(name="innocent")
    async def innocent() -> str:
        begun.set()
        while not go.is_set():
            await asyncio.sleep(0.001)
        return "done"

    with working(app, log=log):
        beside = innocent.delay()
        assert begun.wait(DEADLINE_S)
        assert leave.delay("alone").get(DEADLINE_S) == "goes on"
        assert leave.delay("callback").get(DEADLINE_S) == "goes on"
        record = leave.delay("group").wait(DEADLINE_S)
        assert record.fault is not None
        assert record.fault.exc_type == error.__name__
        go.set()
        assert beside.get(DEADLINE_S) == "done"
    assert len(log.events("exit in a loop")) == 3
