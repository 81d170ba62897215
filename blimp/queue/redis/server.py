"""The Redis server of an app: a client of whichever of its brokers is in use."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from blimp.errors import LinkError
from blimp.queue.redis.failover import Brokers
from blimp.queue.redis.urls import link_errors, open_redis

if TYPE_CHECKING:
    from redis import Redis

T = TypeVar("T")


class RedisServer:
    """Clients of one server, or of several of which one is in use. Thread-safe.

    url: of the server, or the brokers: it is then the server in use.
    Connects on first use. Every call raises LinkError if no server answers within `timeout_s`.
    Close is idempotent.
    """

    def __init__(self, url: str | Brokers, *, timeout_s: float = 2.0) -> None:
        self.brokers = url if isinstance(url, Brokers) else Brokers(url)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._clients: dict[str, Redis] = {}

    @property
    def client(self) -> Redis:
        """A client of the server in use now."""
        return self.client_of(self.brokers.current)

    def client_of(self, url: str) -> Redis:
        with self._lock:
            client = self._clients.get(url)
            if client is None:
                client = self._clients[url] = open_redis(url, timeout_s=self._timeout_s)
            return client

    def ask(self, function: Callable[[Redis], T]) -> T:
        """Call `function` with a client; of several brokers, until one answers.

        It may be called more than once. Raises LinkError where none answers.
        """
        for left in reversed(range(len(self.brokers))):
            url = self.brokers.current
            try:
                with self.link(url):
                    return function(self.client_of(url))
            except LinkError:
                if not left or url == self.brokers.current:
                    raise
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def link(self, url: str | None = None) -> Iterator[None]:
        """Turn redis-py's errors into LinkError; have another broker in use if this is lost.

        url: of the broker that is asked, by default the one in use.
        """
        with link_errors(url or self.brokers.current, self.brokers.failed):
            yield

    def close(self) -> None:
        with self._lock:
            while self._clients:
                self._clients.popitem()[1].close()
