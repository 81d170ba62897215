"""A consumer on any of kombu's own transports, such as RabbitMQ's.

An acknowledgement belongs to the connection that delivered the message. When that is lost, the
broker delivers again what was held on it. A message that still runs here goes on under its new
delivery tag; one that ended meanwhile is acknowledged. What goes to another worker runs there as
well: the first result stands. Tested by rabbitmq/test_delivery.py.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from kombu import Consumer, Queue

from blimp.errors import LinkError
from blimp.queue.redis.urls import link_error

if TYPE_CHECKING:
    from blimp.queue.brokers.base import ConsumerOptions

POLL_S = 0.05  # between looks at a transport without a socket
READ_S = 0.05  # for the rest of what has begun to arrive
MOST = 65_535  # AMQP has 16 bits for a limit
REMEMBERED = 4096

Settle = Callable[[Any], None]  # how a kombu message ends
Key = tuple[str, int]  # task id and try

acknowledge: Settle = methodcaller("ack")
reject: Settle = methodcaller("reject", requeue=False)


def requeue(message: Any) -> None:
    message.headers["redelivered"] = True  # RabbitMQ says so itself; kombu's own do not
    message.requeue()


class KombuDelivery:
    """One message; its kombu message changes if the broker delivers it again meanwhile."""

    over_delivery_limit = ""

    def __init__(self, *, consumer: KombuConsumer, message: Any, tag: str) -> None:
        self.tag = tag
        self.queue: str = message.delivery_info["queue"]
        self.key = key_of(message)
        self.message = message
        self._consumer = consumer

    def ack(self) -> None:
        self._consumer.settle(self, acknowledge)

    def free(self, claim: object, id: str) -> None: ...  # unique tasks are refused here

    def step(self, *_: object) -> None: ...  # so are steps

    def reject(self, reason: str) -> None:  # noqa: ARG002  # AMQP has no room for it; it is logged
        self._consumer.settle(self, reject)

    def requeue(self, *, seen: bool = True, aside: Any = None) -> None:  # noqa: ARG002
        self._consumer.settle(self, requeue)


class KombuConsumer:
    """The wait for messages is outside the lock: an acknowledgement does not wait for the next.

    broker: a KombuBroker. turn_priority, declare_queue: see KombuBroker.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        *,
        broker: Any,
        turn_priority: Callable[[int], int],
        declare_queue: Callable[[Any, str], bool],
    ) -> None:
        self._options = options
        self._broker = broker
        self._turn_priority = turn_priority
        self._declare_queue = declare_queue
        self._is_amqp = broker.capabilities.is_shared
        self._lock = threading.RLock()
        self._connection: Any = None
        self._channel: Any = None
        self._error: Exception | None = LinkError("not connected")  # until the next `connect`
        self._errors: tuple[type[Exception], ...] = ()
        self._url = ""
        self._socket: Any = None
        self._consumers: dict[str, Consumer] = {}
        self._limit = self._quota = 0
        self._arrived: deque[Any] = deque()
        self._held: dict[str, KombuDelivery] = {}  # by our tag
        self._ended: OrderedDict[Key, Settle] = OrderedDict()
        self._numbers = 0
        self._is_woken = False
        self._bell, self._rope = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bell, selectors.EVENT_READ)

    # --- the consuming thread's ---------------------------------------------------------------

    def connect(self, *, held: Collection[str]) -> tuple[int, int]:
        """Connect and consume. What was held before comes again from the broker by itself."""
        with self._lock:
            self._drop()
            self._held = {tag: self._held[tag] for tag in held if tag in self._held}
            self._url = self._options.brokers.current
            self._connection = self._broker.open_connection(
                self._url, timeout_s=self._options.broker.timeout_s, beats=True
            )
            transport = self._connection.transport
            self._errors = (*transport.connection_errors, *transport.channel_errors, OSError)
            self._error = None
            try:
                with self._calling():
                    self._open()
            except Exception:
                self._drop()
                raise
        return 0, 0

    def consume(self, queues: Sequence[str]) -> None:
        self._options.queues = tuple(queues)
        with self._calling():
            for name in self._consumers.keys() - set(queues):
                self._consumers.pop(name).cancel()
            self._declare()
            self._consume()

    def drain(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not self._arrived:
            with self._calling():
                self._set_limit()
                if self._read():
                    continue
            left_s = deadline_s - time.monotonic()
            if left_s <= 0.0 or self._is_woken:
                self._is_woken = False
                raise TimeoutError
            self._selector.select(left_s if self._socket is not None else min(left_s, POLL_S))
            with contextlib.suppress(BlockingIOError):
                os.read(self._bell, 64)
        self._options.on_message(self._arrived.popleft())

    def delivery(self, message: Any) -> KombuDelivery:
        with self._lock:
            self._numbers += 1
            delivery = KombuDelivery(consumer=self, message=message, tag=str(self._numbers))
            self._held[delivery.tag] = delivery
            return delivery

    def disconnect(self) -> None:
        """End the connection; if the worker stops, keep it for what still runs."""
        with self._lock:
            if self._options.is_stopping():
                with contextlib.suppress(LinkError), self._calling():
                    for consumer in self._consumers.values():
                        consumer.cancel()
                    while self._arrived:
                        self._arrived.popleft().requeue()
                    return
            self._drop()  # the broker has all of it again

    # --- any thread's ---------------------------------------------------------------------------

    def settle(self, delivery: KombuDelivery, end: Settle) -> None:
        """End a message. Never raises: without a connection, it ends when it is delivered again."""
        with self._lock:
            self._held.pop(delivery.tag, None)
            if delivery.key is not None and end is not requeue:
                self._ended[delivery.key] = end
                while len(self._ended) > REMEMBERED:
                    self._ended.popitem(last=False)
            with contextlib.suppress(LinkError), self._calling():
                if delivery.message.channel is self._channel:
                    end(delivery.message)

    def wake(self) -> None:
        self._is_woken = True
        self._ring()

    def probe(self) -> None:
        """Ask the broker, and wait for its answer; messages may come before it.

        Heartbeats are only for the broker: it takes this for one.
        """
        with self._calling():
            if self._is_amqp:
                self._channel.basic_qos(0, self._quota, False)
            if self._arrived:
                self._ring()

    def is_shared(self, queue: str) -> bool:  # noqa: ARG002
        return True  # kombu cannot tell

    def close(self) -> None:
        with self._lock:
            self._drop()
            if self._bell >= 0:
                self._selector.close()
                os.close(self._bell)
                os.close(self._rope)
                self._bell = self._rope = -1

    # --- inside: with the connection held -----------------------------------------------------

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """Hold the connection; an error of the link ends it. Raises LinkError."""
        with self._lock:
            if self._error is not None:
                raise LinkError(f"connection lost: {self._error}")
            try:
                yield
            except self._errors as error:
                self._error = error
                self._ring()
                raise link_error(self._url, error) from None

    def _open(self) -> None:
        # `connect` would wait for two seconds and try again.
        self._connection.ensure_connection(max_retries=0)
        self._declare()
        if self._is_amqp:
            self._socket = self._connection.connection.sock
            self._selector.register(self._socket, selectors.EVENT_READ)
        self._channel = self._connection.channel()
        guard_channel(self._channel)
        self._set_limit()

    def _declare(self) -> None:
        for name in self._options.queues:
            if name not in self._consumers and not self._declare_queue(self._connection, name):
                self._options.log.warning(
                    "queue declared otherwise",
                    queue=name,
                    missing="priorities and dead letters may be",
                )

    def _set_limit(self) -> None:
        """Limit what may be unacknowledged. The first time, begin to consume.

        The limit grows with what waits for its time, in steps of the prefetch: each is a round
        trip, and a burst of such tasks is usual. One for all consumers of a channel would be less
        work, but RabbitMQ 4.3 ignores it unless it is configured to permit it.
        """
        wanted, waiting = self._options.limit(), self._options.waiting()
        step = max(1, wanted - waiting)
        limit = -(-wanted // step) * step
        if limit == self._limit:
            return
        self._limit = self._quota = limit
        if self._is_amqp:
            # The limit is a new consumer's own; the earlier consumers hold what waits.
            self._quota -= waiting
            if self._quota > MOST:
                self._quota = 0  # no limit: a limit here would starve messages that need not wait
        self._channel.basic_qos(0, self._quota, False)
        if self._is_amqp or not self._consumers:
            before, self._consumers = self._consumers, {}
            self._consume()
            for consumer in before.values():
                consumer.cancel()

    def _consume(self) -> None:
        for name in self._options.queues:
            if name not in self._consumers:
                self._consumers[name] = consumer = Consumer(
                    self._channel,
                    queues=[Queue(name, no_declare=self._is_amqp)],
                    on_message=partial(self._arrive, name),
                    auto_declare=not self._is_amqp,
                )
                consumer.consume()

    def _read(self) -> bool:
        """Read one thing that has arrived; False if nothing has."""
        has_buffered = getattr(self._socket, "pending", lambda: 0)  # of TLS
        if self._socket is not None and not has_buffered():
            ready = self._selector.select(0)
            if all(key.fd == self._bell for key, _ in ready):
                return False
        try:
            self._connection.drain_events(timeout=READ_S if self._is_amqp else 0)
        except TimeoutError:
            return False
        return True

    def _arrive(self, queue: str, message: Any) -> None:
        """Add one delivery, in the thread that reads: `drain` returns it."""
        message.delivery_info["queue"] = queue  # where it came from; its routing key may differ
        if message.delivery_info.get("redelivered") or message.headers.get("redelivered"):
            key = key_of(message)
            end = None if key is None else self._ended.get(key)
            if end is not None:
                end(message)
                return
            for held in self._held.values():
                if held.key == key is not None and held.message.channel is not message.channel:
                    held.message = message
                    return
            message.headers["redelivered"] = True
        priority = message.properties.get("priority")
        if isinstance(priority, int):
            message.properties["priority"] = self._turn_priority(priority)
        self._arrived.append(message)

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full, or closed: it is awake
            os.write(self._rope, b"!")

    def _drop(self) -> None:
        """End the connection. What was lost stays lost."""
        self._error = self._error or LinkError("closed")
        self._arrived.clear()
        self._consumers = {}
        self._limit = 0
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket = None
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):  # the link is lost, or the broker is
                connection.release()


def key_of(message: Any) -> Key | None:
    """Return what two deliveries of one message have in common, None if it is not known."""
    id, retries = message.headers.get("id"), message.headers.get("retries", 0)
    return (id, retries) if isinstance(id, str) and isinstance(retries, int) else None


def guard_channel(channel: Any) -> None:
    """Keep kombu from decompressing what `channel` delivers, from now on.

    A small body may be larger than this computer when it is decompressed. The compression stands
    as the content encoding then: a task's body is decompressed up to its limit, and a control
    message is refused.
    """
    kind = channel.Message

    def begin(self: Any, payload: Any, channel: Any = None, **options: Any) -> None:
        _keep_packed(payload)
        kind.__init__(self, payload, channel=channel, **options)

    channel.Message = type("Message", (kind,), {"__init__": begin})


def _keep_packed(payload: Any) -> None:
    """Change a message as its driver has it: a dict, or for AMQP an object."""
    if isinstance(payload, dict):
        headers, properties, name = payload.get("headers"), payload, "content-encoding"
    else:
        properties, name = payload.properties, "content_encoding"
        headers = properties.get("application_headers")
    if isinstance(headers, dict) and headers.get("compression"):
        properties[name] = str(headers.pop("compression"))
