"""Coroutines that send tasks and wait for them, on a real server."""

import asyncio
import os
import signal
import threading
import time
import warnings
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from blimp.clock import SystemClock
from blimp.errors import LinkError, Refused, ResultError, TaskError
from blimp.queue import AsyncResult, TaskApp, TaskContext, chord, group
from blimp.queue.protocol.record import Record, State
from blimp.queue.results.awaiting import Awaiting, _Wait
from tests.broker import EmbeddedBroker
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.queue.results.conftest import DATABASES
from tests.signals import stop_process


class Tasks:
    """What the coroutines send."""

    def __init__(self, app: TaskApp) -> None:
        self.go = threading.Event()
        self.add = app.task(name="add")(self._add)
        self.refuse = app.task(name="refuse")(self._refuse)
        self.report = app.task(name="report", bind=True)(self._report)

    def _add(self, a: int, b: int) -> int:
        return a + b

    def _refuse(self) -> None:
        raise Refused("the wind is too strong")

    def _report(self, context: TaskContext, count: int) -> int:
        for number in range(count):
            context.progress(number / count, at=number)
        assert self.go.wait(DEADLINE_S)
        return count


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await main

    return asyncio.run(limited())


@pytest.fixture(params=["redis", *DATABASES, "polled"])
def stored(request: pytest.FixtureRequest, url: str) -> Iterator[TaskApp]:
    """An app whose results are in one of all backends, the last of them without a subscription."""
    if request.param == "redis":
        backend, broker = url, url
    else:
        path = request.getfixturevalue("tmp_path")
        dialect = "sqlite" if request.param == "polled" else request.param
        fixture = {"postgresql": "postgres_url", "mariadb": "mariadb_url"}.get(dialect)
        backend = request.getfixturevalue(fixture) if fixture else f"db+sqlite:///{path}/r.db"
        broker = "memory://" if request.param == "polled" else url
    with TaskApp("tests", broker=broker, result_backend=backend) as app:
        yield app


def test_a_task_is_sent_and_its_result_awaited(stored: TaskApp) -> None:
    tasks = Tasks(stored)

    async def main() -> list[Any]:
        one = await tasks.add.adelay(1, 2)
        others = await asyncio.gather(*(tasks.add.adelay(1, n) for n in range(50)))
        found = await asyncio.gather(*(other.aget() for other in others))
        later = await stored.result(one.id).aget()
        by_name = await (await stored.asend_task("add", (2, 2))).aget(DEADLINE_S)
        handle: AsyncResult[Any] = await tasks.refuse.aapply_async(priority=3)
        with pytest.raises(Refused, match="the wind is too strong"):
            await handle.aget()
        refused = await handle.aget(propagate=False)
        return [await one.aget(), later, found, by_name, refused]

    with working(stored):
        one, later, found, by_name, refused = run(main())
    assert (one, later, by_name) == (3, 3, 4)
    assert found == [1 + n for n in range(50)]
    assert isinstance(refused, Refused)


def test_canvases_are_sent_and_awaited(app: TaskApp) -> None:
    tasks = Tasks(app)
    seen: list[int] = []

    async def main() -> list[Any]:
        chain = await (tasks.add.s(1, 2) | tasks.add.s(3)).adelay()
        many = await group(tasks.add.s(1, n) for n in range(5)).adelay()
        total = app.task(name="total")(sum)
        whole = await chord([tasks.add.s(1, n) for n in range(3)], total.s()).adelay()
        nothing = await group([]).adelay()
        return [
            await chain.aget(),
            await many.aget(on_progress=lambda done: seen.append(done["done"])),
            await whole.aget(),
            await nothing.aget(),
        ]

    with working(app):
        assert run(main()) == [6, [1, 2, 3, 4, 5], 6, []]
    assert sorted(seen) == [1, 2, 3, 4, 5]


def test_reports_come_as_they_are_made_and_end_with_the_task(app: TaskApp) -> None:
    tasks = Tasks(app)

    async def main() -> tuple[list[int], int]:
        handle = await tasks.report.adelay(3)
        seen = []
        async for report in handle.aprogress():
            seen.append(report["at"])
            if report["at"] == 2:
                tasks.go.set()
        return seen, await handle.aget()

    with working(app):
        seen, count = run(main())
    assert seen == sorted(set(seen))
    assert seen[-1] == 2
    assert count == 3


