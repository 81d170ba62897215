"""Events on their way to Celery's exchange for them, `celeryev`.

Threads put events into a buffer; one thread sends them in order, many in one message. Celery
declares the exchange as fanout on Redis and as topic elsewhere. On streams it is one stream that
all receivers read: a receiver that is gone leaves nothing that grows, and one that lags gets what
is at most a minute old.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kombu.clocks import LamportClock

from blimp.errors import LinkError
from blimp.queue.brokers.base import Exchange
from blimp.queue.celery.events import fields

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.retry import Outage

EXCHANGE = "celeryev"
BATCHED = "task"  # the group of which many events go as one message
HOLD_BYTES = 2_000_000  # of waiting events: the worker takes no more tasks then
LIMIT_BYTES = 8_000_000  # room for the events of tasks that are in flight by then
MAX_MESSAGE_BYTES = 64_000
GATHER_S = 0.02  # after the first event: what comes meanwhile goes in the same message
TRIES = 3  # of a message that a reachable broker refuses


class Event(NamedTuple):
    """type: such as "task-received". data: a JSON object without its `clock`."""

    type: str
    data: bytes

    @property
    def group(self) -> str:
        """The first word of its type and of its routing key: "task" or "worker"."""
        return self.type.partition("-")[0]


class EventBuffer:
    """Keeps events in order, up to `limit_bytes`; further ones are dropped, and counted."""

    def __init__(self, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._events: deque[Event] = deque()
        self._waits = False
        self._closed = False
        self.size_bytes = 0
        self.dropped = 0

    def put(self, event: Event) -> bool:
        """Keep `event`; False if it is dropped. Any thread; waits for nothing."""
        size = len(event[1])
        with self._lock:  # not the condition, which costs more: this is part of every task
            if self._closed or self.size_bytes + size > self._limit_bytes:
                self.dropped += 1
                return False
            self._events.append(event)
            self.size_bytes += size
            if self._waits:
                self._changed.notify()
            return True

    def wait(self) -> bool:
        """Wait for an event; False if it is closed and empty."""
        with self._changed:
            self._waits = True
            self._changed.wait_for(lambda: self._events or self._closed)
            self._waits = False  # until the next wait, `put` need not notify
            return bool(self._events)

    def take(self, *, most_bytes: int) -> list[Event]:
        """Return the oldest events that may go as one message, at least one if there is any.

        They are of one group; one about the worker goes alone, as Celery sends it.
        """
        batch: list[Event] = []
        size = 0
        with self._changed:
            while self._events:
                event = self._events[0]
                size += len(event.data)
                if batch and (size > most_bytes or event.group != batch[0].group):
                    break
                batch.append(self._events.popleft())
                self.size_bytes -= len(event.data)
                if event.group != BATCHED:
                    break
        return batch

    def drop(self, count: int = 0) -> int:
        """Count `count` taken events as dropped, and all that wait; return how many."""
        with self._changed:
            count += len(self._events)
            self._events.clear()
            self.size_bytes = 0
            self.dropped += count
            return count

    def close(self) -> None:
        """Keep no more. Kept events can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class EventExchange:
    """`celeryev` at the app's broker. Connects on first use."""

    def __init__(self, app: TaskApp, *, hostname: str) -> None:
        self._app = app
        self._headers = {"hostname": hostname}
        # Celery chooses the type like this.
        self._exchange = Exchange(EXCHANGE, "fanout" if app.capabilities.on_redis else "topic")

    def send(self, body: bytes, *, routing_key: str) -> None:
        """Send one message, once. Raises LinkError if the broker does not take it."""
        self._app.publisher.notify(
            body, exchange=self._exchange, routing_key=routing_key, headers=self._headers
        )


class EventSender:
    """Sends until closed, on a thread of its own. It waits for an unreachable broker.

    send: sends one message, as `EventExchange.send`. on_sent: called after each try.
    is_flowing: False while the broker takes no message.
    Sent again after a lost answer, a message may arrive twice; a later one never overtakes it.
    """

    def __init__(
        self,
        *,
        buffer: EventBuffer,
        send: Callable[..., None],
        clock: LamportClock,
        outage: Outage,
        on_sent: Callable[[], None],
        log: Any,
    ) -> None:
        self._buffer = buffer
        self._send = send
        self._clock = clock
        self._outage = outage
        self._on_sent = on_sent
        self._log = log
        self.is_flowing = True
        self._closing = threading.Event()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, *, within_s: float) -> None:
        """Send what waits, for so long; what is left then counts as dropped."""
        self._buffer.close()
        self._closing.set()
        self._thread.join(timeout=within_s)
        self._given_up.set()
        self._buffer.drop()

    def _serve(self) -> None:
        try:
            while self._buffer.wait():
                self._closing.wait(GATHER_S)
                while batch := self._buffer.take(most_bytes=MAX_MESSAGE_BYTES):
                    if not self._send_batch(batch):
                        self._buffer.drop(len(batch))
        finally:
            self.is_flowing = False

    def _send_batch(self, batch: Sequence[Event]) -> bool:
        """Send one message; False if it is dropped."""
        body, key = write(batch, clock=self._clock), routing_key(batch)
        refused = 0
        while True:
            try:
                self._send(body, routing_key=key)
            except Exception as error:
                # If it is not of the connection, it may be the message's fault.
                refused += not isinstance(error, LinkError)
                self.is_flowing = False
                self._on_sent()  # tasks are not held back by a broker that takes no events
                wait_s = self._outage.failed(error, waiting_bytes=self._buffer.size_bytes)
                if refused == TRIES:
                    self._log.exception("events refused", events=len(batch))
                    return False
            else:
                self._outage.over()
                self.is_flowing = True
                self._on_sent()
                return True
            if self._given_up.wait(wait_s):
                return False


def write(batch: Sequence[Event], *, clock: LamportClock) -> bytes:
    """Return one message: an event as an object, several as a list, as Celery's buffer has it.

    clock: the sender's logical one; each event moves it on.
    """
    objects = [b'{"clock":%d,' % clock.forward() + event.data[1:] for event in batch]
    return objects[0] if len(objects) == 1 else b"[" + b",".join(objects) + b"]"


def routing_key(batch: Sequence[Event]) -> str:
    return batch[0].type.replace("-", ".") if len(batch) == 1 else f"{batch[0].group}.multi"


class SentEvents:
    """`task-sent`: sent at once, in the thread that sent the task. Thread-safe.

    An event that cannot be sent is lost; its task was sent.
    """

    def __init__(self, app: TaskApp) -> None:
        self._app = app
        self._clock = LamportClock()

    def send(self, message: TaskMessage, *, at_s: float) -> None:
        """Announce that `message` was sent, at a time of day. Never raises LinkError."""
        pid = os.getpid()
        hostname = f"gen{pid}@{socket.gethostname()}"  # as Celery names a nameless sender
        program = fields.program(hostname=hostname, pid=pid)
        data = fields.to_bytes(fields.sent(message, at_s=at_s), program=program)
        batch = [Event("task-sent", data)]
        exchange = EventExchange(self._app, hostname=hostname)
        with contextlib.suppress(LinkError):
            exchange.send(write(batch, clock=self._clock), routing_key=routing_key(batch))
