"""Messages that are too old when their task would begin."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from blimp.errors import (
    Expired,
)
from blimp.queue import State, TaskApp
from tests.queue.conftest import DEADLINE_S, wait_until, working


def test_what_is_too_old_does_not_begin(app: TaskApp) -> None:
    ran: list[int] = []

    @app.task(name="move")
    def move(number: int) -> int:
        ran.append(number)
        return number

    stale = move.apply_async((1,), ttl_s=0.01)
    late = move.apply_async((2,), expires=0.01)
    past = move.apply_async((3,), expires=datetime.now(UTC) - timedelta(seconds=1))
    fresh = move.apply_async((4,), ttl_s=60.0, expires=60.0)
    born_s = app.broker_clock.now_s()
    wait_until(lambda: app.broker_clock.now_s() > born_s + 0.02, "the clock stands")
    with working(app):
        with pytest.raises(Expired, match=r"s old, its time to live is 0\.01 s"):
            stale.get(DEADLINE_S)
        for handle in (late, past):
            with pytest.raises(Expired, match="s past its expiry"):
                handle.get(DEADLINE_S)
        assert fresh.get(DEADLINE_S) == 4
    assert stale.state is State.EXPIRED
    assert ran == [4]


def test_age_is_judged_where_the_task_would_begin_not_where_it_was_taken(app: TaskApp) -> None:
    """A message waits behind a busy executor until it is stale: it must not begin then."""
    go, busy = threading.Event(), threading.Event()

    @app.task(name="hold")
    def hold() -> None:
        busy.set()
        go.wait(DEADLINE_S)

    @app.task(name="move")
    def move() -> None:
        raise AssertionError("it began though stale")

    with working(app, sync_workers=1) as worker:
        hold.delay()
        assert busy.wait(DEADLINE_S)
        stale = move.apply_async(ttl_s=0.05)
        wait_until(lambda: worker.counts["received"] == 2, "not taken")
        born_s = app.broker_clock.now_s()
        wait_until(lambda: app.broker_clock.now_s() > born_s + 0.1, "the clock stands")
        go.set()
        assert stale.wait(DEADLINE_S).state is State.EXPIRED


def test_age_is_measured_on_the_brokers_clock(url: str) -> None:
    """A worker whose own clock is a year off judges as if it were right."""
    from blimp.clock import SystemClock

    class Wrong(SystemClock):
        def wall_s(self) -> float:
            return super().wall_s() + 365 * 86_400

    with TaskApp("tests", broker=url, result_backend=url, clock=Wrong()) as app:

        @app.task(name="move")
        def move() -> str:
            return "moved"

        with working(app):
            assert move.apply_async(ttl_s=30.0, expires=30.0).get(DEADLINE_S) == "moved"
