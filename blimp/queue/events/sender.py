"""Getting one message of events to Celery's exchange for them, `celeryev`.

Celery declares it as fanout on Redis and as topic elsewhere, and so must who sends to it. On
streams it is one stream that all listeners read, so a listener that is gone leaves nothing that
grows; one that lags is given what is not older than KEEP_MS nor one of more than KEEP messages.

One thread that sends what is in the buffer, in order, many events in one message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from blimp.errors import LinkError

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.events.buffer import Event, EventBuffer
    from blimp.queue.protocol.lamport_clock import LamportClock
    from blimp.queue.retry import Outage

EXCHANGE = "celeryev"
MOST_BYTES = 64_000  # of one message


class Post(Protocol):
    def send(self, body: bytes, *, routing_key: str) -> None:
        """Send one message, once. Raises LinkError where the broker does not take it."""
        ...


def open_post(app: TaskApp, *, hostname: str) -> Post:
    """Return the way to listeners that the app's transport has. Connects on first use."""
    return KombuPost(app, {"hostname": hostname})


class KombuPost:
    def __init__(self, app: TaskApp, headers: dict[str, Any]) -> None:
        self._app = app
        self._headers = headers
        self._exchange: Any = None

    def send(self, body: bytes, *, routing_key: str) -> None:
        from kombu import Exchange

        if self._exchange is None:
            # The exchange's type is what Celery would choose.
            kind = "fanout" if self._app.capabilities.on_redis else "topic"
            self._exchange = Exchange(EXCHANGE, type=kind)
        self._app.publisher.tell(
            body, exchange=self._exchange, routing_key=routing_key, headers=self._headers
        )


GATHER_S = 0.02  # from the first event: what comes meanwhile goes in the same message
TRIES = 3  # of a message that is refused by a broker that is there


class EventSender:
    """Sends until closed. A broker that is away is waited for.

    on_sent: called after each message. is_flowing: False while the broker takes none.
    Sent again after a lost answer, a message may come twice; it is never passed by a later one.
    """

    def __init__(
        self,
        *,
        buffer: EventBuffer,
        post: Post,
        clock: LamportClock,
        outage: Outage,
        on_sent: Callable[[], None],
        log: Any,
    ) -> None:
        self._buffer = buffer
        self._post = post
        self._clock = clock
        self._outage = outage
        self._on_sent = on_sent
        self._log = log
        self._is_taken = True
        self._closing = threading.Event()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="events", daemon=True)

    @property
    def is_flowing(self) -> bool:
        return self._is_taken and self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def close(self, *, within_s: float) -> None:
        """Send what is there, for so long; what is left then counts as dropped."""
        self._buffer.close()
        self._closing.set()
        self._thread.join(timeout=within_s)
        self._given_up.set()
        self._buffer.drop()

    def _serve(self) -> None:
        while self._buffer.wait():
            if self._buffer.is_batch():
                self._closing.wait(GATHER_S)
            while batch := self._buffer.take(most_bytes=MOST_BYTES):
                if not self._send(batch):
                    self._buffer.drop(len(batch))

    def _send(self, batch: Sequence[Event]) -> bool:
        """Send one message; False where it is given up."""
        first = self._clock.forward(len(batch)) - len(batch) + 1
        body = write(batch, first=first)
        key = routing_key(batch)
        refused = 0
        while True:
            try:
                self._post.send(body, routing_key=key)
            except LinkError as error:
                wait_s = self._failed(error)
            except Exception as error:  # no error of the link: it may be the message's own
                refused += 1
                wait_s = self._failed(error)
                if refused == TRIES:
                    self._log.exception("events refused", events=len(batch))
                    return False
            else:
                self._outage.over()
                self._is_taken = True
                self._on_sent()
                return True
            if self._given_up.wait(wait_s):
                return False

    def _failed(self, error: Exception) -> float:
        self._is_taken = False
        self._on_sent()  # whoever is held back need not wait for this
        return self._outage.failed(error, waiting_bytes=self._buffer.size_bytes)


def write(batch: Sequence[Event], *, first: int) -> bytes:
    """Return one message: an event as an object, several as a list, as Celery's buffer has it.

    first: the logical clock of the first event.
    """
    objects = [b'{"clock":%d,' % (first + n) + event.data[1:] for n, event in enumerate(batch)]
    return objects[0] if len(objects) == 1 else b"[" + b",".join(objects) + b"]"


def routing_key(batch: Sequence[Event]) -> str:
    return batch[0].type.replace("-", ".") if len(batch) == 1 else f"{batch[0].group}.multi"
