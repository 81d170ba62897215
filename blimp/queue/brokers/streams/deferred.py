"""What is held at one broker of several, and what it could not be told yet.

A task may end when its broker is away and another in use. Its worker must not wait: the end
is owed, and told by a thread of its own when the broker answers again. Until then the message
stays there unacknowledged, and a worker that dies meanwhile leaves it to be run again.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from blimp.errors import LinkError
from blimp.queue.redis.urls import hide_password, link_errors
from blimp.queue.retry import ReconnectDelay, RetryPolicy

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.visibility import StreamsSession
    from blimp.queue.redis.failover import Brokers

T = TypeVar("T")

logger = logging.getLogger(__name__)

PAYING = RetryPolicy(max_retries=None, interval_start=0.2, interval_step=0.4, interval_max=5.0)


class BrokerLeft(LinkError):
    """The broker that has this delivery is away, and another is in use."""


class Held:
    """The holder at one broker. Thread-safe; close is idempotent."""

    def __init__(self, *, url: str, session: StreamsSession, brokers: Brokers) -> None:
        self.url = url
        self.session = session
        self._brokers = brokers
        self._deferred: dict[int, tuple[Collection[str], Callable[[], object]]] = {}
        self._numbers = itertools.count()  # told in this order: no end replaces another
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def tell(self, tags: Collection[str], step: Callable[[], T], *, otherwise: T) -> T:
        """Do `step`, which ends the deliveries `tags`; where another broker is in use, later.

        Returns `otherwise` then. Raises LinkError where there is no other.
        """
        try:
            return self.tell_now(step)
        except BrokerLeft:
            pass
        with self._lock:
            self._deferred[next(self._numbers)] = (tags, step)
            if self._thread is None:
                self._thread = threading.Thread(target=self._pay, name="owed", daemon=True)
                self._thread.start()
        return otherwise

    def tell_now(self, step: Callable[[], T]) -> T:
        """Do `step` now or not at all: raises BrokerLeft where another broker is in use."""
        try:
            with link_errors(self.url, self._brokers.failed):
                return step()
        except LinkError as error:
            if self.url == self._brokers.current:
                raise
            raise BrokerLeft(str(error)) from None

    def probe(self) -> None:
        """Ask whether the broker is there. Raises LinkError."""
        with link_errors(self.url, self._brokers.failed):
            self.session.link.client.ping()

    def tags(self) -> set[str]:
        """Return the deliveries whose ends are owed: they are not to be put back."""
        with self._lock:
            return {tag for tags, _ in self._deferred.values() for tag in tags}

    def _pay(self) -> None:
        delay = ReconnectDelay(chance=random.Random(), policy=PAYING)
        while not self._closed.wait(delay.next_s()):
            with self._lock:
                if not self._deferred:
                    self._thread = None
                    return
                number, (_, step) = next(iter(self._deferred.items()))
            try:
                with link_errors(self.url):
                    step()
            except LinkError:
                continue
            except Exception:  # its message comes again; what else is owed is told all the same
                logger.exception("what is owed to %s", hide_password(self.url))
            delay.reset()
            with self._lock:
                self._deferred.pop(number)

    def close(self) -> None:
        self._closed.set()
        self.session.close()
