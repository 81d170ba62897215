"""A broker that goes and comes: the worker never exits and never stops consuming."""

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from blimp.errors import LinkError
from blimp.queue import TaskApp, Worker
from blimp.queue.protocol.message import TaskMessage
from tests.broker import EmbeddedBroker
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.server_view import Look
from tests.queue.two_brokers import LongTask
from tests.signals import stop_process
from tests.stopwatch import Stopwatch


@pytest.fixture
def app(own_broker: EmbeddedBroker, transport: str) -> TaskApp:
    url = own_broker.url
    return TaskApp("tests", broker=url, result_backend=url, timeout_s=0.5)


def send_when_back(send: Callable[[], object]) -> None:
    """Send once the broker takes it."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            send()
            return
        except LinkError:
            assert time.monotonic() < deadline_s


def test_consumes_again_after_each_restart_of_the_broker(
    app: TaskApp, own_broker: EmbeddedBroker
) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    with app, working(app) as worker:
        assert add.delay(1, 2).get(DEADLINE_S) == 3
        for id, kill in (("stopped", False), ("killed", True)):
            if kill:
                os.kill(own_broker.pid, signal.SIGKILL)
            own_broker.stop()
            with pytest.raises(LinkError, match=r"no broker at redis\+socket"):
                add.delay(1, 2)
            wait_until(lambda: worker.counts["reconnects"] > 0, "it did not notice")
            own_broker.start()
            send_when_back(partial(add.apply_async, (3, 4), task_id=id))
            watch = Stopwatch()
            assert app.result(id).get(DEADLINE_S) == 7
            assert watch.undisturbed_s() < 3.0  # waits are bounded


def test_a_task_that_runs_through_an_outage_is_settled_once(
    app: TaskApp, own_broker: EmbeddedBroker, transport: str
) -> None:
    """Its result is written and its message acknowledged when the broker is back."""
    long = LongTask(app)
    with app, working(app) as worker:
        long.task.apply_async(task_id="the-id")
        assert long.busy.wait(DEADLINE_S)
        # The append-only file is written once a second: what is older survives a restart.
        client = app.broker_link.client
        wait_until(lambda: not client.info("persistence")["aof_pending_bio_fsync"], "not written")
        own_broker.stop()
        long.go.set()
        wait_until(lambda: worker.counts["reconnects"] > 0, "it did not notice")
        own_broker.start()
        wait_until(lambda: worker.counts["done"] == 1, "not settled")
        assert app.result("the-id").get(DEADLINE_S) == "ended"
        assert Look(server=client).in_flight() == 0
    assert long.runs == [1]


def test_a_worker_waits_for_a_broker_that_is_not_there_yet(
    app: TaskApp, own_broker: EmbeddedBroker
) -> None:
    app.task(name="add")(lambda: 1)
    own_broker.stop()
    log = Silence()
    worker = Worker(app=app, name="worker", log=log)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    with app:
        wait_until(lambda: log.events("no broker"), "it did not complain")
        assert not worker.ready.is_set()
        own_broker.start()
        assert worker.ready.wait(DEADLINE_S)
        assert app.send_task("add").get(DEADLINE_S) == 1
        worker.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_a_broker_that_hangs_is_an_error_in_time_and_work_goes_on_after_it(
    app: TaskApp, own_broker: EmbeddedBroker
) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    with app, working(app):
        assert add.delay(1, 2).get(DEADLINE_S) == 3
        stop_process(own_broker.pid)
        try:
            with pytest.raises(LinkError):
                app.broker_link.ask(lambda client: client.get("x"))
            with pytest.raises(LinkError):
                app.publisher.publish(TaskMessage(id="a", task="add", queue="elsewhere"))
        finally:
            os.kill(own_broker.pid, signal.SIGCONT)
        send_when_back(lambda: add.apply_async((3, 4), task_id="after"))
        assert app.result("after").get(DEADLINE_S) == 7


def test_the_link_is_reported_as_it_is(app: TaskApp, own_broker: EmbeddedBroker) -> None:
    heard: list[bool] = []
    changed = threading.Event()

    @app.on_link
    def watch(alive: bool) -> None:
        heard.append(alive)
        changed.set()

    with app, working(app):
        wait_until(lambda: heard and heard[-1], "no first word")
        own_broker.stop()
        wait_until(lambda: not heard[-1], "the loss was not reported")
        own_broker.start()
        wait_until(lambda: heard[-1], "the return was not reported")
