"""Apps without a server: what is sent, run, retried and followed there is as with a worker."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from blimp.errors import (
    ConfigError,
    Expired,
    Refused,
    Reject,
    ResultError,
    Retry,
    Revoked,
    Superseded,
    TaskFailed,
)
from blimp.queue import (
    Depends,
    State,
    TaskApp,
    TaskContext,
    chord,
    cron,
    every,
)
from blimp.queue.results.redis_backend import RedisResults
from blimp.queue.testing import InProcess, in_process
from tests.broker import EmbeddedBroker
from tests.forked import ran
from tests.queue.canvas.sums import CANVASES, Sums
from tests.queue.conftest import DEADLINE_S, working

NOWHERE = "redis://nowhere.invalid/0"
START = datetime(2026, 11, 28, 6, 59, tzinfo=UTC)


@pytest.fixture
def app() -> Iterator[TaskApp]:
    with TaskApp("tested", broker=NOWHERE, result_backend=NOWHERE) as app:
        yield app


@pytest.fixture
def queue(app: TaskApp) -> Iterator[InProcess]:
    with in_process(app, start=START) as queue:
        yield queue


def test_every_canvas_gives_what_it_says(app: TaskApp, queue: InProcess) -> None:
    sums = Sums(app)
    sent = {name: make(sums).apply_async() for name, (make, _) in CANVASES.items()}
    queue.run()
    assert queue.waiting == []
    assert {name: handle.get() for name, handle in sent.items()} == {
        name: expected for name, (_, expected) in CANVASES.items()
    }
    with pytest.raises(TaskFailed, match=r"ChordError: Dependency .* raised ValueError"):
        chord([sums.same.s(1), sums.fail.s()])(sums.total.s().on_error(sums.bad.s())).get()
    queue.run()
    assert len(sums.heard) == 1


def test_tasks_run_in_this_thread_in_order_and_arguments_as_json_has_them(
    app: TaskApp, queue: InProcess
) -> None:
    seen: list[Any] = []

    @app.task(name="it")
    def it(value: Any) -> Any:
        seen.append((threading.current_thread() is threading.main_thread(), value))
        if value == "first":
            it.delay("sent by it")
        return value

    it.apply_async(("late",), priority=9)
    it.delay("first")
    last = it.delay((1, 2))
    assert seen == []
    assert [one.args for one in queue.waiting] == [("first",), ((1, 2),), ("late",)]
    assert last.state is State.PENDING
    assert queue.run() == 4
    assert seen == [(True, one) for one in ("first", [1, 2], "sent by it", "late")]
    assert last.get() == [1, 2]


def test_retries_and_etas_come_at_their_time_on_the_test_s_clock(
    app: TaskApp, queue: InProcess
) -> None:
    tried_s: list[float] = []

    @app.task(name="it", autoretry_for=(OSError,), retry_backoff=10, retry_jitter=False)
    def it() -> str:
        tried_s.append(queue.clock.now_s())
        if len(tried_s) < 3:
            raise OSError("not yet")
        return "done"

    began_s = time.monotonic()
    sent = it.delay()
    assert queue.run() == 1
    assert sent.state is State.RETRY
    assert queue.advance(9.0) == 0
    assert queue.advance(1.0) == 1
    assert queue.advance(timedelta(hours=1)) == 1
    assert (sent.get(), tried_s) == ("done", [0.0, 10.0, 30.0])
    later = it.apply_async(eta=queue.time + timedelta(days=300))
    with pytest.raises(TimeoutError, match=f"task {later.id} is PENDING after 60 s"):
        later.get(timeout=60.0)
    assert queue.time == START + timedelta(seconds=3670)
    assert later.get() == "done"
    assert queue.time == START + timedelta(days=300, seconds=3610)
    with pytest.raises(ValueError, match="a clock cannot go back"):
        queue.advance(-1.0)
    with pytest.raises(TimeoutError, match="nothing waits in the queue"):
        app.result("unknown").get()
    assert time.monotonic() - began_s < 60.0


def test_failures_refusals_and_what_may_not_begin_are_as_with_a_worker(
    app: TaskApp, queue: InProcess
) -> None:
    begun: list[str] = []

    @app.task(name="it", max_retries=1, bind=True, idempotent=False, coalesce="{what}")
    def it(context: TaskContext, what: str) -> str:
        begun.append(what)
        if what == "refuse":
            raise Refused("not now")
        if what == "retry":
            context.retry(countdown=1.0)
        if what == "requeue" and context.fence < 3:
            raise Reject("again", requeue=True)
        if what == "reject":
            raise Reject("no use")
        return f"{what} {context.fence}"

    for what, error, words in (
        ("refuse", Refused, "not now"),
        ("retry", TaskFailed, "MaxRetriesExceeded"),
        ("reject", TaskFailed, "no use"),
    ):
        with pytest.raises(error, match=words):
            it.delay(what).get()
    assert it.delay("requeue").get() == "requeue 3"
    assert begun == ["refuse", "retry", "retry", "reject", "requeue", "requeue", "requeue"]
    assert [(one.task, reason) for one, reason in queue.dead] == [("it", "no use")]

    older, newer = it.delay("one"), it.delay("one")
    with pytest.raises(Superseded):
        older.get()
    assert newer.get() == "one 1"
    late = it.apply_async(("late",), ttl_s=5.0, countdown=6.0)
    with pytest.raises(Expired, match=r"6\.000 s old, its time to live is 5 s"):
        late.get()
    revoked = it.delay("revoked")
    assert revoked.revoke() == "revoked: it had not begun, and never runs"
    with pytest.raises(Revoked):
        revoked.get()
    with pytest.raises(TaskFailed, match="no task 'unknown' in app 'tested'"):
        app.send_task("unknown").get()
    assert [one.id for one in app.results.failures(limit=1)] != []  # type: ignore[union-attr]


def test_what_is_unique_is_sent_once_in_its_time(app: TaskApp, queue: InProcess) -> None:
    it = app.task(name="it", unique_for=60.0)(lambda value: value)
    first = it.delay(1)
    assert it.delay(1) == first != it.delay(2)
    assert queue.run() == 2
    queue.advance(59.9)
    assert it.delay(1) == first
    queue.advance(0.1)
    assert it.delay(1) != first
    assert queue.run() == 1
    tries: list[bool] = []

    def fail(context: TaskContext) -> None:
        tries.append(until.delay() == again)
        context.retry(countdown=1.0, max_retries=1)

    until = app.task(name="until", bind=True, unique_until="end")(fail)
    again = until.delay()
    app.revoke(again.id)
    assert until.delay() != again
    again = until.delay()
    assert queue.run() == 2
    queue.advance(1.0)
    assert tries == [True, True]
    assert until.delay() != again
    starts: Any = app.task(name="starts", unique_until="start")(lambda: starts.delay().id)
    first = starts.delay()
    assert starts.delay() == first
    assert first.get() != first.id


def test_what_sends_itself_again_for_ever_is_an_error(app: TaskApp, queue: InProcess) -> None:
    @app.task(name="it")
    def it() -> None:
        it.delay()

    it.delay()
    with pytest.raises(RuntimeError, match="100 tasks ran, and more are due"):
        queue.run(most=100)


def test_schedules_tick_as_time_passes(app: TaskApp, queue: InProcess) -> None:
    seen: list[tuple[str, datetime]] = []

    @app.task(name="often", schedule=every("20m", args=["often"]))
    @app.task(name="daily", schedule=cron("0 7 * * *", args=["daily"]))
    def it(name: str) -> None:
        seen.append((name, queue.time))

    assert queue.advance(timedelta(hours=1)) == 4
    seven = START + timedelta(minutes=1)
    assert sorted(seen) == [
        ("daily", seven),
        *(("often", seven + timedelta(minutes=minutes)) for minutes in (0, 20, 40)),
    ]


def test_coroutines_run_in_the_test_s_own_loop_or_in_one_of_the_queue(
    app: TaskApp, queue: InProcess, recwarn: pytest.WarningsRecorder
) -> None:
    loops: list[object] = []

    async def connect() -> AsyncIterator[object]:
        loops.append(asyncio.get_running_loop())
        yield loops[-1]
        loops.append("closed")

    @app.task(name="it", bind=True)
    async def it(context: TaskContext, x: int, *, at: object = Depends(connect)) -> int:
        assert asyncio.get_running_loop() is at
        context.progress(0.5)
        await asyncio.sleep(0)
        return x

    assert it.delay(1).get() == 1
    assert it.delay(2).get() == 2
    assert loops[0] is loops[2]

    async def main() -> None:
        sent = await it.adelay(3)
        assert [one["fraction"] async for one in sent.aprogress()] == [0.5]
        assert await sent.aget() == 3
        assert loops[-2] is asyncio.get_running_loop()
        later = await it.aapply_async((4,), countdown=60.0)
        assert await queue.arun() == 0
        assert await queue.aadvance(60.0) == 1
        assert later.state is State.SUCCESS
        with pytest.raises(TimeoutError):
            await (await it.aapply_async((5,), countdown=60.0)).aget(timeout=59.0)
        assert await (await app.asend_many([it.s(6)]))[0].aget() == 6
        await it.adelay(7)
        with pytest.raises(RuntimeError, match="it is a coroutine, and a loop runs here"):
            queue.run()
        assert await queue.arun() == 1

    asyncio.run(main())
    assert not recwarn.list


def test_after_it_the_app_is_what_it_was(app: TaskApp) -> None:
    before = dict(vars(app))
    with in_process(app), pytest.raises(ConfigError, match="'tested' is in process already"):
        in_process(app).__enter__()
    assert vars(app) == before


def test_what_needs_a_server_says_so(app: TaskApp) -> None:
    app.task(name="it", requires="battery")(print)
    app.task(name="limited", concurrency_key="all")(lambda: "ran")
    with in_process(app):
        assert app.send_task("limited").get() == "ran"
        with pytest.raises(TaskFailed, match="it requires 'battery': resource pools need a server"):
            app.send_task("it").get()
        with pytest.raises(ConfigError, match="resource pools need a server"):
            app.pools["battery"].stats()


# --- as with a worker, also where that is not easy -------------------------------------------


def test_several_wait_at_once_and_time_stands_while_one_runs(
    app: TaskApp, queue: InProcess
) -> None:
    may_end = asyncio.Event()

    @app.task(name="slow")
    async def slow() -> str:
        await may_end.wait()
        return "slow"

    @app.task(name="quick")
    async def quick() -> str:
        may_end.set()
        await asyncio.sleep(0)
        return "quick"

    async def main() -> None:
        first, second = await slow.adelay(), await quick.adelay()
        waits = asyncio.gather(first.aget(timeout=5.0), second.aget(timeout=5.0))
        assert [*await waits] == ["slow", "quick"]

    asyncio.run(main())
    assert queue.clock.now_s() == 0.0


def test_who_gives_up_waiting_leaves_the_task_alone(app: TaskApp, queue: InProcess) -> None:
    ended: list[str] = []
    may_end = asyncio.Event()

    @app.task(name="it")
    async def it(name: str) -> None:
        await may_end.wait()
        ended.append(name)

    async def main() -> None:
        first, second = await it.adelay("a"), await it.adelay("b")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await queue.arun()
        assert not first.ready()
        assert [one.id for one in queue.waiting] == [second.id]
        may_end.set()
        await first.aget()
        await second.aget()
        with pytest.raises(TimeoutError, match="nothing waits in the queue"):
            await app.result("unknown").aget()

    asyncio.run(main())
    assert ended == ["a", "b"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.fail.Exception])
def test_what_is_not_for_the_task_ends_the_test(
    app: TaskApp, queue: InProcess, error: type[BaseException]
) -> None:
    @app.task(name="plain")
    def plain() -> None:
        raise error

    @app.task(name="async")
    async def awaited() -> None:
        await asyncio.sleep(0)
        raise error

    for task in (plain, awaited):
        task.delay()
        with pytest.raises(error):
            queue.run()
        assert queue.run() == 0

    async def main() -> None:
        await plain.adelay()
        await queue.arun()

    with pytest.raises(error):
        asyncio.run(main())


def test_what_was_made_before_is_not_used_in_it_nor_after(broker_server: EmbeddedBroker) -> None:
    url = broker_server.url
    with TaskApp("used", broker=url, result_backend=url, send_sent_event=True) as app:
        sums = Sums(app)
        before = chord([sums.same.s(1)])(sums.total.s())
        held = {name: vars(app)[name] for name in ("chords",)}
        with in_process(app) as queue:
            assert chord([sums.same.s(1), sums.same.s(2)])(sums.total.s()).get() == 3
            assert before.state is State.PENDING
            assert queue.waiting == []
        assert {name: vars(app)[name] for name in held} == held
        with working(app):
            assert before.get(DEADLINE_S) == 1


# --- Task.call -----------------------------------------------------------------------------------


def test_a_bound_task_is_called_with_a_context_and_no_server_is_asked(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedisResults, "write", lambda *_: pytest.fail("a server was asked"))

    @app.task(name="it", bind=True, max_retries=1)
    def it(context: TaskContext, what: str, *, by: str = "") -> tuple[Any, ...]:
        if what == "retry":
            context.retry(OSError("no"), countdown=3.0)
        if what == "again":
            context.retry(queue=context.message.queue)
        if what == "wrong":
            context.progress(0.5, of=object())
        assert not context.progress(0.5)
        assert context.age_s() is None
        return (what, by, context.message.kwargs, context.fence, context.task.name)

    @app.task(name="plain")
    async def plain(x: int) -> int:
        await asyncio.sleep(0)
        return x

    assert it.call("a", by="me") == ("a", "me", {"by": "me"}, 1, "it")
    with pytest.raises(Retry) as retry:
        it.call("retry")
    assert retry.value.countdown_s == 3.0
    with pytest.raises(Retry):
        it.call("again")
    with pytest.raises(ResultError, match="not JSON serializable"):
        it.call("wrong")
    assert asyncio.run(plain.call(3)) == 3


# --- the fixture ---------------------------------------------------------------------------------

TESTS = """
from datetime import UTC, datetime

