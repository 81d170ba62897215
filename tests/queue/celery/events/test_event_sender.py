"""No event is lost, under load or in an outage of the broker."""

import os
import signal
import threading
from typing import Any

import pytest
from kombu.clocks import LamportClock

from blimp.clock import SystemClock
from blimp.errors import LinkError
from blimp.queue import TaskApp
from blimp.queue.celery.events import worker_events
from blimp.queue.celery.events.event_sender import (
    Event,
    EventBuffer,
    EventExchange,
    EventSender,
    routing_key,
    write,
)
from blimp.queue.celery.events.worker_events import WorkerEvents
from blimp.queue.retry import CONNECTING, Outage
from tests.broker import EmbeddedBroker
from tests.queue.celery.events.listener import Listener
from tests.queue.conftest import DEADLINE_S, Held, Silence, wait_until, working
from tests.signals import stop_process

TASKS = 1000


class Gate:
    """A destination that can be shut, or fail."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.error: Exception | None = None
        self.sent: list[bytes] = []

    def send(self, body: bytes, *, routing_key: str) -> None:
        assert self.open.wait(DEADLINE_S)
        if self.error is not None:
            raise self.error
        self.sent.append(body)


def make_sender(buffer: EventBuffer, gate: Any, log: Any) -> EventSender:
    clock = SystemClock()
    outage = Outage(event="unreachable", clock=clock, log=log, policy=CONNECTING)
    return EventSender(
        buffer=buffer,
        send=gate.send,
        clock=LamportClock(),
        outage=outage,
        on_sent=lambda: None,
        log=log,
    )


def event(kind: str, size: int = 20) -> Event:
    return Event(kind, b'{"x":"%s"}' % (b"x" * (size - 8)))


def test_a_message_holds_events_of_one_group_in_order() -> None:
    buffer, clock = EventBuffer(), LamportClock(6)
    for kind in ("worker-online", "task-received", "task-started", "worker-heartbeat"):
        assert buffer.put(event(kind))
    batches = []
    while batch := buffer.take(most_bytes=1000):
        batches.append(batch)
    assert [routing_key(batch) for batch in batches] == [
        "worker.online", "task.multi", "worker.heartbeat",
    ]  # fmt: skip
    assert write(batches[0], clock=clock).startswith(b'{"clock":7,"x":')
    assert write(batches[1], clock=clock).startswith(b'[{"clock":8,"x":')
    assert buffer.size_bytes == 0


def test_a_message_is_no_longer_than_asked_for_unless_one_event_is() -> None:
    buffer = EventBuffer()
    for size in (60, 40, 500, 10):
        buffer.put(event("task-sent", size))
    taken = []
    while batch := buffer.take(most_bytes=100):
        taken.append([len(one.data) for one in batch])
    assert taken == [[60, 40], [500], [10]]


def test_dropped_events_are_counted() -> None:
    buffer = EventBuffer(limit_bytes=100)
    assert [buffer.put(event("task-sent", 40)) for _ in range(3)] == [True, True, False]
    assert buffer.dropped == 1
    assert buffer.drop(count=1) == 3
    assert buffer.dropped == 4
    buffer.close()
    assert not buffer.put(event("task-sent"))
    assert not buffer.wait()


def test_it_waits_for_an_unreachable_broker_but_not_for_one_that_refuses() -> None:
    buffer, gate, log = EventBuffer(), Gate(), Silence()
    sender = make_sender(buffer, gate, log)
    gate.error = LinkError("unreachable")
    gate.open.set()
    sender.start()
    buffer.put(event("task-sent"))
    wait_until(lambda: log.events("unreachable"), "the outage is not reported")
    assert not sender.is_flowing
    gate.error = ValueError("not this one")
    wait_until(lambda: buffer.dropped == 1, "what is refused is not given up")
    gate.error = None
    buffer.put(event("task-sent"))
    sender.close(within_s=DEADLINE_S)
    assert len(gate.sent) == 1
    assert log.events("events refused") == [{"events": 1}]


def test_unsent_events_count_as_dropped_at_the_end() -> None:
    buffer, gate = EventBuffer(), Gate()
    sender = make_sender(buffer, gate, Silence())
    gate.error = LinkError("unreachable")
    gate.open.set()
    sender.start()
    for kind in ("task-sent", "worker-offline"):
        buffer.put(event(kind))
    sender.close(within_s=0.1)
    wait_until(lambda: buffer.dropped == 2, "not counted")


@pytest.mark.parametrize("transport", ["streams"])  # what holds back is above the transports
def test_tasks_are_held_back_while_their_events_have_no_room(
    app: TaskApp, url: str, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(name="noop", ignore_result=True)
    def noop() -> None: ...

    gate = Gate()
    monkeypatch.setattr(worker_events, "HOLD_BYTES", 10_000)
    with Listener(url, transport=transport) as listener:
        real = EventExchange(app, hostname="worker")

        class Slow(Gate):
            def send(self, body: bytes, *, routing_key: str) -> None:
                assert gate.open.wait(DEADLINE_S)
                real.send(body, routing_key=routing_key)

        monkeypatch.setattr(worker_events, "EventExchange", lambda *_, **__: Slow())
        with working(app, events=True) as worker:
            for _ in range(TASKS):
                noop.delay()
            wait_until(lambda: worker.counts["done"] > 10, "nothing runs")
            worker.in_flight.wait_empty(DEADLINE_S, unless=lambda: False)
            wait_until(lambda: worker.in_flight.room() == 0, "it is not held back")
            held_at = worker.counts["done"]
            assert held_at < TASKS / 2
            gate.open.set()
            wait_until(lambda: worker.counts["done"] == TASKS, "it does not go on")
        listener.wait_type("worker-offline")
    check_complete(listener, TASKS)
    assert worker.counts["events_dropped"] == 0


def check_complete(listener: Listener, tasks: int) -> None:
    """Fail unless every event of so many tasks arrived, once and in order."""
    heard: dict[str, list[str]] = {}
    for one in listener.events:
        if one["type"].startswith("task-"):
            heard.setdefault(one["uuid"], []).append(one["type"])
    assert len(heard) == tasks
    whole = ["task-received", "task-started", "task-succeeded"]
    assert [types for types in heard.values() if types != whole] == []
    clocks = [one["clock"] for one in listener.events]
    assert clocks == sorted(set(clocks))


def test_an_outage_loses_no_event(own_broker: EmbeddedBroker, transport: str) -> None:
    """The task ends while the broker is stopped."""
    url = own_broker.url
    held = Held()
    with TaskApp("tests", broker=url, timeout_s=0.5) as app:
        waits = app.task(name="waits", ignore_result=True)(held.run)
        log = Silence()
        with (
            Listener(url, transport=transport) as listener,
            working(app, events=True, log=log) as worker,
        ):
            id = waits.delay().id
            assert held.began.wait(DEADLINE_S)
            listener.wait_types(id, "task-received", "task-started")
            stop_process(own_broker.pid)
            try:
                worker.extension(WorkerEvents).heartbeat()
                held.go.set()
                wait_until(lambda: log.events("events not sent"), "it does not notice")
            finally:
                os.kill(own_broker.pid, signal.SIGCONT)
            listener.wait(lambda: "task-succeeded" in listener.types(id))
        assert worker.counts["events_dropped"] == 0
