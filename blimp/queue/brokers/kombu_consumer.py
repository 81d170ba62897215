"""A line on any kombu transport: what RabbitMQ has of a queue, and others have less of.

An acknowledgement belongs to the connection that delivered the message. When that is lost the
broker delivers again what was held on it. A message that is still held here then goes on under
its new delivery tag, and is not run beside itself; one that ended meanwhile is acknowledged.
What goes to another worker is run there as well: the first result stands.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError
from blimp.queue.brokers.kombu_connection import KombuConnection

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Broker, Completion, ConsumerOptions

Settle = Callable[[Any], None]  # how a kombu message ends
Key = tuple[str, int]  # task id and try

REMEMBERED = 4096


class KombuDelivery:
    """One message taken; its kombu message changes where it was delivered again meanwhile."""

    def __init__(
        self, *, consumer: KombuConsumer, link: KombuConnection, message: Any, tag: str
    ) -> None:
        self.tag = tag
        self.queue: str = message.delivery_info["queue"]
        self.over_delivery_limit = ""
        self.key = key_of(message)
        self.message = message
        self.link = link
        self._consumer = consumer

    def ack(self) -> None:
        self._consumer.settle(self, acknowledge)

    def reject(self, reason: str) -> None:  # noqa: ARG002  # AMQP has no room for it; it is logged
        self._consumer.settle(self, reject)

    def requeue(self, *, seen: bool = True) -> None:  # noqa: ARG002
        self._consumer.settle(self, requeue)


class KombuConsumer:
    def __init__(
        self,
        options: ConsumerOptions,
        *,
        broker: Broker,
        turn_priority: Callable[[int], int] = int,
        declare_queue: Callable[[Any, str], bool] | None = None,
    ) -> None:
        self._options = options
        self._broker = broker
        self._turn_priority = turn_priority
        self._declare_queue = declare_queue
        self._lock = threading.RLock()
        self._link: KombuConnection | None = None
        self._arrived: deque[Any] = deque()
        self._held: dict[str, KombuDelivery] = {}  # by our tag
        self._ended: OrderedDict[Key, Settle] = OrderedDict()
        self._numbers = 0
        self._is_woken = False

    # --- the consuming thread's ---------------------------------------------------------------

    def connect(self, *, held: Collection[str]) -> tuple[int, int]:
        """Connect and consume. What was held before comes again from the broker by itself."""
        with self._lock:
            self._drop_link()
            self._held = {tag: self._held[tag] for tag in held if tag in self._held}
            self._link = KombuConnection(
                options=self._options,
                broker=self._broker,
                declare_queue=self._declare_queue,
                lock=self._lock,
                limit=self._limit(),
                on_message=self._arrive,
            )
        return 0, 0

    def consume(self, queues: Sequence[str]) -> None:
        with self._lock:
            before, self._options.queues = self._options.queues, tuple(queues)
            self._linked().change([one for one in before if one not in queues])

    def drain(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not self._arrived:
            link = self._linked()
            link.limit(self._limit())
            if link.read():
                continue
            left_s = deadline_s - time.monotonic()
            if left_s <= 0.0 or self._is_woken:
                self._is_woken = False
                raise TimeoutError
            link.wait(left_s)
        self._options.on_message(self._arrived.popleft())

    def delivery(self, message: Any) -> KombuDelivery:
        with self._lock:
            self._numbers += 1
            delivery = KombuDelivery(
                consumer=self, link=self._linked(), message=message, tag=str(self._numbers)
            )
            self._held[delivery.tag] = delivery
            return delivery

    def disconnect(self) -> None:
        """End the connection; where the worker stops, keep it for what still runs."""
        with self._lock:
            link = self._link
            if link is not None and link.error is None and self._options.is_stopping():
                try:
                    link.stop()
                    while self._arrived:
                        link.call(self._arrived.popleft().requeue)
                    return
                except LinkError:
                    pass  # it is all the broker's again
            self._drop_link()

    # --- any thread's ---------------------------------------------------------------------------

    def settle(self, delivery: KombuDelivery, end: Settle) -> None:
        """End a message. Never raises: what cannot be told now is when it comes again."""
        with self._lock:
            self._held.pop(delivery.tag, None)
            if delivery.key is not None and end is not requeue:
                self._ended[delivery.key] = end
                while len(self._ended) > REMEMBERED:
                    self._ended.popitem(last=False)
            try:
                delivery.link.call(lambda: end(delivery.message))
            except LinkError:
                return

    def complete(self, completions: Sequence[Completion]) -> list[str]:
        raise NotImplementedError("kombu writes the result first, and acknowledges then")

    def wake(self) -> None:
        self._is_woken = True
        link = self._link
        if link is not None:
            link.wake()

    def probe(self) -> None:
        link = self._linked()
        link.probe()
        if self._arrived:
            link.wake()

    def close(self) -> None:
        with self._lock:
            self._drop_link()

    # --- inside -----------------------------------------------------------------------------------

    def _arrive(self, link: KombuConnection, message: Any) -> None:
        """Take in one delivery, in whichever thread reads: `drain` hands it on."""
        if message.delivery_info.get("redelivered") or message.headers.get("redelivered"):
            key = key_of(message)
            end = None if key is None else self._ended.get(key)
            if end is not None:
                link.call(lambda: end(message))
                return
            for held in self._held.values():
                if held.key == key is not None and held.link is not link:
                    held.link, held.message = link, message
                    return
            message.headers["redelivered"] = True
        priority = message.properties.get("priority")
        if isinstance(priority, int):
            message.properties["priority"] = self._turn_priority(priority)
        self._arrived.append(message)

    def _limit(self) -> int:
        """Return how many may be unacknowledged: grows with what waits for its time.

        In steps of the prefetch: each is a round trip, and a burst of such tasks is usual.
        """
        wanted = self._options.limit()
        step = max(1, wanted - self._options.waiting())
        return -(-wanted // step) * step

    def _linked(self) -> KombuConnection:
        link = self._link
        if link is None:
            raise LinkError("not connected")
        return link

    def _drop_link(self) -> None:
        self._arrived.clear()
        if self._link is not None:
            self._link.close()
            self._link = None


def key_of(message: Any) -> Key | None:
    """Return what two deliveries of one message have in common, None where it is not told."""
    id, retries = message.headers.get("id"), message.headers.get("retries", 0)
    return (id, retries) if isinstance(id, str) and isinstance(retries, int) else None


def acknowledge(message: Any) -> None:
    message.ack()


def reject(message: Any) -> None:
    message.reject(requeue=False)


def requeue(message: Any) -> None:
    message.headers["redelivered"] = True  # RabbitMQ says so itself; kombu's own do not
    message.requeue()
