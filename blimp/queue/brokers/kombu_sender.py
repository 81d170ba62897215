"""Publishing through kombu's producers: for the brokers that are kombu's own transports."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from blimp.queue.brokers.base import Found
from blimp.queue.protocol.message import CONTENT_ENCODING, CONTENT_TYPE, TaskMessage
from blimp.queue.redis.urls import is_refused, link_error

if TYPE_CHECKING:
    from kombu.pools import ProducerPool

    from blimp.queue.brokers.base import Broker

MAX_CONNECTIONS = 8
RETRY_ONCE = {"max_retries": 1, "interval_start": 0.0, "interval_step": 0.1, "interval_max": 0.1}


class KombuSender:
    """A Sender with a pool of kombu's producers.

    turn_priority: our priority as the broker's. pool: kombu's, or one that does more.
    mandatory: a message that reaches no queue is an error.
    """

    def __init__(
        self,
        broker: Broker,
        url: str,
        *,
        timeout_s: float,
        on_lost: Callable[[str], None],
        turn_priority: Callable[[int], int] = int,
        pool: type[ProducerPool] | None = None,
        mandatory: bool = False,
    ) -> None:
        self._broker = broker
        self._url = url
        self._timeout_s = timeout_s
        self._on_lost = on_lost
        self._turn_priority = turn_priority
        self._kind = pool
        self._mandatory = mandatory
        self._lock = threading.Lock()
        self._pool: ProducerPool | None = None

    def connect(self) -> None:
        with self._producer() as producer:
            producer.connection.ensure_connection(max_retries=0, timeout=self._timeout_s)

    def stamp(self) -> Any:
        return None

    def release(self, stamp: Any) -> None:
        """There is none."""

    def send(
        self,
        message: TaskMessage,
        headers: dict[str, Any],
        body: bytes,
        stamp: Any,  # noqa: ARG002
    ) -> None:
        self._publish(
            body,
            headers=headers,
            exchange="",
            routing_key=message.queue,
            priority=self._turn_priority(message.priority),
            correlation_id=message.id,
            delivery_mode=2,
            mandatory=self._mandatory,
        )

    def broadcast(self, exchange: str, body: bytes) -> None:
        from kombu import Exchange

        fanout = Exchange(exchange, type="fanout", durable=False)
        self._publish(body, exchange=fanout, routing_key="", declare=[fanout])

    def notify(
        self, exchange: Any, body: bytes, *, routing_key: str, headers: dict[str, Any]
    ) -> None:
        self._publish(
            body,
            may_refuse=True,
            exchange=exchange,
            routing_key=routing_key,
            headers=headers,
            declare=[exchange],
            delivery_mode=1,
        )

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
        from amqp.exceptions import AMQPError, MessageNacked
        from kombu.exceptions import KombuError, OperationalError

        lost = (OperationalError, KombuError, AMQPError, MessageNacked, OSError)
        try:
            with self._producers().acquire(block=True, timeout=self._timeout_s) as producer:
                yield producer
        except lost as error:
            if not (may_refuse and is_refused(error)):
                self._on_lost(self._url)
            raise link_error(self._url, error) from None

    def _producers(self) -> ProducerPool:
        from kombu.pools import ProducerPool

        with self._lock:
            if self._pool is None:
                connection = self._broker.open_connection(self._url, timeout_s=self._timeout_s)
                kind: Any = self._kind or ProducerPool
                self._pool = kind(
                    connections=connection.Pool(limit=MAX_CONNECTIONS), limit=MAX_CONNECTIONS
                )
            return self._pool

    def revoke(self, queue: str, id: str, mark: bytes) -> Found:  # noqa: ARG002
        """A broker of kombu's cannot be searched."""
        return Found.NOT_SEARCHED

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.connections.force_close_all()
            pool.force_close_all()
