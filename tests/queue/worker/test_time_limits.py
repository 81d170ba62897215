"""Alarms: in order of time, cancelled in any order, and none after the end."""

import sys
import threading
from collections.abc import Callable
from functools import partial

from blimp.clock import ManualClock, SystemClock
from blimp.queue.worker.time_limits import MANY, Alarms
from tests.queue.conftest import DEADLINE_S, Silence


def test_they_go_off_in_order_and_one_that_raises_stops_no_other() -> None:
    clock, log = ManualClock(), Silence()
    alarms = Alarms(clock=clock, log=log)
    heard: list[str] = []
    done = threading.Event()

    def fails() -> None:
        heard.append("b")
        raise OSError("no")

    alarms.set(0.06, done.set)
    alarms.set(0.04, lambda: heard.append("c"))
    alarms.set(0.0, lambda: heard.append("a"))
    alarms.set(0.02, fails)
    clock.advance(1.0)  # all were set at one time, however long that took
    assert done.wait(DEADLINE_S)
    alarms.close()
    assert heard == ["a", "b", "c"]
    assert len(log.events("alarm")) == 1


def test_what_is_cancelled_does_not_go_off_and_does_not_pile_up() -> None:
    alarms = Alarms(clock=SystemClock(), log=Silence())
    heard: list[int] = []
    busy, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        go_on.wait(DEADLINE_S)

    alarms.set(0.0, hold)  # none goes off before it can be cancelled
    assert busy.wait(DEADLINE_S)
    for number in range(20 * MANY):
        alarm = alarms.set(3600.0 if number % 2 else 0.01, partial(heard.append, number))
        alarms.cancel(alarm)
        alarms.cancel(alarm)
    assert len(alarms._heap) <= 2 * MANY + 2
    alarms.set(0.05, done.set)
    go_on.set()
    assert done.wait(DEADLINE_S)
    assert heard == []
    alarms.close()
    alarms.close()
    assert alarms._thread is not None
    assert not alarms._thread.is_alive()
    alarms.set(0.0, lambda: heard.append(0))
    assert heard == []


def test_no_thread_before_the_first() -> None:
    alarms = Alarms(clock=SystemClock(), log=Silence())
    assert alarms._thread is None
    alarms.close()


def test_one_that_is_centuries_off_stops_no_other() -> None:
    alarms = Alarms(clock=SystemClock(), log=Silence())
    done = threading.Event()
    waits = threading.Event()
    alarms._changed.wait = _telling(alarms._changed.wait, waits)  # type: ignore[method-assign]
    alarms.set(1e15, lambda: None)
    assert waits.wait(DEADLINE_S)
    alarms.set(0.01, done.set)
    assert done.wait(DEADLINE_S)
    alarms.close()


def test_one_that_exits_stops_no_other() -> None:
    log = Silence()
    alarms = Alarms(clock=SystemClock(), log=log)
    done = threading.Event()
    alarms.set(0.0, partial(sys.exit, 3))
    alarms.set(0.02, done.set)
    assert done.wait(DEADLINE_S)
    alarms.close()
    assert len(log.events("alarm")) == 1


def _telling(wait: Callable[..., bool], reported: threading.Event) -> Callable[..., bool]:
    def telling(timeout: float | None = None) -> bool:
        reported.set()
        return wait(timeout)

    return telling
