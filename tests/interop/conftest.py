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


@pytest.fixture
def url(tcp_server: RedisServer) -> str:
    """Return the URL of an empty server."""
    with tcp_server.client() as client:
        client.flushall()
    return tcp_server.url


@pytest.fixture
def app(url: str) -> Iterator[TaskApp]:
    """An app named tests, which is its queue's name too."""
    with TaskApp("tests", broker=url, result_backend=url) as app:
        yield app


@pytest.fixture
def guest(url: str, tmp_path: Path) -> Iterator[Guest]:
    guest = Guest(url, directory=tmp_path)
    yield guest
    guest.close()
