"""An answer that is lost with its connection: what it delivered is found again."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from blimp.queue.brokers.streams.fetcher import Fetcher
from blimp.queue.brokers.streams.store import SCRIPTS, StreamsOptions
from blimp.queue.brokers.streams.visibility import StreamsSession
from tests.broker import EmbeddedBroker
from tests.faults.proxy import Command, Proxy
from tests.queue.celery.kombu_transport.conftest import (
    put_raw,
    streams_url,
)
from tests.queue.conftest import DEADLINE_S

LEASE_S = 0.4
CONSUMER = StreamsOptions(consumer="w", lease_s=LEASE_S)


class CutAfter:
    """Ends the connection instead of passing on the next reply to a command of one kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.fired = threading.Event()

    def before(self, command: Command) -> bool:
        return True

    def after(self, command: Command) -> bool:
        if command.kind != self._kind or self.fired.is_set():
            return True
        self.fired.set()
        return False


@pytest.fixture
def proxy(broker_server: EmbeddedBroker, streams: str, tmp_path: Path) -> Iterator[Proxy]:
    upstream = Path(streams_url(broker_server).partition("://")[2].partition("?")[0])
    with redis.Redis(unix_socket_path=str(upstream)) as client:
        client.script_load(SCRIPTS["take"].text)  # or the reply that is cut is NOSCRIPT
    with contextlib.closing(Proxy(path=tmp_path / "p", upstream=upstream)) as proxy:
        yield proxy


@pytest.fixture
def proxied(proxy: Proxy, tmp_path: Path) -> str:
    return f"unix://{tmp_path / 'p'}?db=0"


@pytest.fixture
def far(proxied: str) -> Iterator[StreamsSession]:
    """A holder whose link goes through the proxy."""
    session = StreamsSession(url=proxied, options=CONSUMER)
    yield session
    session.close()


def put(session: StreamsSession, count: int) -> None:
    for number in range(count):
        put_raw(session, b"%d" % number)


def test_a_batch_whose_answer_was_lost_is_put_back_by_the_next_begin(
    far: StreamsSession, session: StreamsSession, proxy: Proxy
) -> None:
    put(session, 5)
    first = Fetcher(session=far, queues=["q"])
    first.begin()
    proxy.fault = CutAfter("take")
    with pytest.raises(redis.ConnectionError):
        first.take(room=16, timeout_s=1.0)
    first.close()
    second = Fetcher(session=far, queues=["q"])
    assert second.begin() == 5
    assert len(second.take(room=16, timeout_s=1.0)) == 5
    second.close()


def test_one_that_came_while_it_waited_is_put_back_too(
    far: StreamsSession, session: StreamsSession, proxy: Proxy
) -> None:
    first = Fetcher(session=far, queues=["q"])
    first.begin()
    assert first.take(room=16, timeout_s=0.001) == []
    proxy.fault = cut = CutAfter("XREADGROUP")
    put(session, 1)
    with pytest.raises(redis.ConnectionError):
        wait(lambda: first.take(room=16, timeout_s=0.1))
    assert cut.fired.is_set()
    first.close()
    second = Fetcher(session=far, queues=["q"])
    assert second.begin() == 1
    second.close()


def wait(step: Callable[[], object]) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < until_s:
        with contextlib.suppress(TimeoutError):
            step()


def test_an_answer_that_nobody_waited_for_is_not_the_next_commands(
    session: StreamsSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = session.keys.queue("q")
    session.store.make_group(keys)
    put(session, 1)
    pool = session.link.client.connection_pool
    connection = pool.get_connection()
    pool.release(connection)  # the next to be used

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(connection, "read_response", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.store.take([keys], room=1)
    assert connection._sock is None
    assert session.link.client.ping() is True
