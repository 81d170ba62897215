"""The worker on a real RabbitMQ."""

import uuid
from collections.abc import Iterator

import pytest

from blimp.tasks import TaskApp
from tests.broker import EmbeddedBroker
from tests.rabbitmq import RabbitMQ, find_rabbitmq
from tests.tasks.conftest import DEADLINE_S, working


@pytest.fixture(scope="session")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with RabbitMQ(directory=tmp_path_factory.mktemp("rabbit"), command=find_rabbitmq()) as node:
        yield node


@pytest.fixture
def app(rabbit: RabbitMQ, broker_server: EmbeddedBroker) -> Iterator[TaskApp]:
    """An app with a queue of its own, with results in Redis."""
    with TaskApp(
        f"t{uuid.uuid4().hex[:8]}", broker=rabbit.url, result_backend=broker_server.url
    ) as app:
        yield app


def test_runs(app: TaskApp) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    with working(app):
        handles = [add.delay(n, 1) for n in range(50)]
        assert [h.get(DEADLINE_S) for h in handles] == list(range(1, 51))
