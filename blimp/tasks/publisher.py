"""Putting messages into queues, from any thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from blimp.tasks.carrier import AMQP, STREAMS, choose_transport, open_connection
from blimp.tasks.message import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    TaskMessage,
    build_body,
    build_headers,
    to_json,
)
from blimp.tasks.urls import link_error

if TYPE_CHECKING:
    from kombu.pools import ProducerPool

MAX_CONNECTIONS = 8


class Publisher:
    """A pool of kombu producers, connected on first use. Close is idempotent.

    A message is sent again once where its connection was found dead: an answer that was
    lost then leaves two of it, which is why a command's id decides, not its message.
    """

    def __init__(self, *, url: str, timeout_s: float = 2.0, transport: str | None = None) -> None:
        self._url = url
        self._transport = choose_transport(transport, url)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._pool: ProducerPool | None = None

    def connect(self) -> None:
        """Have a connection ready, so that the first message need not wait for one."""
        with self._errors(), self._producers().acquire(block=True, timeout=self._timeout_s):
            pass

    def publish(self, message: TaskMessage) -> None:
        """Queue `message`. Raises LinkError where the broker is away, MessageError for NaN."""
        self._send(
            build_body(message),
            headers=build_headers(message),
            exchange="",
            routing_key=message.queue,
            priority=self._lane(message.priority),
            correlation_id=message.id,
            delivery_mode=2,
            mandatory=self._transport == AMQP,  # what reaches no queue is an error
        )

    def broadcast(self, exchange: str, document: dict[str, Any]) -> None:
        """Send `document` to whoever listens on the fanout `exchange` at this moment."""
        from kombu import Exchange

        fanout = Exchange(exchange, type="fanout", durable=False)
        self._send(to_json(document), exchange=fanout, routing_key="", declare=[fanout])

    def _lane(self, priority: int) -> int:
        """Return what the transport takes for `priority`."""
        if self._transport == AMQP:
            from blimp.tasks.rabbitmq import turn_priority

            return turn_priority(priority)
        # 0 is what kombu sends for none: streams take 1 for the first lane as well.
        return max(priority, 1 if self._transport == STREAMS else 0)

    def _send(self, body: bytes, **options: Any) -> None:
        pool = self._producers()
        with self._errors(), pool.acquire(block=True, timeout=self._timeout_s) as producer:
            producer.publish(
                body,
                content_type=CONTENT_TYPE,
                content_encoding=CONTENT_ENCODING,
                retry=True,
                retry_policy={
                    "max_retries": 1,
                    "interval_start": 0.0,
                    "interval_step": 0.1,
                    "interval_max": 0.1,
                },
                confirm_timeout=self._timeout_s,
                **options,
            )

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what kombu and its drivers raise for a lost or full broker into LinkError."""
        from amqp.exceptions import AMQPError, MessageNacked
        from kombu.exceptions import KombuError, OperationalError
        from redis import RedisError

        try:
            yield
        except (
            OperationalError,
            KombuError,
            RedisError,
            AMQPError,
            MessageNacked,
            OSError,
        ) as error:
            raise link_error(self._url, error) from error

    def _producers(self) -> ProducerPool:
        from kombu.pools import ProducerPool

        with self._lock:
            if self._pool is None:
                connection = open_connection(
                    self._url, transport=self._transport, timeout_s=self._timeout_s
                )
                kind: Any = ProducerPool
                if self._transport == AMQP:
                    from blimp.tasks.rabbitmq import ConfirmedPool

                    kind = ConfirmedPool
                self._pool = kind(
                    connections=connection.Pool(limit=MAX_CONNECTIONS), limit=MAX_CONNECTIONS
                )
            return self._pool

    def close(self) -> None:
        if self._pool is not None:
            self._pool.connections.force_close_all()
            self._pool.force_close_all()
            self._pool = None
