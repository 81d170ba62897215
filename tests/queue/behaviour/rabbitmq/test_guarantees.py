"""What each transport says of itself at a worker's start, and what it refuses."""

import threading
from typing import Any

import pytest

from blimp.errors import ConfigError
from blimp.queue import TaskApp, TaskContext, Worker
from blimp.queue.brokers import broker_for
from blimp.queue.brokers.base import MISSING, Capabilities
from blimp.queue.brokers.kombu_consumer import KombuDelivery
from blimp.queue.extensions import Broadcast
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.publish.publisher import Publisher
from blimp.queue.worker.boot import missing_guarantees
from tests.broker import EmbeddedBroker
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.rabbitmq import find_rabbitmq


@pytest.mark.parametrize(
    ("transport", "url", "chosen"),
    [
        (None, "redis://h/0", "streams"),
        (None, "unix:///run/b.sock", "streams"),
        ("streams", "rediss://h/0", "streams"),
        ("blimp.queue.kombu_transport:Transport", "redis://h/0", "streams"),
        (None, "valkey://h", "streams"),
        (None, "sentinel://h:26379/0?master_name=m", "streams"),
        (None, "amqp://h", "amqp"),
        (None, "amqps://h", "amqp"),
        (None, "pyamqp://h", "amqp"),
        ("pyamqp", "amqp://h", "amqp"),
        (None, "memory://", "memory"),
    ],
)
def test_the_transport_is_chosen_by_name_or_url(
    transport: str | None, url: str, chosen: str
) -> None:
    assert broker_for(url, name=transport).name == chosen