def test_a_wait_ends_by_its_timeout_and_by_being_cancelled(app: TaskApp) -> None:
    """No worker runs. What was sent stays, and nothing of the wait does."""
    tasks = Tasks(app)

    async def main() -> None:
        handle = await tasks.add.adelay(1, 2)
        with pytest.raises(TimeoutError, match=f"task {handle.id} is PENDING after 0.05 s: 1 of 1"):
            await handle.aget(timeout=0.05)
        waiting = asyncio.create_task(handle.aget())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert app.awaiting._waits == {}
        app.results.store(Record(id=handle.id, state=State.SUCCESS, result=7))  # type: ignore[union-attr]
        assert await handle.aget() == 7

    run(main())


def test_a_wait_that_is_cancelled_while_it_begins_leaves_nothing(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go = threading.Event(), threading.Event()
    get_many = app.results.get_many  # type: ignore[union-attr]

    def slow(ids: Any) -> list[Record]:
        asked.set()
        assert go.wait(DEADLINE_S)
        return get_many(ids)

    monkeypatch.setattr(app.results, "get_many", slow)

    async def main() -> None:
        waiting = asyncio.create_task(app.result("a").aget())
        while not asked.is_set():
            await asyncio.sleep(0.001)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        go.set()
        await app.awaiting.call(lambda: None)  # after what has begun
        assert app.awaiting._waits == {}

    run(main())


def test_an_ignored_task_is_none_and_a_task_waits_for_none(app: TaskApp) -> None:
    quiet = app.task(name="quiet", ignore_result=True)(lambda: 1)
    tasks = Tasks(app)

    @app.task(name="waits")
    async def waits() -> str:
        handle = await tasks.add.adelay(1, 1)
        with pytest.raises(TaskError, match="task 'waits' waits for task"):
            await handle.aget()
        return str(await handle.aget(disable_sync_subtasks=False))

    async def main() -> list[Any]:
        return [await (await quiet.adelay()).aget(), await (await waits.adelay()).aget()]

    with working(app):
        assert run(main()) == [None, "2"]


def test_a_plain_call_in_a_coroutine_is_warned_of_once(app: TaskApp) -> None:
    tasks = Tasks(app)

    async def main() -> None:
        tasks.add.delay(1, 2)
        tasks.add.delay(1, 2)

    with pytest.warns(RuntimeWarning, match=r"await adelay\(\) or aapply_async\(\) there") as seen:
        run(main())
    assert len(seen) == 1
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tasks.add.delay(1, 2)  # outside of a loop


def test_no_thread_outlives_the_closing_of_its_app(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that did would connect again, and nobody would close that connection."""
    tasks = Tasks(app)
    asked = threading.Event()
    get_many = app.results.get_many  # type: ignore[union-attr]

    def slow(ids: Any) -> list[Record]:
        asked.set()
        while app.awaiting._calls is not None:  # until the closing has begun
            time.sleep(0.001)
        return get_many(ids)

    async def main() -> None:
        await (await tasks.add.adelay(1, 2)).aget()
        monkeypatch.setattr(app.results, "get_many", slow)
        waiting = asyncio.create_task(app.result("a").aget())
        while not asked.is_set():
            await asyncio.sleep(0.001)
        app.close()
        left = [one.name for one in threading.enumerate() if one.name.startswith("queue ")]
        with pytest.raises(LinkError):
            await waiting
        assert left == []

    with working(app):
        run(main())


def test_a_server_that_stands_still_holds_up_no_loop(own_broker: EmbeddedBroker) -> None:
    """Sent and awaited meanwhile, it is all done once the server goes on."""
    with TaskApp("tests", broker=own_broker.url, result_backend=own_broker.url) as app:
        tasks = Tasks(app)
        latest_s = 0.0

        async def main() -> list[Any]:
            nonlocal latest_s
            assert await (await tasks.add.adelay(0, 0)).aget() == 0
            stop_process(own_broker.pid)
            try:
                sending = [asyncio.create_task(tasks.add.adelay(1, n)) for n in range(3)]
                until_s = time.monotonic() + 1.5
                while (before_s := time.monotonic()) < until_s:
                    await asyncio.sleep(0.01)
                    latest_s = max(latest_s, time.monotonic() - before_s - 0.01)
            finally:
                os.kill(own_broker.pid, signal.SIGCONT)
            sent = await asyncio.gather(*sending)
            return await asyncio.gather(*(one.aget() for one in sent))

        with working(app):
            assert run(main()) == [1, 2, 3]
    # Held up, a loop would wait for 1.5 s; this machine does other things meanwhile.
    assert latest_s < 1.0


def test_one_record_that_cannot_be_read_is_an_error_and_the_wait_for_others_goes_on(
    app: TaskApp,
) -> None:
    tasks = Tasks(app)

    async def main() -> int:
        good = await tasks.add.adelay(1, 2)
        wait = asyncio.create_task(good.aget())
        app.results.write("bad", b"not a record")  # type: ignore[union-attr]
        with pytest.raises(ResultError):
            await app.result("bad").aget()
        with working(app):
            return await wait

    assert run(main()) == 3


class Lost:
    """A backend whose connection is lost just when a wait begins to watch."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def get_many(self, ids: list[str]) -> list[Record]:
        return [Record(id=id, state=State.PENDING) for id in ids]

    def watch(self, *_: str) -> "Lost":
        return self

    def next(self, *, timeout_s: float) -> None:
        raise LinkError("lost")

    def close(self) -> None:
        self.closed.set()

    def discard(self, *_: str) -> None:
        pass


@pytest.mark.parametrize("is_thread", [True, False])
def test_what_is_lost_while_a_watch_begins_is_heard(is_thread: bool) -> None:
    results = Lost()
    app: Any = SimpleNamespace(clock=SystemClock(), results=results)
    waits = Awaiting(app)

    async def main() -> list[State]:
        return [record.state async for record in waits.records(["a"])]

    with pytest.raises(LinkError, match="lost"):
        list(waits.wait(["a"])) if is_thread else run(main())
    assert results.closed.wait(DEADLINE_S)
    waits.close()


class Wait:
    """A thread that waits for task "a" and keeps waiting after its record has come."""

    def __init__(self, app: TaskApp) -> None:
        self.awaiting = app.awaiting
        self.records: Any = app.awaiting.wait(["a"], DEADLINE_S)
        self.found: list[Record] = []
        self.thread = threading.Thread(target=lambda: self.found.append(next(self.records)))
        self.thread.start()
        wait_until(lambda: "a" in self.awaiting._waits, "it does not begin")

    def end(self) -> None:
        self.thread.join()
        self.records.close()


def test_one_that_comes_as_the_result_comes_hears_it(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read that there is none, and others have heard it before it waits with them."""
    assert app.results is not None
    first, record = Wait(app), Record(id="a", state=State.SUCCESS)
    app.results.store(record)
    first.thread.join()
    pending = Record(id="a", state=State.PENDING)
    monkeypatch.setattr(app.results, "get_many", lambda _: [pending])
    assert [one.state for one in app.awaiting.wait(["a"], DEADLINE_S)] == [State.SUCCESS]
    first.end()


def test_one_that_comes_as_another_leaves_is_not_taken_from_the_watch(app: TaskApp) -> None:
    assert app.results is not None
    awaiting, left = app.awaiting, app.awaiting._opened(_Wait(["a"], lambda _: None))
    awaiting._begin(left)
    watch: Any = awaiting._watch
    wait_until(lambda: watch._looked_s is not None, "the watch is not read")
    ended = awaiting._end(left)
    assert ended is not None
    second = Wait(app)
    ended()
    app.results.store(Record(id="a", state=State.SUCCESS))
    second.end()
    assert [one.state for one in second.found] == [State.SUCCESS]
    wait_until(lambda: awaiting._watch is None, "the watch of nobody stays")
