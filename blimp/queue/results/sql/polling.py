"""Waiting for a result where nobody tells of it: by looking, ever less often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blimp.closing import Closing
from blimp.queue.protocol.record import Record, decode

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.results.base import ResultBackend

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0


class PollingWatch(Closing):
    """A ResultWatch that asks `results`; after news at once again, then ever more slowly."""

    def __init__(self, *, results: ResultBackend, id: str, clock: Clock) -> None:
        self._results = results
        self._id = id
        self._clock = clock
        self._newest = b""
        self._pause_s = FIRST_PAUSE_S
        self._closed = False

    def next(self, *, timeout_s: float) -> Record | None:
        deadline_s = self._clock.now_s() + timeout_s
        while not self._closed:
            data = self._results.read(self._id)
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
