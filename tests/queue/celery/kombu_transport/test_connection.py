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
from blimp.queue.celery.kombu_transport import Transport
from tests.broker import EmbeddedBroker
from tests.queue.celery.kombu_transport.conftest import TRANSPORT, Basket, queue, streams_url

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


def test_a_password_that_was_given_as_a_part_is_not_shown() -> None:
    with connected("h", userid="u", password=SECRET, port=1) as connection:
        assert connection.transport.client.as_uri() == "redis://u:***@h:1/0"
        shown = [connection.info(), connection.as_uri(), connection.password]
        assert SECRET not in " ".join(map(str, shown))
        assert connection.as_uri(include_password=True) == f"redis://u:{SECRET}@h:1/0"


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"visibility_timeout": 5, "leases": 1}, r"\['leases', 'visibility_timeout'\]: must be of"),
        ({"max_dead_leters": 3}, "max_dead_leters"),
        ({"lease_s": "soon"}, r"Expected `float.*\$\.lease_s"),
        ({"lease_s": 0}, r"lease_s: Expected `float` > 0"),
        ({"max_deliveries": "0"}, "max_deliveries: Expected `int` >= 1"),
        ({"on_lease_lost": "print"}, "on_lease_lost: Expected `Callable`"),
        ({"socket_timeout": -1}, "timeout_s: Expected `float` > 0"),
        ({"socket_keepalive": False}, "socket_keepalive"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], words: str) -> None:
    with (
        connected("redis://h/0", transport_options=options) as connection,
        pytest.raises(ConfigError, match=words),
    ):
        connection.transport  # noqa: B018


def test_options_are_read_once_texts_too() -> None:
    options: dict[str, Any] = {
        "lease_s": "7.5",
        "max_dead_letters": "3",
        "consumer": None,
        "max_retries": 3,
    }
    options |= {"global_keyprefix": "ours:", "socket_connect_timeout": 0.5}
    with connected("redis://h/0", transport_options=options) as connection:
        session = connection.transport._session
        assert (session.lease_s, session.store._dead_limit) == (7.5, "3:64000000")
        assert session.keys.exchange("").startswith("ours:blimp")
        given = session.link.client.connection_pool.connection_kwargs
        assert (given["socket_timeout"], given["socket_connect_timeout"]) == (2.0, 0.5)
        assert connection.clone().transport
