"""Brokers that are kombu's own transports: their base, their sender, and the one in memory.

Tested by test_brokers.py.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import kombu
from amqp.exceptions import AMQPError, MessageNacked
from kombu.exceptions import KombuError, OperationalError
from kombu.pools import ProducerPool

from blimp.errors import ConfigError
from blimp.queue.brokers.base import Capabilities, Found
from blimp.queue.protocol.message import CONTENT_ENCODING, CONTENT_TYPE
from blimp.queue.redis.urls import is_refused, link_error

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Consumer, ConsumerOptions, Exchange, Sender, Written

POLL_S = 0.05  # between a connection's looks at its queues
MAX_CONNECTIONS = 8
RETRY_ONCE = {"max_retries": 1, "interval_start": 0.0, "interval_step": 0.1, "interval_max": 0.1}
LOST = (OperationalError, KombuError, AMQPError, MessageNacked, OSError)


class KombuBroker:
    """Override what the transport needs. producers: kombu's pool, or one that does more."""

    name: str
    capabilities: Capabilities
    producers: type[ProducerPool] = ProducerPool

    def check_url(self, url: str) -> None:
        """Raise ConfigError for a URL with an option that is unknown."""

    def open_connection(
        self, url: str, *, timeout_s: float, beats: bool = False, **options: Any
    ) -> kombu.Connection:
        """Return a kombu connection, not connected yet; no call on a dead link hangs on it.

        beats: the broker ends it if it receives no heartbeat.
        """
        raise NotImplementedError

    def info(self, url: str, *, timeout_s: float) -> dict[str, Any]:
        info = self.open_connection(url, timeout_s=timeout_s).info()
        hidden = ("password", "credential_provider", "transport_options")  # the last: not JSON
        return {name: value for name, value in info.items() if name not in hidden}

    @staticmethod
    def turn_priority(priority: int) -> int:
        """Return our priority as the broker's, and the other way."""
        return priority

    @staticmethod
    def declare_queue(connection: Any, name: str) -> bool:  # noqa: ARG004
        """Declare queue `name` on `connection`; return False if it exists as another kind."""
        return True

    def open_consumer(self, options: ConsumerOptions) -> Consumer:
        from blimp.queue.celery.kombu_consumer import KombuConsumer  # only in a worker

        return KombuConsumer(
            options,
            broker=self,
            turn_priority=self.turn_priority,
            declare_queue=self.declare_queue,
        )

    def open_sender(
        self, url: str, *, timeout_s: float, on_lost: Callable[[str], None], **_: Any
    ) -> Sender:
        return KombuSender(self, url, timeout_s=timeout_s, on_lost=on_lost)


class MemoryBroker(KombuBroker):
    """Messages in this process: for trying things out."""

    name = "memory"
    capabilities = Capabilities(title="this process", is_shared=False, has_priorities=False)

    def open_connection(
        self,
        url: str,
        *,
        timeout_s: float,
        beats: bool = False,  # noqa: ARG002
        **options: Any,
    ) -> kombu.Connection:
        if url.endswith("://"):
            url += "localhost"  # kombu takes that without a warning
        options = {"polling_interval": POLL_S} | options
        return kombu.Connection(url, connect_timeout=timeout_s, transport_options=options)


class KombuSender:
    """A Sender with a pool of kombu's producers."""

    def __init__(
        self, broker: KombuBroker, url: str, *, timeout_s: float, on_lost: Callable[[str], None]
    ) -> None:
        self._broker = broker
        self._url = url
        self._timeout_s = timeout_s
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._pool: ProducerPool | None = None

    def connect(self) -> None:
        with self._producer() as producer:
            producer.connection.ensure_connection(max_retries=0, timeout=self._timeout_s)

    def stamp(self) -> Any:
        return None

    def release(self, stamp: Any) -> None:
        """There is none."""

    def send_unique(self, message: Written, stamp: Any) -> str:  # noqa: ARG002
        what = f"task {message.message.task!r}: a unique task"
        raise ConfigError(f"{what} needs a Redis or Valkey broker")

    def send(self, messages: Sequence[Written], stamp: Any) -> None:  # noqa: ARG002
        ((message, headers, body),) = messages
        self._publish(
            body,
            headers=headers,
            exchange="",
            routing_key=message.queue,
            priority=self._broker.turn_priority(message.priority),
            correlation_id=message.id,
            delivery_mode=2,
            mandatory=True,  # to reach no queue is an error
        )

    def broadcast(self, exchange: str, body: bytes) -> None:
        fanout = kombu.Exchange(exchange, type="fanout", durable=False)
        self._publish(body, exchange=fanout, routing_key="", declare=[fanout])

    def notify(
        self, exchange: Exchange, body: bytes, *, routing_key: str, headers: dict[str, Any]
    ) -> None:
        theirs = kombu.Exchange(**exchange._asdict())
        self._publish(
            body,
            may_refuse=True,
            exchange=theirs,
            routing_key=routing_key,
            headers=headers,
            declare=[theirs],
            delivery_mode=1,
        )

    def bind(self, queue: str, exchange: Exchange, routing_key: str) -> None:
        theirs = kombu.Exchange(**exchange._asdict())
        with (
            self._producer(may_refuse=True) as producer,
            producer.connection.channel() as channel,
        ):
            bound = kombu.Queue(queue, theirs)(channel)
            bound.exchange.declare()
            bound.bind_to(bound.exchange, routing_key=routing_key)

    def revoke(self, queue: str, id: str, mark: bytes) -> Found:  # noqa: ARG002
        """A broker of kombu's cannot be searched."""
        return Found.NOT_SEARCHED

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.connections.force_close_all()
            pool.force_close_all()

    def _publish(self, body: bytes, *, may_refuse: bool = False, **options: Any) -> None:
        with self._producer(may_refuse=may_refuse) as producer:
            producer.publish(
                body,
                content_type=CONTENT_TYPE,
                content_encoding=CONTENT_ENCODING,
                retry=True,  # replaces a connection that has died
                retry_policy=RETRY_ONCE,
                confirm_timeout=self._timeout_s,
                **options,
            )

    @contextlib.contextmanager
    def _producer(self, *, may_refuse: bool = False) -> Iterator[Any]:
        """Yield a producer; turn what kombu and its drivers raise into LinkError.

        may_refuse: a refusal does not mark the broker as lost: it stays in use.
        """
        try:
            with self._lock:
                if self._pool is None:
                    connection = self._broker.open_connection(self._url, timeout_s=self._timeout_s)
                    self._pool = self._broker.producers(
                        connections=connection.Pool(limit=MAX_CONNECTIONS), limit=MAX_CONNECTIONS
                    )
                pool = self._pool
            with pool.acquire(block=True, timeout=self._timeout_s) as producer:
                yield producer
        except LOST as error:
            if not (may_refuse and is_refused(error)):
                self._on_lost(self._url)
            raise link_error(self._url, error) from None
