"""What is in flight: how much is taken for each executor, and when that ends."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from blimp.clock import ManualClock
from blimp.queue import TaskApp
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.worker.in_flight import (
    AHEAD_S,
    FULL_S,
    LEAST,
    MOST,
    AdaptivePrefetch,
    InFlight,
)  # fmt: skip
from blimp.queue.worker.job import Job

PREFETCH = 4


@pytest.fixture
def app() -> TaskApp:
    app = TaskApp("ship", broker="redis+socket:///nowhere?virtual_host=0")
    app.task(name="plain")(lambda: None)

    @app.task(name="async")
    async def other() -> None: ...

    app.task(name="cpu", cpu_bound=True)(lambda: None)
    return app


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def make_in_flight(app: TaskApp, clock: ManualClock, *tasks: str) -> InFlight:
    in_flight = InFlight(clock=clock, prefetch=PREFETCH, stopping=threading.Event())
    in_flight.expect(app.tasks[name] for name in tasks)
    return in_flight


def take(
    in_flight: InFlight, app: TaskApp, task: str, count: int, *, wait_s: float = 0.0
) -> list[Job]:
    jobs = []
    for _ in range(count):
        delivery: Any = SimpleNamespace(tag=f"{id(app)}-{len(in_flight.jobs())}-{task}")
        message = TaskMessage(id="x", task=task)
        job = Job(message=message, task=app.tasks[task], delivery=delivery)
        in_flight.take(job, wait_s=wait_s)
        jobs.append(job)
    return jobs


def test_with_one_kind_of_task_it_holds_back_at_prefetch(app: TaskApp, clock: ManualClock) -> None:
    in_flight = make_in_flight(app, clock, "plain")
    assert in_flight.room() == 4
    assert in_flight.limit() == 4
    jobs = take(in_flight, app, "plain", 4)
    assert in_flight.room() == 0
    in_flight.release(jobs[0])
    in_flight.release(jobs[0])
    assert in_flight.room() == 1


def test_a_full_executor_leaves_room_for_the_others_up_to_a_limit(
    app: TaskApp, clock: ManualClock
) -> None:
    in_flight = make_in_flight(app, clock, "plain", "async", "cpu")
    jobs = take(in_flight, app, "cpu", 4)
    assert in_flight.room() == 4
    jobs += take(in_flight, app, "cpu", 3)  # more of what cannot run now
    assert in_flight.room() == 1
    jobs += take(in_flight, app, "cpu", 1)
    assert in_flight.room() == 0
    assert in_flight.limit() == 8
    in_flight.release(jobs[0])
    assert in_flight.room() == 1
    take(in_flight, app, "async", 1)
    assert in_flight.room() == 1  # it runs: nothing is in its way
    for job in jobs:
        in_flight.release(job)
    assert in_flight.room() == 4


def test_with_all_executors_full_it_holds_back(app: TaskApp, clock: ManualClock) -> None:
    in_flight = make_in_flight(app, clock, "plain", "cpu")
    take(in_flight, app, "cpu", 4)
    plain = take(in_flight, app, "plain", 4)
    assert in_flight.room() == 0
    in_flight.release(plain[0])
    assert in_flight.room() == 1


def test_what_waits_for_its_time_does_not_count_until_it_comes(
    app: TaskApp, clock: ManualClock
) -> None:
    in_flight = make_in_flight(app, clock, "plain")
    jobs = take(in_flight, app, "plain", 3, wait_s=1.0)
    assert (in_flight.room(), in_flight.waiting(), in_flight.limit()) == (4, 3, 7)
    in_flight.release(jobs[0])  # lost, before its time
    assert (in_flight.room(), in_flight.waiting(), in_flight.limit()) == (4, 2, 6)
    assert in_flight.due() == []
    clock.advance(1.0)
    assert in_flight.due() == jobs[1:]
    assert in_flight.due() == []
    assert (in_flight.room(), in_flight.waiting(), in_flight.limit()) == (2, 0, 4)


def test_a_task_of_a_kind_that_was_not_expected_counts_too(
    app: TaskApp, clock: ManualClock
) -> None:
    in_flight = make_in_flight(app, clock, "plain")
    take(in_flight, app, "async", 1)
    take(in_flight, app, "plain", 4)
    assert in_flight.room() == 3


def test_what_has_run_and_waits_to_be_written_makes_room_up_to_a_limit(
    app: TaskApp, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk is to have many in one commit; an unreachable one is not to fill the worker."""
    monkeypatch.setattr("blimp.queue.worker.in_flight.MOST_WRITING", 3)
    in_flight = make_in_flight(app, clock, "plain")
    jobs = take(in_flight, app, "plain", 4)
    for job in jobs:
        in_flight.ran(job)
        in_flight.ran(job)
    assert in_flight.room() == 3
    assert in_flight.limit() == 7
    assert in_flight.waiting() == 0
    assert not any(in_flight.is_scheduled(job) for job in jobs)
    jobs += take(in_flight, app, "plain", 3)
    assert in_flight.room() == 0
    in_flight.release(*jobs[:4])
    assert in_flight.room() == 1
    in_flight.release(*jobs)
    assert in_flight.room() == 4
    assert in_flight.jobs() == []


