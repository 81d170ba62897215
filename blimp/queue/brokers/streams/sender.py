"""Task messages straight into streams. A kombu producer would write the same, at twice the price.

What it writes is `wire.pack`'s, as by the transport's own channel: other kombu programs read it.
"""

from __future__ import annotations

import threading
from typing import Any

import redis

from blimp.queue.brokers.choose import streams_options
from blimp.queue.brokers.streams.envelope import pack_task
from blimp.queue.brokers.streams.publish_once import REMEMBERED, Stamp
from blimp.queue.brokers.streams.session import StreamsSession
from blimp.queue.redis.fork import begin_anew_after_fork
from blimp.queue.redis.scripts import digest
from blimp.queue.redis.urls import redis_url


class StreamsSender:
    """Sends to one broker, from any thread. Connects on first use; close is idempotent.

    It keeps connections of its own: what redis-py's client and pool do around a command takes
    as long as the command. Raises redis-py's errors, and ConfigError for a server too old.
    """

    def __init__(self, url: str, *, timeout_s: float) -> None:
        self._session = StreamsSession(
            url=redis_url(url), options=streams_options(timeout_s=timeout_s)
        )
        self._checking = threading.Lock()
        self._is_checked = False
        self._idle: list[Any] = []  # connections that nobody uses now
        begin_anew_after_fork(self)

    def after_fork(self) -> None:
        self._checking = threading.Lock()
        self._idle = []  # the parent's

    def connect(self) -> None:
        """Have a connection ready, to a server that knows what the scripts use."""
        with self._checking:
            if not self._is_checked:
                self._session.link.check_version()
                self._is_checked = True

    def send(
        self,
        body: bytes,
        *,
        headers: dict[str, Any],
        queue: str,
        priority: int,
        stamp: Stamp,
    ) -> None:
        """Put one message into `queue`; the same `stamp` again puts nothing more."""
        if not self._is_checked:
            self.connect()
        envelope = pack_task(body, headers=headers, queue=queue, priority=priority)
        keys, store = self._session.keys.queue(queue), self._session.store
        if envelope.due_ms or envelope.ttl_ms is not None:
            store.publish([(keys, False)], envelope, stamp=stamp)
            return
        names = [stamp.key, keys.lanes[envelope.lane]]
        words = [
            stamp.number, stamp.remember_ms, stamp.number - REMEMBERED,
            envelope.head, envelope.body,
        ]  # fmt: skip
        try:
            self._call("EVALSHA", digest("put"), len(names), *names, *words)
        except (redis.ConnectionError, redis.exceptions.NoScriptError):
            # It had died while it lay idle, or the server is new: once more, with all care.
            store.put_once(names, words)

    def _call(self, *command: object) -> None:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._session.link.connection()
        try:
            connection.send_command(*command)
            connection.read_response()
        except redis.ResponseError:
            self._idle.append(connection)
            raise
        except BaseException:
            self._session.link.give_up(connection)
            raise
        self._idle.append(connection)

    def close(self) -> None:
        while self._idle:
            self._session.link.give_up(self._idle.pop())
        self._session.close()
