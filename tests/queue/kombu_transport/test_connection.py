"""What a kombu.Connection shows of itself, and its failover between several URLs."""

import contextlib
import json
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest

from blimp.errors import ConfigError
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


# --- what a connection shows of itself ----------------------------------------------------------

SECRET = "s3cret"
PARTS = [
    (f"redis://user:{SECRET}@h:1/2", ("h", 1, "user", "2")),
    (f"rediss://:{SECRET}@h/3", ("h", 6379, None, "3")),
    (f"valkey://u:{SECRET}@h", ("h", 6379, "u", "0")),
    (f"unix://u:{SECRET}@/run/b.sock?db=4", ("/run/b.sock", None, "u", "4")),
    (f"sentinel://:{SECRET}@a:1,b:2/5?master_name=m", ("a:1,b:2", None, None, "5")),
    (f"redis://h/6?password={SECRET}", ("h", 6379, None, "6")),
]


@pytest.mark.parametrize(("url", "parts"), PARTS)
def test_info_has_the_parts_of_the_url_and_no_secret(url: str, parts: tuple[Any, ...]) -> None:
    other = f"redis://:{SECRET}@other:7/1"
    options = {"sentinel_kwargs": {"password": SECRET}, "lease_s": 3.0}
    ssl = {"ssl_password": SECRET, "ssl_ca_certs": "/ca"} if url.startswith("rediss") else False
    with connected(url, other, transport_options=options, ssl=ssl) as connection:
        info = connection.info()
        names = ("hostname", "port", "userid", "virtual_host")
        assert tuple(info[name] for name in names) == parts
        assert info["transport_options"]["lease_s"] == 3.0
        shown = [
            connection.as_uri(),
            repr(connection),
            repr(info),
            json.dumps(info),
            connection.host,
        ]
        assert SECRET not in " ".join(map(str, shown))
        assert connection.as_uri(include_password=True) == url
        assert SECRET not in repr(vars(connection.transport))


@pytest.mark.parametrize("used", [False, True])
def test_clones_and_copies_keep_the_settings(used: bool) -> None:
    url, other = f"redis://u:{SECRET}@h:1/2", f"redis://:{SECRET}@other/1"
    options = {"sentinel_kwargs": {"password": SECRET}}
    with connected(url, other, transport_options=options) as connection:
        if used:
            assert connection.info()
        for copy in (connection.clone(), pickle.loads(pickle.dumps(connection)).clone()):
            transport = copy.transport
            assert copy.as_uri(include_password=True) == url
            assert transport.link.client.connection_pool.connection_kwargs["password"] == SECRET
            assert transport._settings.options == options
            assert transport._settings.alternates == (url, other)
            copy.maybe_switch_next()
            assert copy.as_uri(include_password=True) == other
            assert copy.transport.link.client.connection_pool.connection_kwargs["db"] == 1
            assert copy.info()["port"] == 6379


@pytest.mark.parametrize(
    "wrong",
    [
        f"redis://:{SECRET}@h:port/0",
        f"redis://:{SECRET}/x@h/0",
        f"redis://:1{SECRET}#x@h/0",
        f"redis://:{SECRET}@h/zero",
        f"amqp://:{SECRET}@h//",
        "no url",
        "",
    ],
)
def test_a_wrong_url_changes_nothing_and_is_named(own_broker: EmbeddedBroker, wrong: str) -> None:
    with connected(streams_url(own_broker)) as connection:
        connection.connect()
        transport, before = connection.transport, connection.info()
        with pytest.raises(ConfigError) as caught:
            connection.switch(wrong)
        assert SECRET not in str(caught.value)
        assert connection.connected
        assert (connection.transport, connection.info()) == (transport, before)


@pytest.mark.parametrize("url", [f"redis://:{SECRET}@h:port/0", f"redis://:{SECRET}/x@h/0"])
def test_the_error_of_a_first_url_has_no_secret(url: str) -> None:
    with connected(url) as connection, pytest.raises(ConfigError) as caught:
        connection.connect()
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_failover_passes_over_a_wrong_url_and_says_so(
    own_broker: EmbeddedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    urls = absent(tmp_path), f"redis://:{SECRET}@h:port/0", streams_url(own_broker)
    with connected(*urls) as connection:
        connection.ensure_connection(interval_start=0.0, interval_step=0.0, max_retries=5)
        assert connection.as_uri() == urls[2]
    (record,) = [one for one in caplog.records if "failover" in one.message]
    assert "redis://:***@h:port/0" in record.message
    assert SECRET not in caplog.text


def test_if_all_others_are_wrong_the_live_url_stays(own_broker: EmbeddedBroker) -> None:
    with connected(streams_url(own_broker), "redis://h:port/0") as connection:
        connection.connect()
        connection.maybe_switch_next()
        connection.maybe_switch_next()
        assert connection.as_uri() == streams_url(own_broker)
        connection.connect()


def test_an_option_without_a_meaning_is_named(caplog: pytest.LogCaptureFixture) -> None:
    options = {"visibility_timeout": 5, "leases": 1, "lease_s": 1.0, "max_retries": 3}
    with connected("redis://h/0", transport_options=options) as connection:
        assert connection.transport
        assert connection.clone().transport
    (record,) = [one for one in caplog.records if "ignored" in one.message]
    assert record.message.endswith("['leases', 'visibility_timeout']")
