"""Publishing straight into streams: what a kombu producer would write, at half the price."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import redis

from blimp.queue.brokers.streams.envelope import Stamp, pack_broadcast, pack_task
from blimp.queue.brokers.streams.exchanges import Exchanges
from blimp.queue.brokers.streams.store import SCRIPTS
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.redis.client import DirectCalls, reset_after_fork, streams_options
from blimp.queue.redis.urls import is_lost, link_error, redis_url

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Exchange, Found, Written
    from blimp.queue.brokers.streams.envelope import Envelope
    from blimp.queue.brokers.streams.exchanges import Row

T = TypeVar("T")

REMEMBER_MS = 600_000


class StreamsSender:
    """A Sender with connections of its own: redis-py's pool costs as much as the command.

    Raises ConfigError for a server that is too old.
    """

    def __init__(
        self, url: str, *, timeout_s: float, on_lost: Callable[[str], None] = lambda _: None
    ) -> None:
        self._url = url
        self._on_lost = on_lost
        self._session = StreamsSession(
            url=redis_url(url), options=streams_options(timeout_s=timeout_s)
        )
        self._exchanges = Exchanges(self._session.store)
        link = self._session.link
        self._calls = DirectCalls(link.client, is_plain=not link.tag and not link.waits)
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
            envelopes = [
                pack_task(body, headers=headers, queue=message.queue, priority=message.priority)
                for message, headers, body in messages
            ]
            if len(envelopes) == 1 and not (envelopes[0].due_ms or envelopes[0].tenant):
                self._put(messages[0].message.queue, envelopes[0], stamp)
            else:
                queues = [message.queue for message, _, _ in messages]
                self._session.store.put_many(queues, envelopes, stamp=stamp)
        except (redis.RedisError, OSError) as error:
            raise self._link_error(error) from None

    def _put(self, queue: str, one: Envelope, stamp: Stamp) -> None:
        stream = self._session.keys.queue(queue).levels[one.level]
        words = (stamp.key, stream, stamp.number, stamp.remember_ms, one.head, one.body)
        try:
            self._calls.call("EVALSHA", SCRIPTS["put"].digest, 2, *words)
            return
        except (redis.ConnectionError, ConnectionError, redis.exceptions.NoScriptError):
            pass  # the idle connection had died, or the server is new
        self._session.store.run("put", list(words[:2]), list(words[2:]))  # once more, with all care

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
        self._calls.close()
        self._session.close()