def test_it_follows_what_ends_within_its_limits() -> None:
    clock = ManualClock()
    ahead = AdaptivePrefetch(clock=clock)
    assert ahead.limit() == LEAST
    ahead.ended(120)
    assert ahead.limit() == LEAST, "not before the moment is over"
    clock.advance(2.0 * AHEAD_S)
    assert ahead.limit() == 60
    ahead.ended(10_000)
    clock.advance(2.0 * AHEAD_S)
    assert ahead.limit() == MOST
    clock.advance(10.0)  # a long task
    ahead.ended(1)
    assert ahead.limit() == LEAST


def test_nothing_is_taken_while_the_worker_stops_or_is_held(
    app: TaskApp, clock: ManualClock
) -> None:
    stopping = threading.Event()
    in_flight = InFlight(clock=clock, prefetch=PREFETCH, stopping=stopping)
    in_flight.held_by = lambda: True
    assert (in_flight.room(), in_flight.wait_for_room(0.0)) == (0, False)
    in_flight.held_by = bool
    assert (in_flight.room(), in_flight.wait_for_room(0.0)) == (PREFETCH, True)
    stopping.set()
    assert (in_flight.room(), in_flight.wait_for_room(0.0)) == (0, False)


def test_who_loses_a_delivery_ends_its_job_and_forgets_one_that_waits(
    app: TaskApp, clock: ManualClock
) -> None:
    in_flight = make_in_flight(app, clock, "plain")
    runs, waits = take(in_flight, app, "plain", 2)
    (later,) = take(in_flight, app, "plain", 1, wait_s=1.0)
    assert runs.begin()
    for job in (runs, waits, later):
        assert in_flight.lose(job.delivery.tag) is job
    assert [job.is_lost for job in (runs, waits, later)] == [True] * 3
    assert in_flight.jobs() == [runs]  # until its function has ended
    clock.advance(1.0)
    assert in_flight.due() == []
    assert in_flight.lose("unknown") is None


def test_what_waits_for_a_full_pool_is_overdue_after_a_second(
    app: TaskApp, clock: ManualClock
) -> None:
    in_flight = InFlight(
        clock=clock, prefetch=PREFETCH, stopping=threading.Event(), slots=lambda _: 2
    )
    in_flight.expect([app.tasks["plain"]])
    jobs = take(in_flight, app, "plain", 4)
    for job in jobs[:2]:
        assert job.begin()
    clock.advance(0.9 * FULL_S)
    assert in_flight.overdue() == []
    in_flight.release(jobs[0])
    clock.advance(0.9 * FULL_S)
    assert in_flight.overdue() == []  # one has ended meanwhile
    assert jobs[2].begin()
    assert in_flight.patience_s(5.0) == pytest.approx(0.1 * FULL_S)
    clock.advance(0.2 * FULL_S)
    assert in_flight.overdue() == [jobs[3]]
    assert in_flight.overdue() == []  # it is kept: no other worker is there
    clock.advance(1.1 * FULL_S)
    assert in_flight.overdue() == [jobs[3]]
    in_flight.release(jobs[3])  # it went back
    in_flight.hold(jobs[3].place)
    assert (in_flight.room(), in_flight.overdue()) == (0, [])
    in_flight.release(jobs[1])
    assert in_flight.room() == PREFETCH - 1
