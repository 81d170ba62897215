"""Acknowledgements to a broker that was left: deferred until it answers again.

With several brokers, a task may end when its own is unreachable and another is in use. The worker
does not wait: a thread repeats the acknowledgement until that broker answers. Until then the
message stays there unacknowledged, and if the worker dies meanwhile it runs again.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from blimp.errors import LinkError
from blimp.queue.brokers.base import BrokerLeft
from blimp.queue.redis.urls import hide_password, link_errors
from blimp.queue.retry import ReconnectDelay, RetryPolicy

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.visibility import StreamsSession
    from blimp.queue.redis.urls import Brokers

T = TypeVar("T")

logger = logging.getLogger(__name__)

REPEATING = RetryPolicy(max_retries=None, interval_start=0.2, interval_step=0.4, interval_max=5.0)


class DeferredAcks:
    """The session at one broker of several, and what must still be sent to it. Thread-safe.

    Close is idempotent.
    """

    def __init__(self, *, url: str, session: StreamsSession, brokers: Brokers) -> None:
        self.url = url
        self.session = session
        self._brokers = brokers
        self._deferred: dict[int, tuple[Collection[str], Callable[[], object]]] = {}
        self._numbers = itertools.count()  # they are done in order: none replaces another
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def do(self, tags: Collection[str], step: Callable[[], T], *, otherwise: T) -> T:
        """Do `step`, which ends the deliveries `tags`; later if another broker is in use.

        Returns `otherwise` then. Raises LinkError if there is no other broker.
        """
        try:
            return self.do_now(step)
        except BrokerLeft:
            pass
        with self._lock:
            self._deferred[next(self._numbers)] = (tags, step)
            if self._thread is None:
                self._thread = threading.Thread(target=self._repeat, name="deferred", daemon=True)
                self._thread.start()
        return otherwise

    def do_now(self, step: Callable[[], T]) -> T:
        """Do `step` now or not at all: raises BrokerLeft if another broker is in use."""
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
        """Return the deliveries whose ends are deferred: they must not be put back."""
        with self._lock:
            return {tag for tags, _ in self._deferred.values() for tag in tags}

    def _repeat(self) -> None:
        delay = ReconnectDelay(chance=random.Random(), policy=REPEATING)
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
            except Exception:  # its message comes again; the other steps are done all the same
                logger.exception("deferred acknowledgement to %s", hide_password(self.url))
            delay.reset()
            with self._lock:
                self._deferred.pop(number)

    def close(self) -> None:
        self._closed.set()
        self.session.close()
