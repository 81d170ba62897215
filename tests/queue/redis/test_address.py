"""One reading of a broker's URL: the host that is checked is the host that is connected to."""

import contextlib
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from redis.exceptions import RedisError

from blimp.config import broker_is_of_this_machine, check_broker_is_closed
from blimp.errors import BlimpError, ConfigError
from blimp.queue.celery.rabbitmq import RabbitBroker
from blimp.queue.redis.address import read_address
from blimp.queue.redis.client import ClientOptions, open_redis
from blimp.queue.redis.urls import check_address, hide_password, redis_url, split_urls

EVIL = "evil.example"


class Watched(OSError):
    """Ends a connection before it is made."""


class Watch:
    """Sees which host or socket Python is about to connect to; nothing leaves this process."""

    def __init__(self) -> None:
        self._seen: list[Any] | None = None
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._seen is None:
            return
        if event == "socket.getaddrinfo":
            host, port = arguments[:2]
            self._seen.append((host.decode() if isinstance(host, bytes) else host, port))
            raise Watched
        if event == "socket.connect":
            self._seen.append(arguments[1])
            raise Watched

    def of(self, connect: Callable[[], object]) -> Any:
        """Return what `connect` wanted to reach first."""
        self._seen = []
        try:
            with contextlib.suppress(OSError, RedisError):
                connect()
            return self._seen[0]
        finally:
            self._seen = None


WATCH = Watch()


def reached(url: str) -> Any:
    if url.startswith(("amqp", "pyamqp")):
        with RabbitBroker().open_connection(url, timeout_s=1.0) as connection:
            return WATCH.of(lambda: connection.transport.establish_connection())
    client = open_redis(url, timeout_s=1.0, options=ClientOptions(master_name="m"))
    return WATCH.of(client.ping)


def is_here(target: Any) -> bool:
    if isinstance(target, str) or target[0] in ("localhost", "::1"):
        return True
    octets = target[0].split(".")  # of 127.0.0.0/8, as RFC 1122 writes it
    is_address = all(re.fullmatch(r"0|[1-9]\d{0,2}", one) and int(one) < 256 for one in octets)
    return len(octets) == 4 and is_address and octets[0] == "127"


PIECES = st.sampled_from(
    [EVIL, "127.0.0.1", "localhost", "[::1]", "[fe80::1%25lo]", "[fe80::1%lo]", "[::1%eth0]",
     "@", "#", "?", "/", "\\", ":", ";", ",", "&", "=", " ", "\t", "\n", "\0", "%40", "%2e",
     "%23", "%2F", "%00", ".", "0", "1", "6379", "65536", "0x7f.1", "127.1", "me", "secret",
     "host=", "db=", "path=", "port=", "ssl_cert_reqs=none", "virtual_host=", "/run/b.sock",
     "redis://", "unix://", "ü", "。", "٣", "①"]
)  # fmt: skip
SCHEME = st.sampled_from(
    [
        "redis",
        "rediss",
        "valkey",
        "valkeys",
        "unix",
        "redis+socket",
        "socket",
        "sentinel",
        "cluster",
        "amqp",
        "amqps",
        "pyamqp",
    ]
)
URLS = st.builds(
    lambda scheme, parts: f"{scheme}://{''.join(parts)}",
    SCHEME,
    st.lists(PIECES, min_size=0, max_size=7),
)


@settings(max_examples=2500, deadline=None)
@given(URLS)
@example(f"redis://{EVIL}#@127.0.0.1/0")
@example(f"redis://{EVIL}?@127.0.0.1/0")
@example(f"redis://{EVIL}\\@127.0.0.1/0")
@example(f"redis:///0?host={EVIL}")
@example(f"redis://127.0.0.1%00.{EVIL}/0")
@example(f"redis+socket://{EVIL}#@/run/b.sock")
@example(f"amqp://{EVIL}#@127.0.0.1//")
@example(f"amqp://localhost;{EVIL}//")
@example(f"sentinel://{EVIL}#@127.0.0.1/0")
@example(f"sentinel://,{EVIL}")
def test_the_host_that_is_checked_is_the_host_that_is_connected_to(urls: str) -> None:
    for url in split_urls(urls):
        compare(url)


def compare(url: str) -> None:
    try:
        address = read_address(url)
    except ValueError:
        with pytest.raises(ConfigError):
            check_broker_is_closed(url, ("key",))
        with pytest.raises(BlimpError):
            reached(url)
        return
    target = reached(url)
    later = address.hosts[1:]  # the sentinels that are asked if the first one is silent
    assert all(map(is_here, (target, *later))) is broker_is_of_this_machine(url)
    if address.path:
        assert target == address.path
        return
    host, port = address.hosts[0]
    assert target[0] in (host, "127.0.0.1" if host == "localhost" else "")  # kombu's habit
    assert port in (None, int(target[1]))
    if not url.startswith(("amqp", "pyamqp", "socket")):
        assert read_address(redis_url(url)).hosts == address.hosts


