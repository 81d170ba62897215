"""How a task comes to run: order, time, prefetch, acknowledgement."""

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from blimp.errors import (
    Reject,
    TaskFailed,
)
from blimp.queue import State, TaskApp, TaskContext
from blimp.queue.protocol.message import HIGH, LOW
from blimp.queue.protocol.record import Record
from tests.queue.celery_messages import CELERY_MESSAGE, envelope
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.queue.server_view import Look
from tests.queue.two_brokers import a_hundred_done


def test_runs_plain_and_async_tasks_and_acknowledges_them(app: TaskApp, look: Look) -> None:
    with a_hundred_done(app):
        assert look.left_behind() == [b"blimp.worker.tests.worker"]
    assert look.left_behind() == []


def test_async_tasks_run_side_by_side(app: TaskApp) -> None:
    met = threading.Barrier(1)
    seen: list[int] = []
    together = asyncio.Event()

    @app.task(name="meet")
    async def meet(number: int) -> int:
        seen.append(number)
        if len(seen) == 5:
            together.set()
        await asyncio.wait_for(together.wait(), DEADLINE_S)
        return number

    with working(app):
        handles = [meet.delay(n) for n in range(5)]
        assert [handle.get(DEADLINE_S) for handle in handles] == list(range(5))
    assert met.parties == 1


def test_an_idle_worker_runs_what_a_busy_one_has_taken(app: TaskApp, look: Look) -> None:
    """Before, twenty quick tasks waited for a long one in the worker that had taken them."""
    if not app.capabilities.local_prefetch:
        pytest.skip("the server would push the same messages to the busy worker again")
    started, done = threading.Event(), threading.Event()

    @app.task(name="long")
    def long() -> None:
        started.set()
        assert done.wait(DEADLINE_S)

    @app.task(name="quick")
    def quick(number: int) -> int:
        return number

    with working(app, name="busy", sync_workers=1) as busy:
        first = long.delay()
        assert started.wait(DEADLINE_S)
        handles = [quick.delay(number) for number in range(20)]
        wait_until(lambda: busy.counts["received"] > 10, "it takes nothing ahead")
        with working(app, name="idle", sync_workers=1):
            assert [handle.get(DEADLINE_S) for handle in handles] == list(range(20))
            assert not done.is_set()
            done.set()
            first.get(DEADLINE_S)
    assert look.left_behind() == []


def test_reject_drops_or_puts_back(app: TaskApp, look: Look) -> None:
    deliveries: list[int] = []

    @app.task(name="drop")
    def drop() -> None:
        raise Reject("not for me")

    @app.task(name="back", bind=True)
    def back(context: TaskContext) -> int:
        deliveries.append(context.fence)
        if context.fence < 3:
            raise Reject("not yet", requeue=True)
        return context.fence

    with working(app) as worker:
        with pytest.raises(TaskFailed, match="Reject: not for me"):
            drop.delay().get(DEADLINE_S)
        assert back.delay().get(DEADLINE_S) == 3
        wait_until(lambda: worker.counts["done"] == 4, "not acknowledged")
    assert deliveries == [1, 2, 3]
    assert look.left_behind() == []


@pytest.mark.parametrize("acks_late", [True, False])
def test_a_task_that_may_not_begin_twice_may_ask_to(app: TaskApp, acks_late: bool) -> None:
    deliveries: list[int] = []

    @app.task(name="back", bind=True, idempotent=False, acks_late=acks_late)
    def back(context: TaskContext) -> int:
        deliveries.append(context.fence)
        if context.fence < 3:
            raise Reject("not yet", requeue=True)
        return context.fence

    with working(app):
        assert back.delay().get(DEADLINE_S) == 3
    assert deliveries == [1, 2, 3]


def test_a_failure_that_is_not_acknowledged_runs_again_though_it_may_not_begin_twice(
    app: TaskApp,
) -> None:
    deliveries: list[int] = []

    @app.task(name="back", bind=True, idempotent=False, acks_on_failure=False)
    def back(context: TaskContext) -> int:
        deliveries.append(context.fence)
        if context.fence < 2:
            raise ValueError("not yet")
        return context.fence

    @app.task(name="slow", bind=True, idempotent=False, acks_on_timeout=False, time_limit=0.2)
    async def slow(context: TaskContext) -> int:
        if context.fence < 2:
            await asyncio.sleep(DEADLINE_S)
        return context.fence

    with working(app):
        assert back.delay().get(DEADLINE_S) == 2
        assert slow.delay().get(DEADLINE_S) == 2
    assert deliveries == [1, 2]


def test_begins_at_its_eta_and_not_before(app: TaskApp) -> None:
    begun: dict[str, float] = {}

    @app.task(name="later")
    def later(name: str) -> None:
        begun[name] = app.broker_clock.now_s()

    with working(app, prefetch=1):
        sent_s = app.broker_clock.now_s()
        eta = datetime.fromtimestamp(sent_s + 0.3, UTC)
        handles = [
            later.apply_async(("countdown",), countdown=0.4),
            later.apply_async(("eta",), eta=eta),
            later.apply_async(("now",)),  # not held up by those that wait, at prefetch 1
        ]
        for handle in handles:
            handle.get(DEADLINE_S)
    assert list(begun) == ["now", "eta", "countdown"]
    assert begun["now"] - sent_s < 0.29
    assert begun["eta"] - sent_s >= 0.3
    assert begun["countdown"] - sent_s >= 0.4


