"""How a task comes to run: order, time, prefetch, acknowledgement."""

import asyncio
import threading
from datetime import UTC, datetime

import pytest

from blimp.errors import (
    Reject,
    TaskFailed,
)
from blimp.queue import State, TaskApp, TaskContext
from blimp.queue.protocol.record import Record
from tests.queue.celery_messages import envelope
from tests.queue.conftest import DEADLINE_S, Held, wait_until, working
from tests.queue.server_view import Look
from tests.queue.two_brokers import a_hundred_done


def test_runs_plain_and_async_tasks_and_acknowledges_them(app: TaskApp, look: Look) -> None:
    with a_hundred_done(app):
        assert look.left_behind() == [b"blimp.fleet.tests", b"blimp.worker.tests.worker"]
    assert look.left_behind() == []


def test_an_idle_worker_runs_what_a_busy_one_has_taken(app: TaskApp, look: Look) -> None:
    """Before, twenty quick tasks waited for a long one in the worker that had taken them."""
    if not app.capabilities.local_prefetch:
        pytest.skip("the server would push the same messages to the busy worker again")
    held = Held()
    long = app.task(name="long")(held.run)

    @app.task(name="quick")
    def quick(number: int) -> int:
        return number

    with working(app, name="busy", sync_workers=1) as busy:
        first = long.delay()
        assert held.began.wait(DEADLINE_S)
        handles = [quick.delay(number) for number in range(20)]
        wait_until(lambda: busy.counts["received"] > 10, "it takes nothing ahead")
        with working(app, name="idle", sync_workers=1):
            assert [handle.get(DEADLINE_S) for handle in handles] == list(range(20))
            assert not held.go.is_set()
            held.go.set()
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


def test_a_result_that_is_final_is_not_run_for_again(app: TaskApp, look: Look) -> None:
    """Killed between result and acknowledgement: only the acknowledgement is missing."""
    runs: list[int] = []

    @app.task(name="add")
    def add() -> None:
        runs.append(1)

    assert app.results is not None
    app.results.store(Record(id="done", state=State.SUCCESS, result=3))
    look.push("tests", envelope(task="add", id="done", blimp_delivery=1))
    with working(app) as worker:
        wait_until(lambda: worker.counts["done"] == 1, "not acknowledged")
    assert (app.result("done").get(DEADLINE_S), runs) == (3, [])
    assert look.left_behind() == []


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
