"""The events of a worker and its tasks, as a receiver gets them."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator

import pytest

from blimp.queue import TaskApp, Worker
from blimp.queue.broadcast.extension import ControlExtension
from blimp.queue.celery.events.worker_events import WorkerEvents
from blimp.queue.celery.kombu_broker import MemoryBroker
from blimp.queue.results.handle import AsyncResult
from tests.queue.celery.events.listener import Listener
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working


@pytest.fixture
def listener(url: str, transport: str) -> Iterator[Listener]:
    with Listener(url, transport=transport) as listener:
        yield listener


def test_a_task_has_events_from_its_arrival_to_its_end(app: TaskApp, listener: Listener) -> None:
    @app.task(name="add")
    def add(a: int, *, b: int) -> int:
        return a + b

    with working(app, events=True) as worker:
        online = listener.wait_type("worker-online")
        result = add.delay(2, b=3)
        received, started, ended = listener.wait_types(
            result.id, "task-received", "task-started", "task-succeeded"
        )
        worker.extension(WorkerEvents).heartbeat()
        beat = listener.wait_type("worker-heartbeat")
    offline = listener.wait_type("worker-offline")
    assert (
        received.items()
        >= {
            "name": "add",
            "args": "(2,)",
            "kwargs": "{'b': 3}",
            "root_id": result.id,
            "parent_id": None,
            "retries": 0,
            "eta": None,
            "expires": None,
            "hostname": "worker",
            "pid": os.getpid(),
        }.items()
    )
    assert ended["result"] == "5"
    assert 0.0 <= ended["runtime"] < DEADLINE_S
    reported = [online, received, started, ended, beat, offline]
    assert [event["clock"] for event in reported] == sorted({event["clock"] for event in reported})
    assert received["timestamp"] <= started["timestamp"] <= ended["timestamp"]
    assert ended["timestamp"] - started["timestamp"] == pytest.approx(ended["runtime"], abs=1e-3)
    for event in (online, beat, offline):
        assert event["sw_ident"] == "blimp"
        assert event["freq"] > 0.0
        assert len(event["loadavg"]) == 3
    assert (online["active"], online["processed"]) == (0, 0)
    assert offline["processed"] == 1


def test_a_revoked_task_has_its_event(app: TaskApp, listener: Listener) -> None:
    began = threading.Event()

    @app.task(name="waits")
    async def waits() -> None:
        began.set()
        await asyncio.sleep(3600)

    with working(app, events=True) as worker:
        assert worker.extension(ControlExtension).broadcasts.wait_listening(DEADLINE_S)
        result = waits.delay()
        assert began.wait(DEADLINE_S)
        app.revoke(result.id, terminate=True)
        ended = listener.wait_types(result.id, "task-received", "task-started", "task-revoked")[-1]
    assert (ended["terminated"], ended["expired"]) == (True, False)


def settle(worker: Worker, result: AsyncResult) -> None:
    """Wait until the task and its observers are done."""
    result.get(timeout=DEADLINE_S)
    worker.in_flight.wait_empty(DEADLINE_S, unless=lambda: False)


def test_nothing_is_sent_until_events_are_enabled(app: TaskApp, listener: Listener) -> None:
    @app.task(name="noop")
    def noop() -> None: ...

    with working(app) as worker:
        assert not worker.extension(WorkerEvents).is_enabled
        unheard = noop.delay()
        settle(worker, unheard)
        worker.extension(WorkerEvents).heartbeat()
        assert "events" not in {thread.name for thread in threading.enumerate()}
        assert worker.extension(WorkerEvents).enable()
        assert not worker.extension(WorkerEvents).enable()
        listener.wait_type("worker-online")
        heard = noop.delay()
        listener.wait_types(heard.id, "task-received", "task-started", "task-succeeded")
        assert worker.extension(WorkerEvents).disable()
        assert not worker.extension(WorkerEvents).disable()
        again = noop.delay()
        settle(worker, again)
        worker.extension(WorkerEvents).heartbeat()
        listener.wait_type("worker-heartbeat")
        assert worker.extension(WorkerEvents).enable()
    listener.wait_type("worker-offline")
    assert listener.of(unheard.id) == listener.of(again.id) == []
    assert listener.events[0]["type"] == "worker-online"


def test_a_sender_announces_its_tasks(app: TaskApp, url: str, listener: Listener) -> None:
    with TaskApp("tests", broker=url, send_sent_event=True) as sender:
        id = sender.send_task("elsewhere", [1]).id
        (sent,) = listener.wait_types(id, "task-sent")
        assert sent["timestamp"] <= time.time()
        assert sent.items() >= {
            "name": "elsewhere", "args": "(1,)", "queue": "tests", "exchange": "",
            "routing_key": "tests", "retries": 0,
        }.items()  # fmt: skip
        assert sent["hostname"].startswith(f"gen{os.getpid()}@")


def test_without_a_possible_receiver_nothing_is_kept() -> None:
    with TaskApp("tests", broker="memory://") as app:

        @app.task(name="noop")
        def noop() -> None: ...

        log = Silence()
        with working(app, events=True, log=log) as worker:
            noop.delay()
            wait_until(lambda: worker.counts["done"] == 1, "it does not run")
        assert worker.counts["events_dropped"] == 0
        assert log.events("events not sent") == []
        connection = MemoryBroker().open_connection("memory://", timeout_s=DEADLINE_S)
        with connection, connection.channel() as channel:
            assert channel._size("ae.undeliver") == 0
