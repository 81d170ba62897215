"""Putting messages into queues, from any thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blimp.clock import Clock, SystemClock
from blimp.errors import LinkError, MessageError
from blimp.queue.brokers import broker_for
from blimp.queue.protocol.message import (
    AGAIN,
    MAX_MESSAGE_BYTES,
    TaskMessage,
    to_json,
    write_message,
)
from blimp.queue.redis.urls import Brokers
from blimp.queue.retry import PUBLISHING, RetryPolicy

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Found, Sender
    from blimp.queue.protocol.signing import Signer


class Publisher:
    """Connects on first use. Close is idempotent.

    url: of the broker, or the brokers: one that does not answer is left for the next.
    policy: how often a message is sent again if its broker did not answer. Streams recognise
        the repetition and put nothing more; elsewhere, and at another broker, a header makes
        the worker look whether the task is done already.
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
        self._broker = broker_for(self.brokers.urls, name=transport)
        self._timeout_s = timeout_s
        self._limit_bytes = limit_bytes
        self.signer = signer
        self._policy = policy
        self._clock = clock or SystemClock()
        self._chance = random.Random()
        self._lock = threading.Lock()
        self._senders: dict[str, Sender] = {}

    def connect(self) -> None:
        """Have a connection ready, so that the first message need not wait for one."""
        self._retry(lambda: self._sender().connect(), None)

    def publish(self, message: TaskMessage, *, policy: RetryPolicy | None = None) -> None:
        """Queue `message`. Raises LinkError if no broker answers.

        Raises MessageError if JSON cannot hold it, or it is longer than the limit.
        """
        headers, body = write_message(message, signer=self.signer, limit_bytes=self._limit_bytes)
        sender = self._sender()
        stamp = sender.stamp()

        def send() -> None:
            try:
                self._sender().send(message, headers, body, stamp)
            except LinkError:
                headers[AGAIN] = True  # perhaps only the answer was lost
                raise

        try:
            self._retry(send, policy)
        finally:
            sender.release(stamp)

    def broadcast(self, exchange: str, document: dict[str, Any]) -> None:
        """Send `document` to all that listen on the fanout `exchange` at this moment."""
        if self.signer is not None:
            signature = self.signer.sign_document(document, place=exchange)
            document = document | {"signature": signature}
        body = to_json(document)
        if len(body) > self._limit_bytes:
            raise MessageError(f"broadcast of {len(body)} bytes: the limit is {self._limit_bytes}")
        self._retry(lambda: self._sender().broadcast(exchange, body), None)

    def notify(
        self, body: bytes, *, exchange: Any, routing_key: str, headers: dict[str, Any]
    ) -> None:
        """Send JSON once to all that listen on kombu's `exchange`. Raises LinkError."""
        self._sender().notify(exchange, body, routing_key=routing_key, headers=headers)

    def revoke(self, queue: str, id: str, mark: bytes) -> Found:
        """Mark the message of task `id` in `queue` as revoked; see Sender.revoke."""
        found: list[Found] = []
        self._retry(lambda: found.append(self._sender().revoke(queue, id, mark)), None)
        return found[-1]

    def _retry(self, function: Callable[[], None], policy: RetryPolicy | None) -> None:
        (policy or self._policy).call(
            function,
            clock=self._clock,
            chance=self._chance,
            brokers=len(self.brokers),
            timeout_s=self._timeout_s,
        )

    def _sender(self) -> Sender:
        """Return the sender to the broker in use."""
        url = self.brokers.current
        sender = self._senders.get(url)
        if sender is None:
            with self._lock:
                sender = self._senders.get(url)
                if sender is None:
                    sender = self._senders[url] = self._broker.open_sender(
                        url, timeout_s=self._timeout_s, on_lost=self.brokers.failed
                    )
        return sender

    def close(self) -> None:
        with self._lock:
            while self._senders:
                self._senders.popitem()[1].close()
