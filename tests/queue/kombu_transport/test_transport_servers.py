"""Servers behind TLS and behind a sentinel, for real."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest

from blimp.queue.kombu_transport import Transport
from tests.queue.conftest import DEADLINE_S
from tests.queue.kombu_transport.conftest import TRANSPORT, Basket, queue, send
from tests.redis_server import RedisServer, make_certificate, server_with_tls

RETRY = {"max_retries": 100, "interval_start": 0.0, "interval_step": 0.05, "interval_max": 0.1}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, Path]]:
    directory = tmp_path_factory.mktemp("tls")
    binary = server_with_tls(directory)
    certificate, key = make_certificate(directory)
    options = ("--tls-cert-file", certificate, "--tls-key-file", key, "--tls-auth-clients", "no")
    with RedisServer(directory, *options, binary=binary, tls=True) as server:
        yield server, certificate


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


def test_an_unknown_certificate_is_refused(secure: tuple[RedisServer, Path]) -> None:
    server, _ = secure
    with (
        connected(f"rediss://127.0.0.1:{server.port}/0") as connection,
        pytest.raises(connection.connection_errors, match="certificate verify failed"),
    ):
        connection.connect()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[RedisServer, RedisServer, RedisServer]]:
    """A master, its replica, and a sentinel that is quick to act."""
    with RedisServer(tmp_path, "--repl-diskless-sync-delay", 0) as master:
        replica = RedisServer(tmp_path, "--replicaof", f"127.0.0.1 {master.port}")
        sentinel = RedisServer(tmp_path, "--sentinel")
        with replica:
            client = replica.client()
            wait(lambda: client.info("replication")["master_link_status"] == "up")
            client.close()
            sentinel.start(
                config=f"sentinel monitor m 127.0.0.1 {master.port} 1\n"
                "sentinel down-after-milliseconds m 300\n"
                "sentinel failover-timeout m 1000\n"
            )
            client = sentinel.client(decode_responses=True)
            wait(lambda: len(client.sentinel_slaves("m")) == 1)
            client.close()
            try:
                yield master, replica, sentinel
            finally:
                sentinel.kill()


def wait(condition: Any) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until_s, "it does not come to be"
        time.sleep(0.02)


def test_the_sentinels_new_master_has_everything_that_was_copied(
    watched: tuple[RedisServer, RedisServer, RedisServer],
) -> None:
    """Copying is asynchronous: WAIT stands for the moment in which nothing is under way."""
    master, replica, sentinel = watched
    url = f"sentinel://127.0.0.1:{sentinel.port}/0?master_name=m"
    options = {"transport_options": {"consumer": "w"}}
    with connected(url, **options) as connection, connected(url) as sender:
        basket = Basket(connection, queue("q"), prefetch=20)
        send(sender, *range(50))
        before = basket.take(10)
        for message in before:
            message.ack()
        send(sender, "last")
        client = master.client()
        assert client.wait(1, 10_000) == 1
        client.close()
        master.kill()
        sender.Producer().publish("after", routing_key="q", retry=True, retry_policy=RETRY)
        assert isinstance(sender.transport, Transport)
        came = [str(message.payload) for message in before]
        unacknowledged = basket.messages[10:]
        while len(set(came)) < 52:
            try:
                for message in unacknowledged or basket.take(1):
                    message.ack()
                    came.append(str(message.payload))
            except connection.connection_errors:
                connection.close()
                connection.ensure_connection(interval_start=0.0, interval_step=0.05)
                basket = Basket(connection, queue("q"))
            unacknowledged = []
        assert basket.is_empty()
        assert set(came) == {str(one) for one in (*range(50), "last", "after")}
        assert not {str(number) for number in range(10)} & set(came[10:])
        client = replica.client()
        assert client.info("replication")["role"] == "master"
        client.close()
