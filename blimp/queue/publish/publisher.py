"""Putting messages into queues, from any thread."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from blimp.clock import Clock, SystemClock
from blimp.errors import LinkError, MessageError
from blimp.queue.brokers.choose import AMQP, STREAMS, choose_transport, open_connection
from blimp.queue.protocol.message import (
    AGAIN,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    MAX_MESSAGE_BYTES,
    TaskMessage,
    to_json,
    write_message,
)
from blimp.queue.redis.failover import Brokers
from blimp.queue.redis.urls import is_refused, link_error, link_errors
from blimp.queue.retry import PUBLISHING, RetryPolicy

if TYPE_CHECKING:
    from kombu.pools import ProducerPool

    from blimp.queue.brokers.streams.publish_once import Stamp, Stamps
    from blimp.queue.brokers.streams.sender import StreamsSender
    from blimp.queue.protocol.signing import Signer

MAX_CONNECTIONS = 8


class Publisher:
    """Connected on first use. Close is idempotent.

    url: of the broker, or the brokers: one that does not answer is left for the next.
    policy: how often a message is sent again whose broker did not answer. Streams know it
        again, and put nothing more; elsewhere, and at another broker, a header has the worker
        look whether it is done already.
    """

    def __init__(
        self,
        *,
        url: str | Brokers,
        timeout_s: float = 2.0,
        transport: str | None = None,
        limit_bytes: int = MAX_MESSAGE_BYTES,
        signer: Signer | None = None,
        policy: RetryPolicy = PUBLISHING,
        clock: Clock | None = None,
    ) -> None:
        self.brokers = url if isinstance(url, Brokers) else Brokers(url)
        self._transport = choose_transport(transport, self.brokers.urls)
        self._timeout_s = timeout_s
        self._limit_bytes = limit_bytes
        self.signer = signer
        self._policy = policy
        self._clock = clock or SystemClock()
        self._chance = random.Random()
        self._lock = threading.Lock()
        self._own = threading.local()
        self._pools: dict[str, ProducerPool] = {}
        self._senders: dict[str, StreamsSender] = {}

    def connect(self) -> None:
        """Have a connection ready, so that the first message need not wait for one."""
        self._retry(self._connect, self._policy)

    def publish(self, message: TaskMessage, *, policy: RetryPolicy | None = None) -> None:
        """Queue `message`. Raises LinkError where no broker answers.

        Raises MessageError where JSON cannot hold it, or it is longer than the limit.
        """
        headers, body = write_message(message, signer=self.signer, limit_bytes=self._limit_bytes)
        stamp = self._stamp()

        def send() -> None:
            try:
                if stamp is None:
                    self._send(
                        body,
                        headers=headers,
                        exchange="",
                        routing_key=message.queue,
                        priority=self._lane(message.priority),
                        correlation_id=message.id,
                        delivery_mode=2,
                        mandatory=self._transport == AMQP,  # what reaches no queue is an error
                    )
                else:
                    self._put(message, body, headers, stamp)
            except LinkError:
                headers[AGAIN] = True  # the answer may be lost, not the message
                raise

        self._retry(send, policy)

    def broadcast(self, exchange: str, document: dict[str, Any]) -> None:
        """Send `document` to whoever listens on the fanout `exchange` at this moment."""
        from kombu import Exchange

        if self.signer is not None:
            signature = self.signer.sign_document(document, place=exchange)
            document = document | {"signature": signature}
        body = to_json(document)
        if len(body) > self._limit_bytes:
            raise MessageError(f"broadcast of {len(body)} bytes: the limit is {self._limit_bytes}")
        fanout = Exchange(exchange, type="fanout", durable=False)
        self._retry(
            lambda: self._send(body, exchange=fanout, routing_key="", declare=[fanout]), None
        )

    def tell(
        self, body: bytes, *, exchange: Any, routing_key: str, headers: dict[str, Any]
    ) -> None:
        """Send JSON once to whoever listens on kombu's `exchange`. Raises LinkError."""
        self._send(
            body,
            may_refuse=True,
            exchange=exchange,
            routing_key=routing_key,
            headers=headers,
            declare=[exchange],
            delivery_mode=1,
        )

    def _retry(self, function: Callable[[], None], policy: RetryPolicy | None) -> None:
        (policy or self._policy).call(
            function,
            clock=self._clock,
            chance=self._chance,
            brokers=len(self.brokers),
            timeout_s=self._timeout_s,
        )

    def _stamp(self) -> Stamp | None:
        """Return by what streams tell a repeated publish from another; None elsewhere."""
        if self._transport != STREAMS:
            return None
        stamps: Stamps | None = getattr(self._own, "stamps", None)
        if stamps is None:  # each thread's: the server remembers a sender's latest
            from blimp.queue.brokers.streams.publish_once import DEFAULT_REMEMBER_S, Stamps
            from blimp.queue.redis.keys import Keys

            stamps = self._own.stamps = Stamps(keys=Keys(), remember_s=DEFAULT_REMEMBER_S)
        return stamps.next()

    def _connect(self) -> None:
        url = self.brokers.current
        if self._transport == STREAMS:
            with link_errors(url, self.brokers.failed):
                self._sender(url).connect()
            return
        pool = self._producers(url)
        with self._errors(url), pool.acquire(block=True, timeout=self._timeout_s) as producer:
            producer.connection.ensure_connection(max_retries=0, timeout=self._timeout_s)

    def _lane(self, priority: int) -> int:
        """Return what the transport takes for `priority`."""
        if self._transport == AMQP:
            from blimp.queue.brokers.rabbitmq import turn_priority

            return turn_priority(priority)
        # 0 is what kombu sends for none: streams take 1 for the first lane as well.
        return max(priority, 1 if self._transport == STREAMS else 0)

    def _put(
        self, message: TaskMessage, body: bytes, headers: dict[str, Any], stamp: Stamp
    ) -> None:
        url = self.brokers.current
        with link_errors(url, self.brokers.failed):
            self._sender(url).send(
                body,
                headers=headers,
                queue=message.queue,
                priority=message.priority,
                stamp=stamp,
            )

    def _sender(self, url: str) -> StreamsSender:
        sender = self._senders.get(url)
        if sender is None:
            from blimp.queue.brokers.streams.sender import StreamsSender

            with self._lock:
                sender = self._senders.setdefault(
                    url, StreamsSender(url, timeout_s=self._timeout_s)
                )
        return sender

    def _send(self, body: bytes, *, may_refuse: bool = False, **options: Any) -> None:
        """may_refuse: a broker that says no is as good as the others, and stays in use."""
        url = self.brokers.current
        pool = self._producers(url)
        with (
            self._errors(url, may_refuse=may_refuse),
            pool.acquire(block=True, timeout=self._timeout_s) as producer,
        ):
            producer.publish(
                body,
                content_type=CONTENT_TYPE,
                content_encoding=CONTENT_ENCODING,
                # kombu's own retry replaces a connection that has died; ours does that itself.
                retry=self._transport != STREAMS,
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
    def _errors(self, url: str, *, may_refuse: bool = False) -> Iterator[None]:
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
            if not (may_refuse and is_refused(error)):
                self.brokers.failed(url)
            raise link_error(url, error) from None

    def _producers(self, url: str) -> ProducerPool:
        from kombu.pools import ProducerPool

        with self._lock:
            if url not in self._pools:
                connection = open_connection(
                    url, transport=self._transport, timeout_s=self._timeout_s
                )
                kind: Any = ProducerPool
                if self._transport == AMQP:
                    from blimp.queue.brokers.rabbitmq import ConfirmedPool

                    kind = ConfirmedPool
                self._pools[url] = kind(
                    connections=connection.Pool(limit=MAX_CONNECTIONS), limit=MAX_CONNECTIONS
                )
            return self._pools[url]

    def close(self) -> None:
        with self._lock:
            while self._pools:
                pool = self._pools.popitem()[1]
                pool.connections.force_close_all()
                pool.force_close_all()
            while self._senders:
                self._senders.popitem()[1].close()
