"""A broker on TCP, as Flower wants it, our worker's app, and Celery in its own Python."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from blimp.queue import TaskApp
from tests.interop.guest import Guest
from tests.redis_server import RedisServer


@pytest.fixture(scope="session")
def tcp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("interop")) as server:
        yield server


@pytest.fixture(params=["streams"])
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def url(tcp_server: RedisServer) -> str:
    """Return the URL of an empty server."""
    with tcp_server.client() as client:
        client.flushall()
    return f"redis://127.0.0.1:{tcp_server.port}/0"


@pytest.fixture
def app(url: str, transport: str) -> Iterator[TaskApp]:
    """An app named tests, which is its queue's name too."""
    with TaskApp("tests", broker=url, result_backend=url, transport=transport) as app:
        yield app


@pytest.fixture
def guest(url: str, transport: str, tmp_path: Path) -> Iterator[Guest]:
    guest = Guest(url, transport=transport, directory=tmp_path)
    yield guest
    guest.close()
