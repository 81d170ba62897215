"""Waiting for several tasks at once, whatever keeps their results.

Waiting for results: one subscription, whether for one task or for thousands.

What is published is heard at once. A server does not keep what it publishes: so what is stored
is looked at when one begins to wait, after a new connection, and every LOOK_AGAIN_S, should a
publication be lost (a failing server, a result that something else than a worker has written).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from blimp.closing import Closing
from blimp.errors import LinkError, ResultError
from blimp.queue.protocol.record import Record, decode

if TYPE_CHECKING:
    from redis import Redis

    from blimp.clock import Clock
    from blimp.queue.protocol.record import Record
    from blimp.queue.redis.server import RedisServer
    from blimp.queue.results.base import ResultBackend, ResultWatch


def watch_all(results: ResultBackend, ids: Sequence[str]) -> ResultWatch:
    """Return what tells of all `ids` as they come; by one subscription where there are such."""
    from blimp.queue.results.redis_backend import RedisResults

    if isinstance(results, RedisResults):
        return results.watch_many(ids)
    return OneByOne(results=results, ids=ids)


class OneByOne(Closing):
    """Tells of each task when those before it have ended: no more than one is watched at once."""

    def __init__(self, *, results: ResultBackend, ids: Sequence[str]) -> None:
        self._results = results
        self._left = list(reversed(ids))
        self._watch: ResultWatch | None = None

    def next(self, *, timeout_s: float) -> Record | None:
        if not self._left:
            return None
        if self._watch is None:
            self._watch = self._results.watch(self._left[-1])
        record = self._watch.next(timeout_s=timeout_s)
        if record is not None and record.final:
            self._left.pop()
            self.close()
        return record

    def close(self) -> None:
        """Idempotent."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None


LOOK_AGAIN_S = 5.0
AT_ONCE = 1000  # keys in one command


class Watch(Closing):
    """The records of tasks as they are published. A context manager; one thread's.

    read: gives what is stored, where that is not on the server; look_s: seconds between two.
    """

    def __init__(
        self,
        *,
        server: RedisServer,
        ids: Sequence[str],
        clock: Clock,
        read: Callable[[str], bytes | None] | None = None,
        look_s: float | None = None,
    ) -> None:
        from blimp.queue.redis.keys import result_key

        self._server = server
        self._ids = list(ids)
        self._read = read
        self._look_s = LOOK_AGAIN_S if look_s is None else look_s
        self._keys = {result_key(id): b"" for id in ids}  # the newest that was returned of each
        self._clock = clock
        self._url = ""
        self._pubsub: Any = None
        self._asked_s: float | None = None
        self._stored: deque[tuple[str, bytes]] = deque()
        self._closed = False
        self._subscribe()

    def next(self, *, timeout_s: float) -> Record | None:
        """Return the next record, None when none comes within `timeout_s` seconds.

        The first call looks at what is stored already; what is stored and was returned
        before is not news. Raises LinkError where the broker is lost; may be called again.
        """
        deadline_s = self._clock.now_s() + timeout_s
        while not self._closed:
            if self._url != self._server.brokers.current:
                self._subscribe()
            now_s = self._clock.now_s()
            if self._asked_s is None or now_s - self._asked_s >= self._look_s:
                self._look()
                self._asked_s = now_s
            while self._stored:
                key, data = self._stored.popleft()
                if data != self._keys[key]:
                    return self._take(key, data)
            left_s = min(deadline_s, self._asked_s + self._look_s) - now_s
            heard = self._hear(max(0.0, left_s))
            if heard is not None and heard["type"] == "message":
                with contextlib.suppress(ResultError):
                    return self._take(heard["channel"].decode(), heard["data"])
            elif self._clock.now_s() >= deadline_s:
                break
        return None

    def _hear(self, timeout_s: float) -> Any:
        try:
            with self._server.link(self._url):
                return self._pubsub.get_message(timeout=timeout_s)
        except (TypeError, ValueError, AttributeError) as error:  # of a socket that is gone
            raise LinkError(f"closed while results were waited for: {error}") from None

    def _look(self) -> None:
        keys = list(self._keys)
        for start in range(0, len(keys), AT_ONCE):
            part = keys[start : start + AT_ONCE]
            found = (
                self._server.ask(partial(_read, part))
                if self._read is None
                else [self._read(id) for id in self._ids[start : start + AT_ONCE]]
            )
            for key, data in zip(part, found, strict=True):
                if data is not None and data != self._keys[key]:
                    self._stored.append((key, data))

    def _subscribe(self) -> None:
        if self._pubsub is not None:
            self._pubsub.close()
        self._url = self._server.brokers.current
        self._asked_s = None  # what is stored there is news
        with self._server.link(self._url):
            client = self._server.client_of(self._url)
            self._pubsub = client.pubsub(ignore_subscribe_messages=True)
            keys = list(self._keys)
            for start in range(0, len(keys), AT_ONCE):
                self._pubsub.subscribe(*keys[start : start + AT_ONCE])

    def _take(self, key: str, data: bytes) -> Record:
        self._keys[key] = data
        return decode(data)

    def close(self) -> None:
        """Give up the subscription. Idempotent."""
        if not self._closed:
            self._closed = True
            self._pubsub.close()


def _read(keys: Sequence[str], client: Redis) -> Any:
    # MGET says nothing of a key of a wrong type.
    from blimp.queue.results.redis_backend import named

    return [named(lambda: client.get(keys[0]))] if len(keys) == 1 else client.mget(keys)
