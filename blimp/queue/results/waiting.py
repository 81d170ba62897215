"""Waiting for results: by a subscription, for one task or thousands, or by asking repeatedly."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from blimp.closing import Closing
from blimp.errors import LinkError, ResultError
from blimp.queue.protocol.record import Record, decode
from blimp.queue.redis.keys import result_key

if TYPE_CHECKING:
    from redis import Redis

    from blimp.clock import Clock
    from blimp.queue.redis.client import RedisServer
    from blimp.queue.results.backend import ResultWatch

T = TypeVar("T")

LOOK_AGAIN_S = 5.0
AT_ONCE = 1000  # keys in one command
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0  # of a poll

Read = Callable[[str], bytes | None]


class Watch(Closing):
    """The records of tasks as they are published on a Redis server. Used by one thread.

    A server does not keep what it publishes. So the stored records are read at the start, after
    a new connection, and every LOOK_AGAIN_S, should a publication be lost (the server failed, or
    the result was not written by a worker).

    read: returns what is stored, if that is not on the server; look_s: seconds between two reads.
    """

    def __init__(
        self,
        *,
        server: RedisServer,
        ids: Sequence[str],
        clock: Clock,
        read: Read | None = None,
        look_s: float | None = None,
    ) -> None:
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
        """Return the next record, None if none comes within `timeout_s` seconds.

        The first call also returns what is stored; no record is returned twice.
        Raises LinkError if the connection is lost; may be called again.
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
            received = self._receive(max(0.0, left_s))
            if received is not None and received["type"] == "message":
                with contextlib.suppress(ResultError):
                    return self._take(received["channel"].decode(), received["data"])
            elif self._clock.now_s() >= deadline_s:
                break
        return None

    def _receive(self, timeout_s: float) -> Any:
        try:
            with self._server.link(self._url):
                return self._pubsub.get_message(timeout=timeout_s)
        except (TypeError, ValueError, AttributeError) as error:  # of a socket that was closed
            raise LinkError(f"closed while waiting for results: {error}") from None

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
        self._asked_s = None  # what is stored on this server is not known yet
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


class PollingWatch(Closing):
    """The records of one task, read repeatedly: at once after a new one, then ever less often."""

    def __init__(self, *, read: Read, id: str, clock: Clock) -> None:
        self._read = read
        self._id = id
        self._clock = clock
        self._newest = b""
        self._pause_s = FIRST_PAUSE_S
        self._closed = False

    def next(self, *, timeout_s: float) -> Record | None:
        deadline_s = self._clock.now_s() + timeout_s
        while not self._closed:
            data = self._read(self._id)
            if data is not None and data != self._newest:
                self._newest = data
                self._pause_s = FIRST_PAUSE_S
                return decode(data)
            now_s = self._clock.now_s()
            if now_s >= deadline_s:
                break
            self._clock.sleep_until(min(deadline_s, now_s + self._pause_s))
            self._pause_s = min(LONGEST_PAUSE_S, 2.0 * self._pause_s)
        return None

    def close(self) -> None:
        self._closed = True


class OneByOne(Closing):
    """The records of several tasks, one task after the other: only one is watched at a time."""

    def __init__(self, *, watch: Callable[[str], ResultWatch], ids: Sequence[str]) -> None:
        self._open = watch
        self._left = list(reversed(ids))
        self._watch: ResultWatch | None = None

    def next(self, *, timeout_s: float) -> Record | None:
        if not self._left:
            return None
        if self._watch is None:
            self._watch = self._open(self._left[-1])
        record = self._watch.next(timeout_s=timeout_s)
        if record is not None and record.final:
            self._left.pop()
            self.close()
        return record

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None


def type_checked(function: Callable[[], T]) -> T:
    """Call `function`. Raises ResultError for a key of a wrong type: trying again cannot help."""
    import redis

    try:
        return function()
    except redis.ResponseError as error:
        if str(error).startswith("WRONGTYPE"):
            raise ResultError(f"what is stored there is something else: {error}") from None
        raise


def _read(keys: Sequence[str], client: Redis) -> Any:
    # MGET does not tell a key of a wrong type from one that is not there.
    return [type_checked(lambda: client.get(keys[0]))] if len(keys) == 1 else client.mget(keys)
