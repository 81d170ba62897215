"""Alarms: in order of time, cancelled in any order, and none after the end."""

import sys
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from blimp.clock import ManualClock, SystemClock
from blimp.queue import TaskApp
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.worker.job import MANY, TO_END_S, Alarms, Job, Limits, limits_of
from tests.queue.conftest import DEADLINE_S, Silence, wait_until


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


class Function:
    """A run that says what its limits did; it ends if it `can_end`."""

    def __init__(self, *, can_end: bool) -> None:
        self._can_end = can_end
        self.heard: list[str] = []

    def interrupt(self) -> None:
        self.heard.append("soft")

    def cancel(self) -> bool:
        self.heard.append("hard")
        return self._can_end


@pytest.mark.parametrize("can_end", [True, False])
def test_a_soft_limit_interrupts_a_hard_one_ends_and_what_does_not_end_is_stuck(
    can_end: bool,
) -> None:
    clock, stuck = ManualClock(), threading.Event()
    alarms = Alarms(clock=clock, log=Silence())
    function = Function(can_end=can_end)
    job: Any = SimpleNamespace(call=function, timed_out_s=None)
    limits = Limits(alarms=alarms)
    with limits.watch(job, hard_s=0.05, soft_s=0.02, on_stuck=lambda _: stuck.set()):
        clock.advance(0.05)
        if can_end:  # it hears so, and goes on
            wait_until(lambda: function.heard == ["soft", "hard"], "it is not ended")
            assert not stuck.is_set()
            clock.advance(TO_END_S)
            alarms.set(0.0, lambda: None)
        assert stuck.wait(DEADLINE_S)
    assert (function.heard, job.timed_out_s) == (["soft", "hard"], 0.05)
    alarms.close()


def test_what_has_ended_has_no_limit_any_more() -> None:
    clock, done = ManualClock(), threading.Event()
    alarms = Alarms(clock=clock, log=Silence())
    function = Function(can_end=True)
    job: Any = SimpleNamespace(call=function, timed_out_s=None)
    with Limits(alarms=alarms).watch(job, hard_s=0.03, soft_s=0.02, on_stuck=lambda _: None):
        pass
    alarms.set(0.04, done.set)
    clock.advance(1.0)
    assert done.wait(DEADLINE_S)
    assert (function.heard, job.timed_out_s) == ([], None)
    alarms.close()


def test_the_limits_of_a_message_come_before_those_of_its_task() -> None:
    app = TaskApp("ship", broker="redis+socket:///nowhere?virtual_host=0")
    task = app.task(name="t", time_limit=9.0, soft_time_limit=8.0)(lambda: None)
    delivery: Any = None
    for given, expected in (((None, None), (9.0, 8.0)), ((5.0, 4.0), (5.0, 4.0))):
        message = TaskMessage(id="a", task="t", timelimit=given)
        assert limits_of(Job(message=message, task=task, delivery=delivery)) == expected


def _telling(wait: Callable[..., bool], reported: threading.Event) -> Callable[..., bool]:
    def telling(timeout: float | None = None) -> bool:
        reported.set()
        return wait(timeout)

    return telling
