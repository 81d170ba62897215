"""Requests to stop, and what becomes of what is in flight then: without a process."""

import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from blimp.clock import ManualClock
from blimp.errors import LinkError
from blimp.queue import TaskApp
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.worker import shutdown
from blimp.queue.worker.in_flight import InFlight
from blimp.queue.worker.job import Job
from blimp.queue.worker.shutdown import Drain, Stops, Wear
from tests.queue.conftest import DEADLINE_S, Silence

NOWHERE = "redis+socket:///nowhere?virtual_host=0"


def asked(*requests: str) -> Stops:
    """Return what has come of these requests, in order, before the worker ended."""
    done = threading.Semaphore(0)
    stops = Stops()
    stops.start(on_request=done.release)
    for one in requests:
        if one in ("warm", "cold"):
            getattr(stops, one)()
        else:
            stops.restart(one)
        assert done.acquire(timeout=DEADLINE_S)
    return stops


@pytest.mark.parametrize(
    ("requests", "stopping", "abandoned", "restart"),
    [
        ((), False, False, None),
        (("warm",), True, False, None),
        (("warm", "warm"), True, True, None),
        (("cold",), True, True, None),
        (("old",), True, False, "old"),
        (("old", "large"), True, False, "old"),
        (("old", "warm"), True, False, None),  # a stop has the last word
        (("warm", "old"), True, False, None),
    ],
)
def test_a_second_stop_is_cold_and_a_stop_overrides_a_restart(
    requests: tuple[str, ...], stopping: bool, abandoned: bool, restart: str | None
) -> None:
    stops = asked(*requests)
    found = stops.stopping.is_set(), stops.abandoned.is_set(), stops.restart_reason
    stops.close()
    assert found == (stopping, abandoned, restart)
    assert stops.abandoned.is_set()


def test_a_process_is_replaced_after_so_many_tasks_or_above_so_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wear = Wear(max_tasks=3, max_memory_mb=None)
    assert [bool(wear.count()) for _ in range(3)] == [False, False, True]
    monkeypatch.setattr(shutdown, "resident_bytes", lambda _: 50_000_001)
    assert Wear(max_tasks=None, max_memory_mb=50.0).count() == "50 MB are in use, the limit is 50"
    assert Wear(max_tasks=None, max_memory_mb=51.0).count() is None


# --- what is in flight ---------------------------------------------------------------------------


class Draining:
    """A worker that was asked to stop, with jobs that run and jobs that wait."""

    def __init__(self, *, waiting_go_back: bool = True) -> None:
        self.app = TaskApp("ship", broker=NOWHERE, timeout_s=0.01)
        self.done: list[str] = []
        self.stops = Stops()
        self.in_flight = InFlight(
            clock=ManualClock(), prefetch=9, stopping=self.stops.stopping, slots=lambda _: 1
        )
        self._go_back = waiting_go_back
        consumer_loop: Any = SimpleNamespace(requeue_waiting=self.requeue_waiting)
        self.drain = Drain(
            app=self.app,
            consumer_loop=consumer_loop,
            in_flight=self.in_flight,
            stops=self.stops,
            counts=Counter(),
            grace_s=0.0,
            log=Silence(),
        )

    def requeue_waiting(self) -> None:
        self.done.append("waiting")
        if not self._go_back:
            raise LinkError("unreachable")

    def add(self, name: str, *, runs: bool = True, **options: Any) -> Job:
        task = self.app.task(name=name, **options)(lambda: None)
        delivery: Any = SimpleNamespace(tag=name, requeue=lambda: self.done.append(f"put {name}"))
        job = Job(message=TaskMessage(id=name, task=name), task=task, delivery=delivery)
        call: Any = SimpleNamespace(cancel=lambda: self.done.append(f"end {name}"))
        self.in_flight.take(job, wait_s=0.0)
        if runs:
            assert job.begin()
            job.call = call
        return job


def test_what_does_not_end_is_cut_off_and_only_what_may_run_again_is_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draining = Draining()
    monkeypatch.setattr(
        shutdown, "clear_begun", lambda _, message: draining.done.append(f"clear {message.id}")
    )
    draining.add("again")
    draining.add("marked", reject_on_worker_lost=True)
    draining.add("once", acks_late=False)
    draining.add("move", idempotent=False)
    draining.drain.run()
    again, marked = ["end again", "put again"], ["end marked", "clear marked", "put marked"]
    assert draining.done == ["waiting", *again, *marked, "end once", "end move"]
    assert draining.in_flight.jobs() == []
    assert draining.stops.abandoned.is_set()


def test_what_waits_without_a_broker_is_delivered_again_by_itself() -> None:
    draining = Draining(waiting_go_back=False)
    job = draining.add("waits", runs=False)
    draining.drain.run()
    assert draining.done == ["waiting"]
    assert not job.begin()
    assert draining.in_flight.jobs() == []


def test_a_restart_cuts_no_task_off() -> None:
    draining = Draining()
    job = draining.add("long")
    draining.stops.start(on_request=lambda: None)
    draining.stops.restart("old")
    assert draining.stops.stopping.wait(DEADLINE_S)
    thread = threading.Thread(target=draining.drain.run)
    thread.start()
    thread.join(0.1)  # far longer than its grace
    assert thread.is_alive()
    assert draining.done == ["waiting"]
    assert job.finish()
    draining.in_flight.release(job)
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    draining.stops.close()