@settings(max_examples=500, deadline=None)
@given(st.text(st.sampled_from("s3cret@:/?#%;& \\[]"), min_size=1, max_size=12))
@example("@;c://")
def test_no_part_of_a_password_is_printed(noise: str) -> None:
    """Whatever stands in it, quoted or not: it is hidden up to the last @."""
    for url in (f"redis://me:Q{noise}Q@host/0", f"amqp://me:Q{noise}Q@host//"):
        shown = hide_password(url)
        assert "Q" not in shown
        with pytest.raises(ConfigError) as refused:
            check_broker_is_closed(url, None)
        assert "Q" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (f"redis://{EVIL}#@127.0.0.1/0", "write the # ; of its password or path as %23 %3B"),
        (f"redis://{EVIL}?@127.0.0.1/0", "of its password as %40"),
        (f"redis:///0?host={EVIL}", f"option host={EVIL} is unknown"),
        ("redis://h/0?port=1", "option port=1 is unknown"),
        ("redis://h/0?p%61ssword=x", r"option p%61ssword=\*\*\* is unknown"),
        ("redis://h/0?db=1&db=2", "option db is given twice"),
        ("redis://h/1?db=2", "it names two databases"),
        ("redis://h/abc", "its database is not a number"),
        ("redis://h/0?wait_replicas=0", "wait_replicas=0 must be 1 to 10"),
        ("sentinel://h/a/0?master_name=b", "it names two masters"),
        ("cluster://h", "a cluster's path is the hash tag of its keys"),
        ("redis://h/%30", "its database is not a number"),
        ("redis://h/0?socket_timeout=soon", "option socket_timeout=soon is no number"),
        ("redis://h:0/0", "Port 0 is no port"),
        ("redis://h:٣/0", "Port could not be cast"),
        ("redis://127.0.0.1%2eevil.example/0", "its host is neither an address nor a name"),
        ("redis://h\t.example/0", "a space or a control character"),
        ("redis://me@h\\.example/0", "a backslash or a control character"),
        ("redis://[::1%lo]/0", "only a link-local IPv6 address has a zone"),
        ("redis://[::1]6379/0", "Invalid IPv6 URL"),
        ("unix://run/b.sock", "the path of a socket begins with a /"),
        ("redis://h/0;evil.example", "%3B"),
        ("amqp://h//?hostname=evil.example", "option hostname=evil.example is unknown"),
        ("rediss://h/0?SSL_CERT_REQS=none", "option SSL_CERT_REQS=none is unknown"),
        ("rediss://h/0?ssl_check_hostname=maybe", "ssl_check_hostname=maybe must be true or false"),
        ("redis://h/0?ssl_cert_reqs=none", "option ssl_cert_reqs=none is unknown"),
    ],
)
def test_what_could_mean_two_things_is_refused_with_its_reason(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_address(url)
    with pytest.raises(ConfigError):
        check_broker_is_closed(url, ("key",))
    with pytest.raises(ConfigError):
        reached(url)


@pytest.mark.parametrize(
    "option",
    ["ssl_cert_reqs=none", *(f"ssl_check_hostname={word}" for word in ("false", "No", "0"))],
)
def test_tls_that_does_not_check_the_server_is_refused_for_a_ship(option: str) -> None:
    with pytest.raises(ConfigError, match="without a check of its certificate"):
        check_broker_is_closed(f"rediss://h/0?{option}", ("key",))
    check_broker_is_closed(f"rediss://127.0.0.1/0?{option}", ("key",))
    check_broker_is_closed("rediss://h/0?ssl_ca_certs=/ca.pem&ssl_check_hostname=true", ("key",))


def parts(url: str) -> dict[str, Any]:
    given: dict[str, Any] = open_redis(url, timeout_s=1.0).connection_pool.connection_kwargs
    return given


def test_what_is_quoted_reaches_the_server() -> None:
    given = parts("redis://m%40e:s%2Fe%3Fc%23r%3Bet%25@[2001:DB8::1]:7/12")
    assert (given["username"], given["password"]) == ("m@e", "s/e?c#r;et%")
    assert (given["host"], given["port"], given["db"]) == ("2001:db8::1", 7, 12)
    given = parts("redis+socket://u:p@/run/a%20b.sock?virtual_host=/3")
    assert (given["path"], given["db"], given["username"]) == ("/run/a b.sock", 3, "u")
    given = parts("redis://h?db=4&password=a%26b&socket_timeout=2.5")
    assert (given["db"], given["password"], given["socket_timeout"]) == (4, "a&b", 2.5)
    assert parts("redis://[fe80::1%25eth0]/0")["host"] == "fe80::1%eth0"
    assert "secret" not in repr(read_address("redis://me:secret@h/0"))


def test_rabbitmq_gets_its_parts_and_not_the_url() -> None:
    connection: Any = RabbitBroker().open_connection(
        "amqps://m%40e:s%2Fe@Host:7/a%2Fb?ssl_ca_certs=/ca.pem", timeout_s=1.0
    )
    assert (connection.hostname, connection.port) == ("host", 7)
    assert (connection.userid, connection.password) == ("m@e", "s/e")
    assert connection.virtual_host == "a/b"
    assert connection.ssl["ca_certs"] == "/ca.pem"
    assert connection.ssl["server_hostname"] == "host"
