"""The transport under kombu's event loop, in which Celery's worker runs.

The loop calls `turn` before it waits, and `_readable` when a socket has something to read.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import redis

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.fetcher import Question
    from blimp.queue.kombu_transport.dispatcher import Dispatcher


class EventLoop:
    """Ties one dispatcher to one kombu hub, until `close`. Close is idempotent."""

    def __init__(self, *, hub: Any, dispatcher: Dispatcher) -> None:
        self._hub = hub
        self._dispatcher = dispatcher
        self._watched: dict[int, Question | None] = {}  # by descriptor; None is the wake pipe
        hub.on_tick.add(self.turn)
        dispatcher.reader.on_close = self._forget

    def turn(self) -> None:
        """Deliver what is there, or have the loop watch the sockets. Raises connection errors."""
        if self._dispatcher.reader.is_overdue():
            raise redis.TimeoutError("the broker does not answer a blocking read in time")
        self._dispatcher.fetch()
        if self._deliver_all():
            self._dispatcher.reader.wake()  # there may be more: the loop must not wait now
        self._watch()

    def _deliver_all(self) -> bool:
        delivered = False
        while self._dispatcher.deliver():
            delivered = True
        return delivered

    def _readable(self, number: int) -> None:
        question = self._watched.get(number)
        if question is None:
            self._dispatcher.reader.drain_wakes()
        elif question.asked:
            try:
                self._dispatcher.read(question)
            except (redis.RedisError, OSError):
                self._forget(number)  # redis-py has closed the socket
                raise
            self._deliver_all()

    def _watch(self) -> None:
        reader = self._dispatcher.reader
        wanted: dict[int, Question | None] = {
            one.socket().fileno(): one for one in (reader.messages, reader.fanout) if one.asked
        }
        wanted[reader.wake_number] = None
        for number in wanted.keys() - self._watched.keys():
            self._hub.add_reader(number, self._readable, number)
        self._watched |= wanted

    def _forget(self, number: int) -> None:
        """A socket closes: another may have its number at once."""
        if number not in self._watched:
            return
        del self._watched[number]
        callback = (self._hub.readers.get(number) or (None,))[0]
        if callback == self._readable:  # else the hub was reset since
            with contextlib.suppress(OSError, ValueError, KeyError):
                self._hub.remove(number)

    def close(self) -> None:
        self._hub.on_tick.discard(self.turn)
        for number in list(self._watched):
            self._forget(number)
        self._dispatcher.reader.on_close = lambda _: None
