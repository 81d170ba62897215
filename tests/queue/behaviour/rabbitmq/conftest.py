"""Apps on RabbitMQ."""

import uuid
from collections.abc import Iterator

import pytest
from kombu import Connection

from blimp.queue import TaskApp
from tests.broker import EmbeddedBroker
from tests.rabbitmq import RabbitMQ
from tests.tcp_link import TcpLink


@pytest.fixture
def name() -> str:
    """A name for an app and its queue that nobody else uses."""
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
def app(rabbit: RabbitMQ, broker_server: EmbeddedBroker, name: str) -> Iterator[TaskApp]:
    """An app with its queue in RabbitMQ and its results in Redis."""
    with TaskApp(name, broker=rabbit.url, result_backend=broker_server.url) as app:
        yield app


@pytest.fixture
def link(rabbit: RabbitMQ) -> Iterator[TcpLink]:
    with TcpLink(server=rabbit.port) as link:
        yield link


class Depths:
    """Looks into RabbitMQ's queues from outside."""

    def __init__(self, url: str) -> None:
        self.connection = Connection(url)

    def ready(self, queue: str) -> int:
        """Return how many messages wait, those not counted that a worker holds."""
        with self.connection.channel() as channel:
            count: int = channel.queue_declare(queue, passive=True).message_count
            return count


@pytest.fixture
def depths(rabbit: RabbitMQ) -> Iterator[Depths]:
    depths = Depths(rabbit.url)
    yield depths
    depths.connection.release()
