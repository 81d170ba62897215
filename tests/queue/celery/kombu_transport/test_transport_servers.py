"""Servers behind TLS, for real."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest

from tests.queue.celery.kombu_transport.conftest import TRANSPORT, Basket, queue, send
from tests.redis_server import RedisServer, server_with_tls


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, Path]]:
    with server_with_tls(tmp_path_factory.mktemp("tls")) as secure:
        yield secure


@contextlib.contextmanager
def connected(url: str, **options: Any) -> Iterator[kombu.Connection]:
    with kombu.Connection(url, transport=TRANSPORT, **options) as connection:
        yield connection


@pytest.mark.parametrize("scheme", ["rediss", "valkeys", "redis", "valkey"])
def test_tls(secure: tuple[RedisServer, Path], scheme: str) -> None:
    """On Debian's Redis 7.0, which also is the oldest server that will do."""
    server, certificate = secure
    options: dict[str, Any] = {"ssl": {"ssl_ca_certs": str(certificate)}}
    url = f"{scheme}://127.0.0.1:{server.port}/0"
    if scheme in ("rediss", "valkeys"):
        options, url = {}, f"{url}?ssl_ca_certs={certificate}"
    exchange = kombu.Exchange("all", type="fanout")
    with connected(url, **options) as connection, connected(url, **options) as other:
        basket = Basket(connection, queue("q"), kombu.Queue(f"l-{scheme}", exchange))
        send(other, *range(100))
        other.Producer(exchange=exchange).publish("all", routing_key="")
        messages = basket.take(101)
        assert {message.payload for message in messages} == {"all", *range(100)}
        for message in messages:
            message.ack()
        send(other, "x" * 900_000)  # many records of TLS
        assert len(basket.take_bodies(1)[0]) == 900_000
        basket.messages[-1].ack()