from blimp.queue import TaskApp

app = TaskApp("tested", broker="redis://nowhere.invalid/0", result_backend="redis://nowhere.invalid/0")

@app.task(name="read")
def read(station):
    return 12.5

def test_reading(blimp_queue):
    queue = blimp_queue(app, start=datetime(2026, 1, 1, tzinfo=UTC))
    reading = read.apply_async(("EDDB",), countdown=60.0)
    assert queue.run() == 0
    queue.advance(60.0)
    assert reading.get(timeout=10.0) == 12.5
    assert queue.time == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)

def test_next(blimp_queue):
    assert blimp_queue(app).waiting == []
"""


def test_pytest_has_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    known = {one.name for one in entry_points(group="pytest11")}
    plugin = [] if "blimp_queue" in known else ["-p", "blimp.queue.pytest_plugin"]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "test_it.py"]
    done = ran(words, cwd=tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_tenants_begin_in_turn(app: TaskApp, queue: InProcess) -> None:
    order: list[str] = []

    @app.task(name="it", fair_key="{tenant}")
    def it(tenant: str, number: int) -> None:
        order.append(f"{tenant}{number}")

    app.send_many(it.s("a", number) for number in range(4))
    it.apply_async(("c", 0), countdown=1.0)
    it.delay("b", 0)
    it.delay("b", 1)
    assert queue.step()
    assert queue.step()
    queue.clock.sleep_until(queue.clock.now_s() + 2.0)
    queue.run()
    assert order == ["a0", "b0", "a1", "c0", "b1", "a2", "a3"]
