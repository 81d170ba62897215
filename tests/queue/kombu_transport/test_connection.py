"""kombu's own failover between several URLs, with this transport on each of them."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest

from blimp.queue.kombu_transport import Transport
from tests.broker import EmbeddedBroker
from tests.queue.conftest import DEADLINE_S
from tests.queue.kombu_transport.conftest import TRANSPORT, Basket, queue, streams_url

RETRY = {"max_retries": 4, "interval_start": 0.0, "interval_step": 0.01, "interval_max": 0.01}


@pytest.fixture
def two_brokers() -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    with tempfile.TemporaryDirectory(prefix="blimp-") as name:
        directory = Path(name)
        with (
            EmbeddedBroker(directory=directory / "1") as first,
            EmbeddedBroker(directory=directory / "2") as second,
        ):
            yield first, second


@contextlib.contextmanager
def connected(*urls: str, **options: Any) -> Iterator[kombu.Connection]:
    with kombu.Connection(";".join(urls), transport=TRANSPORT, **options) as connection:
        yield connection


def absent(directory: Path) -> str:
    return f"unix://{directory}/absent.sock?db=0"


@pytest.mark.parametrize("strategy", ["round-robin", "shuffle"])
def test_the_first_that_answers_is_used(
    own_broker: EmbeddedBroker, tmp_path: Path, strategy: str
) -> None:
    urls = absent(tmp_path), streams_url(own_broker)
    with connected(*urls, failover_strategy=strategy) as connection:
        connection.ensure_connection(interval_start=0.0, interval_step=0.0, max_retries=20)
        assert isinstance(connection.transport, Transport)
        assert connection.as_uri() == urls[1]
        connection.Producer().publish("here", routing_key="q")
        with connection.clone() as clone:
            assert isinstance(clone.transport, Transport)
            assert clone.connected or clone.connect()
        assert Basket(connection, queue("q")).take_bodies(1) == ["here"]


def test_a_publisher_goes_on_with_the_next_and_comes_back(two_brokers: Any) -> None:
    first, second = two_brokers
    with connected(streams_url(first), streams_url(second)) as connection:
        producer = connection.Producer()

        def send(body: str) -> str:
            producer.publish(body, routing_key="q", retry=True, retry_policy=RETRY)
            assert isinstance(connection.transport, Transport)
            return str(connection.as_uri())

        assert send("one") == streams_url(first)
        first.stop()
        assert send("two") == send("three") == streams_url(second)
        first.start()
        second.stop()
        assert send("four") == streams_url(first)
    assert bodies(streams_url(first)) == ["one", "four"]
    second.start()
    assert bodies(streams_url(second)) == ["two", "three"]


def bodies(url: str) -> list[str]:
    with connected(url) as connection:
        basket = Basket(connection, queue("q"))
        basket.take(2)
        return [message.payload for message in basket.messages]


def test_a_consumer_goes_on_with_the_next(two_brokers: Any) -> None:
    """As kombu's own ConsumerMixin does it."""
    first, second = two_brokers
    with connected(streams_url(second)) as elsewhere:
        elsewhere.Producer().publish("there", routing_key="q")
    with connected(streams_url(first), streams_url(second)) as connection:
        Basket(connection, queue("q"))
        first.stop()
        with pytest.raises(connection.connection_errors):
            connection.drain_events(timeout=DEADLINE_S)
        connection.close()
        connection.ensure_connection(interval_start=0.0, interval_step=0.01, max_retries=20)
        assert Basket(connection, queue("q")).take_bodies(1) == ["there"]


def test_a_pool_keeps_the_transport(own_broker: EmbeddedBroker, tmp_path: Path) -> None:
    with connected(absent(tmp_path), streams_url(own_broker)) as connection:
        pool = connection.Pool(limit=2)
        with pool.acquire(block=True) as one:
            one.Producer().publish("pooled", routing_key="q", retry=True, retry_policy=RETRY)
            assert isinstance(one.transport, Transport)
        pool.force_close_all()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sentinel://:secret@a:1,b:2/3", "sentinel://:***@a:1,b:2/3"),
        ("redis://user:s@cr:et@h:1/0", "redis://user:***@h:1/0"),
        ("unix:///a/b.sock?db=1", "unix:///a/b.sock?db=1"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    options = {"master_name": "m"}
    with connected(url, transport_options=options) as connection:
        assert connection.as_uri() == shown
        assert connection.as_uri(include_password=True) == url


def test_switching_takes_a_socket_as_kombu_writes_it(
    own_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    with connected(absent(tmp_path)) as connection:
        assert isinstance(connection.transport, Transport)
        connection.switch(own_broker.url)
        connection.connect()
        assert own_broker.url.startswith("redis+socket://")
        assert isinstance(connection.transport, Transport)
