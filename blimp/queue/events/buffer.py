"""Events on their way from the threads where they happen to the one that sends them."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

HOLD_BYTES = 2_000_000  # of what waits: no more tasks are taken then
BATCHED = "task"  # the group of which many go as one message
LIMIT_BYTES = 8_000_000  # what is in hand by then may still fill it so far


class Event(NamedTuple):
    """type: such as "task-received". data: a JSON object without its `clock`."""

    type: str
    data: bytes

    @property
    def group(self) -> str:
        """What its exchange calls it by, the type's first word: "task" or "worker"."""
        return self.type.partition("-")[0]


class EventBuffer:
    """Keeps events in order, up to `limit_bytes`; what comes then is dropped, and counted."""

    def __init__(self, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._events: deque[Event] = deque()
        self._waits = False
        self._closed = False
        self.size_bytes = 0
        self.dropped = 0

    def put(self, event: Event) -> bool:
        """Keep `event`; False where it is dropped. Any thread; waits for nothing."""
        size = len(event[1])
        with self._lock:  # the lock itself: this is part of every task
            if self._closed or self.size_bytes + size > self._limit_bytes:
                self.dropped += 1
                return False
            self._events.append(event)
            self.size_bytes += size
            if self._waits:
                self._changed.notify()
            return True

    def wait(self) -> bool:
        """Wait for an event; False where there is none, and none will come."""
        with self._changed:
            self._waits = True
            self._changed.wait_for(lambda: self._events or self._closed)
            self._waits = False  # the next may come without a word: it is looked for
            return bool(self._events)

    def is_batch(self) -> bool:
        """Say whether what comes first may go with others. The taking thread's."""
        return bool(self._events) and self._events[0].group == BATCHED

    def take(self, *, most_bytes: int) -> list[Event]:
        """Return the oldest events that may go as one message, at least one where there is any.

        Those are all of a group; one about the worker goes alone, as Celery sends it.
        """
        batch: list[Event] = []
        size = 0
        with self._changed:
            while self._events:
                event = self._events[0]
                size += len(event.data)
                if batch and (size > most_bytes or event.group != batch[0].group):
                    break
                batch.append(self._events.popleft())
                self.size_bytes -= len(event.data)
                if event.group != BATCHED:
                    break
        return batch

    def drop(self, count: int = 0) -> int:
        """Count `count` taken events as dropped, and all that wait; return how many there are."""
        with self._changed:
            count += len(self._events)
            self._events.clear()
            self.size_bytes = 0
            self.dropped += count
            return count

    def close(self) -> None:
        """Take no more. What is kept can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