def test_the_first_priority_is_served_first(app: TaskApp) -> None:
    ran: list[str] = []

    @app.task(name="note")
    def note(level: str) -> None:
        ran.append(level)

    handles = [
        note.apply_async((level,), priority=priority)
        for level, priority in (("low", LOW), ("normal", 6), ("high", HIGH), ("emergency", 0))
    ]
    with working(app, sync_workers=1):
        for handle in handles:
            handle.get(DEADLINE_S)
    assert ran == ["emergency", "high", "normal", "low"]


def test_prefetch_holds_back_and_recovers(app: TaskApp, look: Look) -> None:
    go = threading.Event()
    begun = threading.Semaphore(0)

    @app.task(name="hold")
    def hold(number: int) -> int:
        begun.release()
        go.wait(DEADLINE_S)
        return number

    handles = [hold.delay(n) for n in range(10)]
    with working(app, sync_workers=4, prefetch=3) as worker:
        for _ in range(3):
            assert begun.acquire(timeout=DEADLINE_S)
        wait_until(lambda: look.in_flight() == 3, "not three in flight")
        assert worker.counts["received"] == 3
        assert look.waiting() == 7
        go.set()
        assert [handle.get(DEADLINE_S) for handle in handles] == list(range(10))


def test_two_messages_with_one_delivery_tag_are_both_run(app: TaskApp, look: Look) -> None:
    ran = threading.Semaphore(0)

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        ran.release()
        return a + b

    for id in ("one", "two"):
        look.push("tests", envelope(task="add", id=id, args=[1, 2]))
    with working(app):
        assert app.result("one").get(DEADLINE_S) == 3
        assert app.result("two").get(DEADLINE_S) == 3
    assert look.left_behind() == []


def test_a_celery_message_is_run(app: TaskApp, look: Look) -> None:
    @app.task(name="weather.read")
    def read(station: str, n: int) -> list[Any]:
        return [station, n]

    look.push("q", CELERY_MESSAGE.replace(b"2026-11-20T13:02:31", b"2126-11-20T13:02:31"))
    with working(app, queues=("q",)):
        handle = app.result("11111111-2222-3333-4444-555555555555")
        assert handle.get(DEADLINE_S) == ["pad", 2]


def test_a_result_that_is_final_is_not_run_for_again(app: TaskApp, look: Look) -> None:
    """Killed between result and acknowledgement: only the acknowledgement is missing."""

    @app.task(name="add")
    def add() -> None:
        raise AssertionError("it ran again")

    assert app.results is not None
    app.results.store(Record(id="done", state=State.SUCCESS, result=3))
    look.push("tests", envelope(task="add", id="done", blimp_delivery=1))
    with working(app) as worker:
        wait_until(lambda: worker.counts["done"] == 1, "not acknowledged")
    assert app.result("done").get(DEADLINE_S) == 3
    assert look.left_behind() == []


def test_early_acknowledgement_is_before_the_task(app: TaskApp, look: Look) -> None:
    in_flight: list[int] = []
    runs: list[int] = []

    @app.task(name="at-most-once", acks_late=False, bind=True)
    def at_most_once(context: TaskContext) -> int:
        in_flight.append(look.in_flight())
        runs.append(context.fence)
        if context.fence == 1:
            raise Reject("once more", requeue=True)
        return 1

    with working(app):
        assert at_most_once.delay().get(DEADLINE_S) == 1
    assert in_flight == [0, 0]
    assert runs == [1, 2]
    assert look.left_behind() == []


def test_a_task_sees_how_often_it_was_delivered(app: TaskApp) -> None:
    seen: list[tuple[bool, int, int]] = []

    @app.task(name="look", bind=True)
    def look(context: TaskContext) -> None:
        seen.append((context.redelivered, context.deliveries, context.message.retries))
        if len(seen) == 1:
            raise Reject("not now", requeue=True)
        if len(seen) == 2:
            context.retry(countdown=0.0)

    with working(app):
        look.delay().get(DEADLINE_S)
    assert seen == [(False, 1, 0), (True, 2, 0), (True, 2, 1)]


@pytest.mark.parametrize("slots", [32, 150])
def test_as_many_long_tasks_run_at_once_as_there_are_threads_for(app: TaskApp, slots: int) -> None:
    """However few end in a moment: they are not taken to wait, but to run."""
    together = threading.Barrier(slots)

    @app.task(name="together")
    def wait() -> None:
        together.wait(DEADLINE_S)

    with working(app, sync_workers=slots):
        for handle in [wait.delay() for _ in range(slots)]:
            handle.get(DEADLINE_S)