@pytest.mark.parametrize(
    ("transport", "url", "reason"),
    [
        (None, "sqs://key:secret@", "its scheme must be one of .*amqp.*memory"),
        (None, "nonsense", "its scheme must be one of"),
        ("amqp", "redis://:secret@h/0", "transport 'amqp' takes .*amqps"),
        ("streams", "amqp://me:secret@h", "transport 'streams' takes .*rediss"),
        (None, "amqps://h?ssl_cert_reqs=perhaps", "option ssl_cert_reqs=perhaps is unknown"),
        (None, "amqps://me:secret@h?verify=no", "option verify=no is unknown"),
        ("carrier-pigeon", "redis://h", "must be one of .*streams"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(transport: str | None, url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        TaskApp("tests", broker=url, transport=transport)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("transport", "url", "reported"),
    [
        (None, "amqp://h", "no leases"),
        (None, "memory://", "messages end with this process"),
    ],
)
def test_the_start_up_line_names_what_is_missing(
    transport: str | None, url: str, reported: str
) -> None:
    with TaskApp("tests", broker=url, transport=transport, result_backend="redis://h/0") as app:
        consumer = missing_guarantees(app)
        assert consumer is not None
        assert consumer.startswith(f'transport "{app.transport}" (')
        assert reported in consumer
        assert "no results" not in consumer
    with TaskApp("tests", broker=url, transport=transport) as app:
        assert "no results" in (missing_guarantees(app) or "")


def test_streams_have_nothing_to_say() -> None:
    with TaskApp("tests", broker="redis://h/0") as app:
        assert missing_guarantees(app) is None


def test_every_lack_has_its_words() -> None:
    assert set(MISSING) <= set(Capabilities.__struct_fields__)


def test_a_worker_says_it_once(name: str) -> None:
    log = Silence()
    with TaskApp(name, broker="memory://") as app, working(app, log=log):
        pass
    assert [event for level, event, _ in log.lines if level == "warning"] == [
        missing_guarantees(app)
    ]


def test_a_task_that_may_not_run_twice_needs_a_store(name: str) -> None:
    with TaskApp(name, broker="memory://") as app:
        app.task(name="plain")(lambda: 1)
        app.task(name="once", idempotent=False)(lambda: 1)
        app.task(name="newest", coalesce=True)(lambda: 1)
        with pytest.raises(ConfigError, match=r"needs a Redis server.*result_backend") as caught:
            Worker(app=app, log=Silence()).run()
        assert "'once' for idempotent=False, 'newest' for coalesce;" in str(caught.value)
        with pytest.raises(ConfigError, match="no Redis server"):
            _ = app.broker_link


@pytest.mark.parametrize("transport", [None, "memory"])
def test_memory_runs_within_one_process(
    name: str, broker_server: EmbeddedBroker, transport: str | None
) -> None:
    tries: list[int] = []
    with TaskApp(
        name, broker="memory://", transport=transport, result_backend=broker_server.url
    ) as app:

        @app.task(name="add")
        def add(a: int, b: int) -> int:
            return a + b

        @app.task(name="shaky", autoretry_for=(OSError,), retry_backoff=0.01, bind=True)
        def shaky(context: TaskContext) -> int:
            tries.append(context.message.retries)
            if len(tries) < 3:
                raise OSError("again")
            return len(tries)

        @app.task(name="once", idempotent=False)
        async def once() -> str:
            return "once"

        early = add.delay(1, 1)  # before there is a worker
        with working(app, prefetch=4) as worker:
            assert early.get(DEADLINE_S) == 2
            sums = [add.delay(number, 1) for number in range(20)]
            assert [handle.get(DEADLINE_S) for handle in sums] == list(range(1, 21))
            assert shaky.delay().get(DEADLINE_S) == 3
            assert once.delay().get(DEADLINE_S) == "once"
            later = [add.apply_async((1, 2), countdown=3600.0) for _ in range(8)]
            wait_until(lambda: worker.counts["received"] >= 24 + len(later), "starved")
            assert add.delay(2, 2).get(DEADLINE_S) == 4
    assert tries == [0, 1, 2]


def test_a_task_that_will_not_end_is_cut_off_and_put_back(name: str) -> None:
    fences: list[int] = []
    go = threading.Event()
    with TaskApp(name, broker="memory://") as app:

        @app.task(name="long", bind=True)
        def long(context: TaskContext) -> None:
            fences.append(context.fence)
            go.wait(DEADLINE_S)

        log = Silence()
        with working(app, grace_s=0.01, log=log):
            app.send_task("long")
            wait_until(lambda: fences == [1], "not begun")
        assert log.events("cut off")
        go.set()
        with working(app, name="next"):
            wait_until(lambda: fences == [1, 2], "not run again")


def test_what_was_acknowledged_before_it_ran_is_cut_off_for_good(name: str) -> None:
    begun, go = threading.Event(), threading.Event()
    runs: list[int] = []
    with TaskApp(name, broker="memory://") as app:

        @app.task(name="long", acks_late=False)
        def long() -> None:
            runs.append(1)
            begun.set()
            go.wait(DEADLINE_S)

        log = Silence()
        with working(app, grace_s=0.01, log=log) as worker:
            app.send_task("long")
            assert begun.wait(DEADLINE_S)
        assert log.events("cut off")
        assert worker.counts["cut_off"] == 1
        go.set()
        answered = threading.Event()
        app.task(name="quick")(answered.set)
        with working(app, name="next"):
            app.send_task("quick")
            assert answered.wait(DEADLINE_S)
    assert runs == [1]


def test_memory_hears_broadcasts_and_puts_back_at_a_warm_stop(name: str) -> None:
    heard: list[Any] = []
    busy, go = threading.Event(), threading.Event()
    with TaskApp(name, broker="memory://") as app:

        @app.task(name="long")
        def long() -> None:
            busy.set()
            go.wait(DEADLINE_S)

        ran = threading.Event()
        app.task(name="quick")(ran.set)

        @app.on_broadcast("estop")
        def estop(broadcast: Broadcast) -> dict[str, Any]:
            heard.append(broadcast.id)
            return {}

        with working(app, sync_workers=1) as worker:
            app.send_task("long")
            assert busy.wait(DEADLINE_S)
            app.send_task("quick")
            wait_until(lambda: worker.counts["received"] == 2, "not taken")
            app.broadcast("estop", id="b1")
            wait_until(lambda: heard == ["b1"], "not heard")
            worker.stop()
            wait_until(lambda: worker.counts["requeued"] == 1, "not requeued")
            go.set()
            wait_until(lambda: worker.counts["done"] == 1, "not ended")
        assert not ran.is_set()
        with working(app, name="next"):
            assert ran.wait(DEADLINE_S)


@pytest.mark.parametrize("transport", ["memory", "amqp"])
def test_the_next_try_is_queued_before_the_last_is_acknowledged(
    name: str,
    transport: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without atomic completion a worker killed in between must leave one too many, not none."""
    url = "memory://"
    if transport == "amqp":
        find_rabbitmq()  # skips without one
        url = request.getfixturevalue("rabbit").url
    steps: list[str] = []
    publish, ack = Publisher.publish, KombuDelivery.ack

    def noted_publish(self: Publisher, message: TaskMessage, *args: Any, **options: Any) -> Any:
        answer = publish(self, message, *args, **options)
        steps.append(f"try {message.retries} queued")
        return answer

    def noted_ack(self: KombuDelivery) -> None:
        steps.append(f"try {self.message.headers['retries']} acknowledged")
        ack(self)

    with TaskApp(name, broker=url) as app:
        assert not app.capabilities.atomic_completion

        @app.task(name="shaky", autoretry_for=(OSError,), retry_backoff=0.001, bind=True)
        def shaky(context: TaskContext) -> None:
            if context.message.retries == 0:
                raise OSError("again")

        shaky.delay()
        monkeypatch.setattr(Publisher, "publish", noted_publish)
        monkeypatch.setattr(KombuDelivery, "ack", noted_ack)
        with working(app) as worker:
            wait_until(lambda: worker.counts["done"] == 2, "not tried again")
    assert steps == ["try 1 queued", "try 0 acknowledged", "try 1 acknowledged"]
