"""A worker whose clock is an hour off, and steps: times are the broker's."""

import datetime as dt
import time
from typing import Any

import pytest

from blimp.clock import SystemClock
from blimp.queue import State, TaskApp
from blimp.queue.results.handle import AsyncResult
from tests.queue.conftest import DEADLINE_S, working

HOUR_S = 3600.0


class Stepped(SystemClock):
    """This machine's clock, with the time of day as wrong as a test sets it."""

    def __init__(self, offset_s: float) -> None:
        self.offset_s = offset_s

    def wall_s(self) -> float:
        return time.time() + self.offset_s


@pytest.fixture
def mine(url: str) -> Any:
    """A sender whose clock is right."""
    with TaskApp("tests", broker=url, result_backend=url) as app:
        yield app


def outcome(handle: AsyncResult) -> State:
    return handle.wait(DEADLINE_S).state


@pytest.mark.parametrize("offset_s", [-HOUR_S, HOUR_S])
def test_times_hold(
    url: str, mine: TaskApp, offset_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Stepped(offset_s)
    began: list[float] = []
    with TaskApp("tests", broker=url, result_backend=url, clock=clock) as app:
        app.task(name="note")(lambda: began.append(time.monotonic()))
        with working(app):
            now = dt.datetime.now(dt.UTC)
            sent_s = time.monotonic()
            in_time: list[dict[str, Any]] = [
                {"countdown": 0.3},
                {"eta": now + dt.timedelta(seconds=0.3)},
                {"ttl_s": 600.0},
                {"expires": 600.0},
                {"expires": now + dt.timedelta(seconds=600.0)},
            ]
            handles = [mine.send_task("note", **options) for options in in_time]
            handles.append(app.send_task("note", countdown=0.3))  # sent by the one that is wrong
            assert {outcome(handle) for handle in handles} == {State.SUCCESS}
            assert sorted(began)[-3] - sent_s >= 0.15  # three were to wait
            assert max(began) - sent_s < DEADLINE_S
            clock.offset_s = -offset_s  # it steps while it works
            late: list[dict[str, Any]] = [
                {"expires": now - dt.timedelta(seconds=1.0)},
                {"expires": 0.1, "countdown": 0.3},
                {"ttl_s": 0.1, "countdown": 0.3},
            ]
            assert {outcome(mine.send_task("note", **options)) for options in late} == {
                State.EXPIRED
            }
            assert outcome(mine.send_task("note", countdown=0.2, ttl_s=30.0)) is State.SUCCESS
