"""RabbitMQ lost and back: what runs is not run beside itself, and all goes on."""

import threading
from collections.abc import Callable, Iterator

import pytest

from blimp.errors import LinkError
from blimp.queue import State, TaskApp, TaskContext
from tests.broker import EmbeddedBroker
from tests.queue.behaviour.rabbitmq.conftest import Depths
from tests.queue.behaviour.test_killed_worker import begin, marks
from tests.queue.behaviour.test_outage import send_when_back
from tests.queue.conftest import DEADLINE_S, WorkerProcess, wait_until, working
from tests.queue.two_brokers import LongTask
from tests.rabbitmq import RabbitMQ, find_rabbitmq
from tests.signals import stop_process
from tests.tcp_link import TcpLink

find_rabbitmq()

Start = Callable[..., WorkerProcess]


@pytest.fixture
def far_app(
    rabbit: RabbitMQ, link: TcpLink, broker_server: EmbeddedBroker, name: str
) -> Iterator[TaskApp]:
    """An app whose way to RabbitMQ can be cut."""
    url = rabbit.url.replace(f":{rabbit.port}", f":{link.port}")
    with TaskApp(name, broker=url, result_backend=broker_server.url, timeout_s=0.5) as app:
        yield app


@pytest.mark.parametrize("how", ["cut", "freeze"])
def test_a_task_that_runs_through_an_outage_ends_once(
    far_app: TaskApp, link: TcpLink, depths: Depths, how: str
) -> None:
    """Its message comes again while it runs, and is acknowledged under its new tag."""
    long = LongTask(far_app)
    far_app.task(name="quick")(lambda: 1)
    with working(far_app, prefetch=4) as worker:
        handle = long.task.delay()
        later = far_app.send_task("quick", countdown=1.0)  # in the worker's memory
        assert long.busy.wait(DEADLINE_S)
        wait_until(lambda: worker.counts["received"] == 2, "not taken")
        getattr(link, how)()
        wait_until(lambda: worker.counts["reconnects"] > 0, "it did not notice")
        with pytest.raises(LinkError):
            far_app.send_task("quick")
        link.mend()
        send_when_back(lambda: far_app.send_task("quick", task_id=f"after-{far_app.name}"))
        assert far_app.result(f"after-{far_app.name}").get(DEADLINE_S) == 1
        long.go.set()
        assert handle.get(DEADLINE_S) == "ended"
        assert later.get(DEADLINE_S) == 1
    assert long.runs == [1]
    assert depths.ready(far_app.queue) == 0


def test_what_ended_in_an_outage_is_only_acknowledged_when_it_comes_again(
    far_app: TaskApp, link: TcpLink, depths: Depths
) -> None:
    long = LongTask(far_app, ignore_result=True)  # nothing stored to look up
    far_app.task(name="quick")(lambda: 1)
    with working(far_app) as worker:
        long.task.delay()
        assert long.busy.wait(DEADLINE_S)
        link.cut()
        wait_until(lambda: worker.counts["reconnects"] > 0, "it did not notice")
        long.go.set()
        wait_until(lambda: worker.counts["done"] == 1, "it did not end")
        link.mend()
        send_when_back(lambda: far_app.send_task("quick", task_id=f"after-{far_app.name}"))
        assert far_app.result(f"after-{far_app.name}").get(DEADLINE_S) == 1
    assert long.runs == [1]
    assert depths.ready(far_app.queue) == 0


def test_another_worker_that_ran_it_meanwhile_keeps_the_first_result(
    far_app: TaskApp, rabbit: RabbitMQ, broker_server: EmbeddedBroker, link: TcpLink, depths: Depths
) -> None:
    busy, go = threading.Event(), threading.Event()

    @far_app.task(name="long", bind=True)
    def long(context: TaskContext) -> str:
        busy.set()
        go.wait(DEADLINE_S)
        return "the first to begin"

    with (
        TaskApp(far_app.name, broker=rabbit.url, result_backend=broker_server.url) as near_app,
        working(far_app) as far,
    ):
        near_app.task(name="long")(lambda: "the first to end")
        handle = long.delay()
        assert busy.wait(DEADLINE_S)
        link.cut()
        with working(near_app):
            assert handle.get(DEADLINE_S) == "the first to end"
        go.set()
        wait_until(lambda: far.counts["done"] == 1, "it did not end")
        assert handle.get(DEADLINE_S) == "the first to end"
        link.mend()
    assert depths.ready(far_app.queue) == 0


# --- kill -9 ----------------------------------------------------------------------------------


@pytest.fixture
def transport() -> str:
    return "amqp"


@pytest.fixture
def killed(rabbit: RabbitMQ, broker_server: EmbeddedBroker, depths: Depths) -> Iterator[TaskApp]:
    with TaskApp("killed", broker=rabbit.url, result_backend=broker_server.url) as app:
        yield app
        with depths.connection.channel() as channel:
            channel.queue_purge(app.queue)
        app.broker_link.client.flushall()


def test_a_killed_workers_tasks_run_again(
    killed: TaskApp, rabbit: RabbitMQ, broker_server: EmbeddedBroker, start_worker: Start
) -> None:
    first = start_worker(rabbit.url, results=broker_server.url)
    begin(killed, first, "again", "t1")
    begin(killed, first, "once", "t2")
    queued = [killed.send_task("quick", (number,)) for number in range(20)]
    stop_process(first.process.pid)
    more = [killed.send_task("quick", (number,)) for number in range(20, 40)]
    first.kill()
    assert killed.result("t1").state is State.PENDING
    second = start_worker(rabbit.url, results=broker_server.url)
    wait_until(lambda: len(marks(second.directory, "t1")) == 2, "it did not run again")
    (second.directory / "t1.go").touch()
    assert killed.result("t1").get(DEADLINE_S) == {"pid": second.process.pid, "fence": 2}
    assert killed.result("t2").wait(DEADLINE_S).state is State.INTERRUPTED
    assert len(marks(second.directory, "t2")) == 1
    assert [handle.get(DEADLINE_S) for handle in queued + more] == list(range(40))
    assert second.terminate() == 0


def test_of_two_brokers_the_other_is_taken_when_one_is_lost(
    rabbit: RabbitMQ, broker_server: EmbeddedBroker, link: TcpLink, name: str, depths: Depths
) -> None:
    """At the start, and in mid-flight."""
    far = rabbit.url.replace(f":{rabbit.port}", f":{link.port}")
    with TaskApp(
        name,
        broker=["amqp://guest:guest@127.0.0.1:1//", far, rabbit.url],
        result_backend=broker_server.url,
        timeout_s=0.5,
    ) as app:
        long = LongTask(app)
        app.task(name="quick")(lambda: 1)
        with working(app):
            handle = long.task.delay()
            assert long.busy.wait(DEADLINE_S)
            link.cut()
            send_when_back(lambda: app.send_task("quick", task_id=f"after-{name}"))
            assert app.result(f"after-{name}").get(DEADLINE_S) == 1
            long.go.set()
            assert handle.get(DEADLINE_S) == "ended"
    assert long.runs == [1]
    assert depths.ready(name) == 0
