"""Events by way of RabbitMQ: a topic exchange, from which each takes what it wants."""

import kombu
import pytest

from blimp.errors import LinkError
from blimp.queue import TaskApp
from blimp.queue.brokers.base import Exchange
from tests.queue.celery.events.listener import Listener
from tests.queue.conftest import working
from tests.rabbitmq import RabbitMQ, find_rabbitmq

find_rabbitmq()


def test_events_are_heard_by_their_topic(app: TaskApp, rabbit: RabbitMQ, name: str) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    with (
        Listener(rabbit.url, transport="amqp", routing_key="task.#") as tasks,
        Listener(rabbit.url, transport="amqp", routing_key="worker.*") as workers,
    ):
        with working(app, name=name, events=True):
            ids = {add.delay(n, 1).id for n in range(50)}
            for id in ids:
                tasks.wait_types(id, "task-received", "task-started", "task-succeeded")
        workers.wait(lambda: any(one["hostname"] == name for one in workers.events))
        workers.wait_type("worker-offline")
    assert {one["type"].partition("-")[0] for one in tasks.events} == {"task"}
    assert {one["type"].partition("-")[0] for one in workers.events} == {"worker"}
    assert "task.multi" in {key for key, _ in tasks.bodies}


def test_an_exchange_of_another_kind_is_no_reason_to_leave_the_broker(
    rabbit: RabbitMQ, name: str
) -> None:
    """Celery's events have one, and somebody may have made it otherwise."""
    urls = [rabbit.url, rabbit.url.replace("127.0.0.1", "localhost")]
    reported = Exchange(f"{name}.events", "topic")
    with kombu.Connection(rabbit.url) as stranger, TaskApp(name, broker=urls) as app:
        kombu.Exchange(reported.name, type="fanout")(stranger.channel()).declare()
        with pytest.raises(LinkError, match="inequivalent arg 'type'"):
            app.publisher.notify(b"{}", exchange=reported, routing_key="x", headers={})
        assert app.broker == urls[0]
