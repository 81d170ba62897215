"""Putting messages into queues, from any thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from blimp.tasks.carrier import STREAMS, check_transport, open_connection
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
        self._transport = check_transport(transport)
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
            # 0 is what kombu sends for none: streams take 1 for the first lane as well.
            priority=max(message.priority, 1 if self._transport == STREAMS else 0),
            correlation_id=message.id,
            delivery_mode=2,
        )

    def broadcast(self, exchange: str, document: dict[str, Any]) -> None:
        """Send `document` to whoever listens on the fanout `exchange` at this moment."""
        from kombu import Exchange

        fanout = Exchange(exchange, type="fanout", durable=False)
        self._send(to_json(document), exchange=fanout, routing_key="", declare=[fanout])

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
                **options,
            )

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what kombu and redis-py raise for a lost or full broker into LinkError."""
        from kombu.exceptions import KombuError, OperationalError
        from redis import RedisError

        try:
            yield
        except (OperationalError, KombuError, RedisError, OSError) as error:
            raise link_error(self._url, error) from error

    def _producers(self) -> ProducerPool:
        from kombu.pools import ProducerPool

        with self._lock:
            if self._pool is None:
                connection = open_connection(
                    self._url, transport=self._transport, timeout_s=self._timeout_s
                )
                self._pool = ProducerPool(
                    connections=connection.Pool(limit=MAX_CONNECTIONS), limit=MAX_CONNECTIONS
                )
            return self._pool

    def close(self) -> None:
        if self._pool is not None:
            self._pool.connections.force_close_all()
            self._pool.force_close_all()
            self._pool = None
