"""A consumer on any of kombu's own transports, such as RabbitMQ's.

An acknowledgement belongs to the connection that delivered the message. When that is lost, the
broker delivers again what was held on it. A message that still runs here goes on under its new
delivery tag; one that ended meanwhile is acknowledged. What goes to another worker runs there as
well: the first result stands.
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
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError
from blimp.queue.redis.urls import link_error

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Broker, Completion, ConsumerOptions

POLL_S = 0.05  # between looks at a transport without a socket
READ_S = 0.05  # for the rest of what has begun to arrive
MOST = 65_535  # AMQP has 16 bits for a limit


class KombuConnection:
    """Connects and consumes when made. What was lost stays lost: make another.

    The wait for messages is outside the lock, so that an acknowledgement does not wait for the
    next message. Raises LinkError if the broker is unreachable. `close` is idempotent.
    """

    def __init__(
        self,
        *,
        options: ConsumerOptions,
        broker: Broker,
        declare_queue: Callable[[Any, str], bool] | None,
        lock: threading.RLock,
        limit: int,
        on_message: Callable[[KombuConnection, Any], None],
    ) -> None:
        self._options = options
        self._lock = lock
        self._declare_queue = declare_queue
        self._on_message = on_message
        self._limit = self._quota = 0
        self._is_amqp = broker.capabilities.is_shared
        self._is_shared = False
        self._consumers: dict[str, Any] = {}
        self._socket: Any = None
        self._bell, self._rope = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bell, selectors.EVENT_READ)
        self.error: Exception | None = None
        self._url = options.brokers.current
        self._connection: Any = broker.open_connection(
            self._url, timeout_s=options.timeout_s, beats=True
        )
        transport = self._connection.transport
        self._errors = (*transport.connection_errors, *transport.channel_errors, OSError)
        try:
            self._open(limit)
        except Exception:
            self.close()
            raise

    def _open(self, limit: int) -> None:
        with self._calling():
            # `connect` would wait for two seconds and try again.
            self._connection.ensure_connection(max_retries=0)
            if self._is_amqp:
                for name in self._options.queues:
                    self._declare(name)
                # AMQP's limit for all consumers of a channel is RabbitMQ's shared one, and
                # back to one per consumer in RabbitMQ 4: kombu knows.
                transport = self._connection.transport
                established = self._connection.connection
                self._is_shared = not transport.qos_semantics_matches_spec(established)
                self._socket = established.sock
                self._selector.register(self._socket, selectors.EVENT_READ)
            self._channel: Any = self._connection.channel()
            guard_channel(self._channel)
            self.limit(limit)

    def _declare(self, name: str) -> None:
        if self._declare_queue is not None and not self._declare_queue(self._connection, name):
            self._options.log.warning(
                "queue declared otherwise",
                queue=name,
                missing="priorities and dead letters may be",
            )

    def limit(self, messages: int) -> None:
        """Have at most so many unacknowledged. The first time, begin to consume."""
        if messages == self._limit:
            return
        with self._calling():
            self._limit = self._quota = messages
            alone = self._is_amqp and not self._is_shared
            if alone:
                # The limit is a new consumer's own; the earlier consumers hold what waits.
                self._quota -= self._options.waiting()
            if self._is_amqp and self._quota > MOST:
                self._quota = 0  # no limit: a limit here would starve messages that need not wait
            self._channel.basic_qos(0, self._quota, self._is_shared)
            if alone or not self._consumers:
                before, self._consumers = self._consumers, {}
                self._consume()
                for consumer in before.values():
                    consumer.cancel()

    def change(self, without: Collection[str]) -> None:
        """Consume from the queues that the options name now, `without` those no more."""
        with self._calling():
            for name in without:
                self._consumers.pop(name).cancel()
            if self._is_amqp:
                for name in self._options.queues:
                    if name not in self._consumers:
                        self._declare(name)
            self._consume()

    def _consume(self) -> None:
        from kombu import Consumer, Queue

        for name in self._options.queues:
            if name in self._consumers:
                continue
            consumer = Consumer(
                self._channel,
                queues=[Queue(name, no_declare=self._is_amqp)],
                on_message=partial(self._deliver, name),
                auto_declare=not self._is_amqp,
            )
            self._consumers[name] = consumer
            consumer.consume()

    def _deliver(self, queue: str, message: Any) -> None:
        message.delivery_info["queue"] = queue  # where it came from; its routing key may differ
        self._on_message(self, message)

    def read(self) -> bool:
        """Read one thing that has arrived; False if nothing has."""
        with self._calling():
            if not self._has_arrived():
                return False
            try:
                self._connection.drain_events(timeout=READ_S if self._is_amqp else 0)
            except TimeoutError:
                return False
            return True

    def wait(self, timeout_s: float) -> None:
        """Return when something may have arrived, on `wake`, or after `timeout_s`."""
        if self._socket is None:
            timeout_s = min(timeout_s, POLL_S)
        self._selector.select(max(0.0, timeout_s))
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 64)

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # full, or closed: it is awake
            os.write(self._rope, b"!")

    def call(self, function: Callable[[], object]) -> None:
        """Call `function`, which uses the connection."""
        with self._calling():
            function()

    def probe(self) -> None:
        """Ask the broker, and wait for its answer; messages may come before it.

        Heartbeats are only for the broker: it takes this for one.
        """
        if self._is_amqp:
            with self._calling():
                self._channel.basic_qos(0, self._quota, self._is_shared)

    def stop(self) -> None:
        """Consume no more; what was taken can still be settled."""
        with self._calling():
            for consumer in self._consumers.values():
                consumer.cancel()

    def close(self) -> None:
        with self._lock:
            self.error = self.error or LinkError("closed")
            if self._bell < 0:
                return
            with contextlib.suppress(Exception):  # the link is lost, or the broker is
                self._connection.release()
            self._selector.close()
            os.close(self._bell)
            os.close(self._rope)
            self._bell = self._rope = -1

    def _has_arrived(self) -> bool:
        if self._socket is None:
            return True  # only a read can find out
        if getattr(self._socket, "pending", lambda: 0)():
            return True
        return any(key.fd != self._bell for key, _ in self._selector.select(0))

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """Hold the connection; an error of the link ends it."""
        with self._lock:
            if self.error is not None:
                raise LinkError(f"connection lost: {self.error}")
            try:
                yield
            except self._errors as error:
                self.error = error
                self.wake()
                raise link_error(self._url, error) from None


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


Settle = Callable[[Any], None]  # how a kombu message ends
Key = tuple[str, int]  # task id and try

REMEMBERED = 4096


class KombuDelivery:
    """One message; its kombu message changes if the broker delivers it again meanwhile."""

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
        """End the connection; if the worker stops, keep it for what still runs."""
        with self._lock:
            link = self._link
            if link is not None and link.error is None and self._options.is_stopping():
                try:
                    link.stop()
                    while self._arrived:
                        link.call(self._arrived.popleft().requeue)
                    return
                except LinkError:
                    pass  # the broker has all of it again
            self._drop_link()

    # --- any thread's ---------------------------------------------------------------------------

    def settle(self, delivery: KombuDelivery, end: Settle) -> None:
        """End a message. Never raises: without a connection, it ends when it is delivered again."""
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
        """Add one delivery, in the thread that reads: `drain` returns it."""
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
    """Return what two deliveries of one message have in common, None if it is not known."""
    id, retries = message.headers.get("id"), message.headers.get("retries", 0)
    return (id, retries) if isinstance(id, str) and isinstance(retries, int) else None


def acknowledge(message: Any) -> None:
    message.ack()


def reject(message: Any) -> None:
    message.reject(requeue=False)


def requeue(message: Any) -> None:
    message.headers["redelivered"] = True  # RabbitMQ says so itself; kombu's own do not
    message.requeue()
