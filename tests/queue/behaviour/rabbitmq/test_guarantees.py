"""What each transport says of itself at a worker's start, and what it refuses."""

from typing import Any

import pytest

from blimp.errors import ConfigError
from blimp.queue import TaskApp, TaskContext, Worker
from blimp.queue.brokers import broker_for
from blimp.queue.celery.kombu_consumer import KombuDelivery
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.publish.publisher import Publisher
from tests.queue.conftest import Silence, wait_until, working
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
