"""The worker on a real RabbitMQ: what becomes of each kind of task and message."""

import threading
import zlib
from typing import Any

import amqp
import pytest

from blimp.errors import LinkError, NotAuthorised, Reject, TaskFailed
from blimp.queue import TaskApp, TaskContext
from blimp.queue.extensions import Broadcast
from blimp.queue.protocol.message import EMERGENCY, HIGH, LOW, NORMAL
from tests.broker import EmbeddedBroker
from tests.queue.behaviour.rabbitmq.conftest import Depths
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.two_brokers import a_hundred_done
from tests.rabbitmq import RabbitMQ, find_rabbitmq

find_rabbitmq()

HOUR_S = 3600.0


def test_runs_plain_and_async_tasks_and_acknowledges_them(app: TaskApp, depths: Depths) -> None:
    with a_hundred_done(app):
        pass
    assert depths.ready(app.queue) == 0  # nothing came back when the connection ended
    assert depths.ready(f"{app.queue}.dead") == 0


@pytest.mark.parametrize("most", [65_535, 1])
def test_tasks_that_wait_for_their_time_do_not_use_up_the_prefetch(
    app: TaskApp, depths: Depths, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Also past the greatest limit that AMQP has."""
    monkeypatch.setattr("blimp.queue.celery.kombu_consumer.MOST", most)
    ran: list[int] = []
    go = threading.Event()

    @app.task(name="later")
    def later(number: int) -> int:
        ran.append(number)
        go.wait(DEADLINE_S)
        return number

    for number in range(10):
        later.apply_async((number,), countdown=HOUR_S)
    with working(app, prefetch=2, sync_workers=4) as worker:
        wait_until(lambda: worker.counts["received"] == 10, "a full prefetch of them holds up all")
        begun = [later.delay(number) for number in (100, 101)]
        wait_until(lambda: sorted(ran) == [100, 101], "not run")
        queued = [later.delay(number) for number in range(102, 112)]
        # The limit grows in steps of the prefetch: a step more may have been sent.
        if most > 2:
            wait_until(lambda: depths.ready(app.queue) >= 6, "not held back")
        assert sorted(ran) == [100, 101]
        go.set()
        assert [handle.get(DEADLINE_S) for handle in begun + queued] == list(range(100, 112))
    assert depths.ready(app.queue) == 10


def test_the_first_priority_is_served_first(app: TaskApp) -> None:
    order: list[int] = []

    @app.task(name="note", bind=True)
    def note(context: TaskContext) -> None:
        order.append(context.message.priority)

    handles = [
        note.apply_async(priority=priority) for priority in (LOW, NORMAL, EMERGENCY, HIGH, NORMAL)
    ]
    with working(app, prefetch=1, sync_workers=1):
        for handle in handles:
            handle.get(DEADLINE_S)
    assert order == [EMERGENCY, HIGH, NORMAL, NORMAL, LOW]


def test_reject_makes_a_dead_letter_or_puts_back(app: TaskApp, depths: Depths) -> None:
    fences: list[int] = []

    @app.task(name="drop")
    def drop() -> None:
        raise Reject("of no use")

    @app.task(name="again", bind=True)
    def again(context: TaskContext) -> int:
        fences.append(context.fence)
        if context.fence == 1:
            raise Reject("not yet", requeue=True)
        return context.fence

    with working(app):
        with pytest.raises(TaskFailed, match="of no use"):
            drop.delay().get(DEADLINE_S)
        assert again.delay().get(DEADLINE_S) == 2
        wait_until(lambda: depths.ready(f"{app.queue}.dead") == 1, "no dead letter")
    assert fences == [1, 2]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ({"headers": {"task": "no.such"}}, "no task 'no.such'"),
        (
            {
                "headers": {"compression": "application/x-gzip"},
                "body": zlib.compress(bytes(5_000_000)),
            },
            "is longer than 1000000",
        ),
        ({"content_type": "application/x-python-serialize"}, "content type"),
        ({"headers": {"task": b"\xff\xfe"}}, "task"),
    ],
)
def test_what_cannot_be_run_is_a_dead_letter_and_its_sender_notified(
    app: TaskApp, depths: Depths, spoil: dict[str, Any], reason: str
) -> None:
    app.task(name="good")(lambda: 1)
    log = Silence()
    with working(app, log=log):
        assert app.send_task("good").get(DEADLINE_S) == 1
        good: dict[str, Any] = {
            "body": b"[[], {}, {}]",
            "content_type": "application/json",
            "content_encoding": "utf-8",
        }
        headers = {"id": f"bad-{app.name}", "task": "good"} | spoil.get("headers", {})
        publish_raw(depths, app.queue, **(good | spoil | {"application_headers": headers}))
        with pytest.raises(TaskFailed, match=reason):
            app.result(f"bad-{app.name}").get(DEADLINE_S)
        wait_until(lambda: depths.ready(f"{app.queue}.dead") == 1, "no dead letter")
        assert app.send_task("good").get(DEADLINE_S) == 1
    assert not log.events("broker lost")


class NotText(str):
    def encode(self, *_: Any) -> bytes:
        return b"\xff\xfe"


@pytest.mark.parametrize("name", ["content_type", "correlation_id", "type"])
def test_properties_that_are_no_text_do_not_end_the_connection(
    app: TaskApp, depths: Depths, name: str
) -> None:
    app.task(name="good")(lambda: 1)
    with working(app) as worker:
        assert app.send_task("good").get(DEADLINE_S) == 1
        publish_raw(depths, app.queue, body=b"[[], {}, {}]", **{name: NotText("x")})
        wait_until(lambda: depths.ready(f"{app.queue}.dead") == 1, "no dead letter")
        assert app.send_task("good").get(DEADLINE_S) == 1
        assert worker.counts["reconnects"] == 0
        assert worker.counts["unreadable"] == 1


def publish_raw(depths: Depths, queue: str, **properties: Any) -> None:
    properties.pop("headers", None)
    message = amqp.Message(**properties)
    with depths.connection.channel() as channel:
        channel.basic_publish(message, routing_key=queue)


def test_a_warm_stop_ends_what_runs_and_gives_back_what_waits(app: TaskApp, depths: Depths) -> None:
    busy, go = threading.Event(), threading.Event()

    @app.task(name="long")
    def long() -> str:
        busy.set()
        go.wait(DEADLINE_S)
        return "ended"

    app.task(name="quick")(lambda: 1)
    with working(app, sync_workers=1) as worker:
        handle = long.delay()
        assert busy.wait(DEADLINE_S)
        for _ in range(3):
            app.send_task("quick")
        app.send_task("quick", countdown=HOUR_S)
        wait_until(lambda: worker.counts["received"] == 5, "not taken")
        worker.stop()
        wait_until(lambda: depths.ready(app.queue) == 4, "not given back at once")
        go.set()
        assert handle.get(DEADLINE_S) == "ended"
    assert depths.ready(app.queue) == 4  # what ran was acknowledged while it stopped


def test_a_queue_that_someone_else_declared_is_used_as_it_is(app: TaskApp, depths: Depths) -> None:
    with depths.connection.channel() as channel:
        channel.queue_declare(app.queue, durable=True, auto_delete=False)
    app.task(name="good")(lambda: 1)
    log = Silence()
    with working(app, log=log):
        assert app.send_task("good").get(DEADLINE_S) == 1
    assert log.events("queue declared otherwise")[0]["queue"] == app.queue
    assert not log.events("broker lost")


def test_a_message_that_reaches_no_queue_is_sent_again_to_one(app: TaskApp, depths: Depths) -> None:
    app.task(name="good")(lambda: 1)
    app.send_task("good")
    with depths.connection.channel() as channel:
        channel.queue_delete(app.queue)
    handle = app.send_task("good")  # its connection has declared the queue before
    assert depths.ready(app.queue) == 1
    with working(app):
        assert handle.get(DEADLINE_S) == 1


def test_a_worker_whose_queue_is_deleted_declares_it_again(app: TaskApp, depths: Depths) -> None:
    app.task(name="good")(lambda: 1)
    with working(app) as worker:
        assert app.send_task("good").get(DEADLINE_S) == 1
        with depths.connection.channel() as channel:
            channel.queue_delete(app.queue)
        wait_until(lambda: worker.counts["reconnects"] == 1, "it did not notice")
        assert app.send_task("good").get(DEADLINE_S) == 1


def test_a_wrong_password_is_not_authorised_and_is_not_printed(rabbit: RabbitMQ, name: str) -> None:
    wrong = rabbit.url.replace("guest@", "secret@")
    with TaskApp(name, broker=wrong) as app, pytest.raises(NotAuthorised) as caught:
        app.send_task("good")
    assert "secret" not in str(caught.value)


def test_over_tls_where_the_certificate_is_known(
    rabbit: RabbitMQ, broker_server: EmbeddedBroker, name: str
) -> None:
    url = f"{rabbit.tls_url}?ssl_ca_certs={rabbit.certificate}"
    heard: list[str] = []
    with TaskApp(name, broker=url, result_backend=broker_server.url) as app:
        app.task(name="echo")(lambda text: text)

        @app.on_broadcast("estop")
        def estop(broadcast: Broadcast) -> dict[str, Any]:
            heard.append(broadcast.id)
            return {}

        with working(app) as worker:
            texts = [str(number) * 5_000 for number in range(20)]  # more than a TLS record
            handles = [app.send_task("echo", (text,)) for text in texts]
            assert [handle.get(DEADLINE_S) for handle in handles] == texts
            app.broadcast("estop", id="b1").wait(DEADLINE_S)
            assert worker.counts["reconnects"] == 0
    assert heard == ["b1"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [("", "certificate verify failed"), ("?ssl_ca_certs=/nowhere", "No such file")],
)
def test_a_certificate_that_is_not_known_is_not_trusted(
    rabbit: RabbitMQ, name: str, options: str, reason: str
) -> None:
    with (
        TaskApp(name, broker=rabbit.tls_url + options, timeout_s=0.5) as app,
        pytest.raises(LinkError, match=reason),
    ):
        app.send_task("echo")
