"""Publishing straight into streams: what a kombu producer would write, at half the price."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import redis

from blimp.queue.brokers.streams.envelope import Stamp, pack_broadcast, pack_task
from blimp.queue.brokers.streams.exchanges import Exchanges
from blimp.queue.brokers.streams.store import SCRIPTS
from blimp.queue.brokers.streams.unique_claims import UniqueClaims
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.protocol.unique import claim_of
from blimp.queue.redis.client import RedisServer
from blimp.queue.redis.forks import reset_after_fork
from blimp.queue.redis.urls import is_lost, link_error

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Exchange, Found, Written
    from blimp.queue.brokers.streams.envelope import Envelope
    from blimp.queue.brokers.streams.exchanges import Row

T = TypeVar("T")

REMEMBER_MS = 600_000


class StreamsSender:
    """A Sender over `server`'s connections, or its own. Raises ConfigError if it is too old."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        on_lost: Callable[[str], None] = lambda _: None,
        server: RedisServer | None = None,
    ) -> None:
        self._url = url
        self._on_lost = on_lost
        self._own_server = None if server else RedisServer(url, timeout_s=timeout_s)
        link = (self._own_server or cast("RedisServer", server)).link_to(url)
        self._session = StreamsSession(url=url, link=link)
        self._exchanges = Exchanges(self._session.store)
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        self._checking = threading.Lock()
        self._is_checked = False
        self._own = uuid.uuid4().hex  # in the keys of its stamps
        self._keys_made = itertools.count()
        self._stamps: deque[Stamp] = deque()  # of publishes that have ended

    def connect(self) -> None:
        self._run(self._check)

    def _check(self) -> None:
        with self._checking:
            if not self._is_checked:
                self._session.link.check_server()
                self._is_checked = True

    def stamp(self) -> Stamp:
        """Return what identifies a repeated publish.

        The server remembers only the latest number of each key, so no two publishes under way
        share a key: not two threads, and not a signal handler with what it interrupts.
        """
        try:
            last = self._stamps.pop()
        except IndexError:
            name = f"{self._own}-{next(self._keys_made)}"
            last = Stamp(self._session.keys.sender(name), 0, REMEMBER_MS)
        return Stamp(last.key, last.number + 1, REMEMBER_MS)

    def release(self, stamp: Stamp) -> None:
        if self._own in stamp.key:  # else it is of the parent, which goes on with it
            self._stamps.append(stamp)

    def send(self, messages: Sequence[Written], stamp: Stamp) -> None:
        """Put messages into their queues, all or none; the same stamp again puts nothing more."""
        try:
            if not self._is_checked:
                self._check()
            envelopes = list(map(_packed, messages))
            queues = [message.queue for message, _, _ in messages]
            if not self._put(queues, envelopes, stamp):
                self._session.store.put_many(queues, envelopes, stamp=stamp)
        except (redis.RedisError, OSError) as error:
            raise self._link_error(error) from None

    def _put(self, queues: Sequence[str], envelopes: Sequence[Envelope], stamp: Stamp) -> bool:
        """Put messages into the one stream that they all go to now; False if there is none."""
        queue, level = queues[0], envelopes[0].level
        args: list[Any] = [stamp.number, stamp.remember_ms]
        for name, one in zip(queues, envelopes, strict=True):
            if one.due_ms or one.tenant or one.level != level or name != queue:
                return False
            args += (one.head, one.body)
        stream = self._session.keys.queue(queue).levels[level]
        self._session.link.run(SCRIPTS["put"], (stamp.key, stream), args)
        return True

    def send_unique(self, message: Written, stamp: Stamp) -> str:
        store = self._session.store

        def put() -> str:
            self._check()
            claim = claim_of(message.headers)
            assert claim is not None
            packed = _packed(message)
            return UniqueClaims(store).put(message.message, packed, claim, stamp=stamp)

        return self._run(put)

    def broadcast(self, exchange: str, body: bytes) -> None:
        one = pack_broadcast(body, exchange=exchange)
        self._run(lambda: self._exchanges.broadcast(exchange, one.head, body))

    def notify(
        self, exchange: Exchange, body: bytes, *, routing_key: str, headers: dict[str, Any]
    ) -> None:
        name = exchange.name
        one = pack_broadcast(body, exchange=name, routing_key=routing_key, headers=headers)
        if exchange.type == "fanout":
            self._run(lambda: self._exchanges.notify(name, one.head, body))
            return

        def route(rows: Sequence[Row]) -> set[str]:
            return {queue for key, _, queue in rows if key == routing_key}

        self._run(lambda: self._exchanges.publish(name, one, route=route))

    def bind(self, queue: str, exchange: Exchange, routing_key: str) -> None:
        from kombu.transport.virtual.exchange import STANDARD_EXCHANGE_TYPES as TYPES

        row = TYPES[exchange.type](None).prepare_bind(queue, exchange.name, routing_key, None)
        self._run(lambda: self._exchanges.declare(exchange.name, exchange.type))
        self._run(lambda: self._exchanges.bind(exchange.name, row, mortal=False))

    def revoke(self, queue: str, id: str, mark: bytes) -> Found:
        store = self._session.store
        return self._run(lambda: store.revoke(store.keys.queue(queue), id, mark))

    def _run(self, function: Callable[[], T]) -> T:
        try:
            return function()
        except (redis.RedisError, OSError) as error:
            raise self._link_error(error) from None

    def _link_error(self, error: Exception) -> Exception:
        if is_lost(error):
            self._on_lost(self._url)
        return link_error(self._url, error)

    def close(self) -> None:
        self._session.close()
        if self._own_server is not None:
            self._own_server.close()


def _packed(written: Written) -> Envelope:
    message, headers, body = written
    return pack_task(body, headers=headers, queue=message.queue, priority=message.priority)
