"""kombu connections on a real server, and consumers in processes to be killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import kombu
import pytest

from blimp.queue.brokers.streams.envelope import Envelope
from blimp.queue.brokers.streams.store import Counts, StreamsOptions
from blimp.queue.brokers.streams.visibility import StreamsSession
from tests.broker import EmbeddedBroker
from tests.inbox import Printed
from tests.queue.conftest import DEADLINE_S
from tests.signals import stop_process

TRANSPORT = "blimp.queue.kombu_transport:Transport"
Connect = Callable[..., kombu.Connection]


def streams_url(broker: EmbeddedBroker) -> str:
    """Return the URL as kombu lets another transport have it."""
    path = broker.url.partition("://")[2].partition("?")[0]
    return f"unix://{path}?db=0"


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> str:
    return "streams"


@pytest.fixture
def streams(broker_server: EmbeddedBroker, server: object) -> str:
    """The URL of an empty server."""
    return streams_url(broker_server)


@pytest.fixture
def connect(streams: str) -> Iterator[Connect]:
    """Open connections on the transport; they are closed when the test ends."""
    with contextlib.ExitStack() as stack:

        def open_one(**options: Any) -> kombu.Connection:
            connection = kombu.Connection(streams, transport=TRANSPORT, transport_options=options)
            stack.enter_context(connection)
            return connection

        yield open_one


@pytest.fixture
def session(streams: str) -> Iterator[StreamsSession]:
    """A session, to look and act past kombu."""
    session = StreamsSession(url=streams, options=StreamsOptions(consumer="observer"))
    yield session
    session.close()


def put_raw(
    session: StreamsSession, body: bytes, *, queue: str = "q", level: int = 2, head: bytes = b"{}"
) -> None:
    """Put one message into a priority stream, past the scripts."""
    session.link.client.xadd(session.keys.queue(queue).levels[level], {"h": head, "b": body})


class Basket:
    """A consumer that keeps what it is given, unacknowledged."""

    def __init__(
        self, connection: kombu.Connection, *queues: kombu.Queue, prefetch: int = 0, **options: Any
    ) -> None:
        self.connection = connection
        self.channel = connection.channel()
        self.channel.basic_qos(0, prefetch, False)
        self.messages: list[Any] = []
        self.consumer = kombu.Consumer(
            self.channel, list(queues), on_message=self.messages.append, **options
        )
        self.consumer.consume()

    def take(self, count: int) -> list[Any]:
        """Wait until there are `count` messages more, and return them."""
        before = len(self.messages)
        until_s = time.monotonic() + DEADLINE_S
        while len(self.messages) < before + count:
            with contextlib.suppress(TimeoutError):
                self.connection.drain_events(timeout=1.0)
            assert time.monotonic() < until_s, f"{len(self.messages) - before} of {count} came"
        return self.messages[before:]

    def take_bodies(self, count: int) -> list[Any]:
        return [message.decode() for message in self.take(count)]

    def is_empty(self, timeout_s: float = 0.05) -> bool:
        """Return whether nothing comes for a while."""
        try:
            self.connection.drain_events(timeout=timeout_s)
        except TimeoutError:
            return True
        return False


def queue(name: str) -> kombu.Queue:
    """A queue on the default exchange."""
    return kombu.Queue(name, kombu.Exchange(""), routing_key=name)


def send(connection: kombu.Connection, *bodies: Any, to: str = "q", **options: Any) -> None:
    producer = connection.Producer()
    for body in bodies:
        producer.publish(body, routing_key=to, **options)


def counts(session: StreamsSession, name: str = "q") -> Counts:
    return session.store.counts(session.keys.queue(name))


def envelope(**options: Any) -> Envelope:
    """A message as it goes to the server, of which only its way matters."""
    return Envelope(
        **{"level": 2, "due_ms": 0, "ttl_ms": None, "head": b"{}", "body": b""} | options
    )


class Process:
    """A consumer in a process of its own; see consumer_process.py for what it prints."""

    def __init__(self, *, url: str, name: str, queue: str, mode: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.queue.celery.kombu_transport.consumer_process",
             url, name, queue, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self._printed = Printed(self.process.stdout)

    def wait_for(self, start: str) -> str:
        """Return the first line that begins with `start`, once it is printed."""
        lines = self._printed.items
        found = self._printed.wait_for(
            lambda: next((line.strip() for line in lines if line.startswith(start)), None)
        )
        assert found, f"no {start!r} in {lines}"
        return found

    def signal(self, number: signal.Signals) -> None:
        if number is signal.SIGSTOP:
            stop_process(self.process.pid)
        else:
            self.process.send_signal(number)

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)
        self._printed.join()
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture
def start_consumer(streams: str) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*, name: str, queue: str, mode: str, url: str = streams) -> Process:
        process = Process(url=url, name=name, queue=queue, mode=mode)
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.signal(signal.SIGCONT)
        process.kill()
