"""A logical clock, by which events of several programs are put in an order."""

from __future__ import annotations

import threading


class LamportClock:
    """Counts what is told here, and is never behind what was heard. Thread-safe.

    Source: L. Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System", 1978;
    kombu's `clocks.py`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value = 0

    @property
    def value(self) -> int:
        return self._value

    def forward(self, by: int = 1) -> int:
        """Go on by so many events; return the value of the last."""
        with self._lock:
            self._value += by
            return self._value

    def adjust(self, heard: int) -> int:
        """Go past the value that somebody else's message carries; return the new one."""
        with self._lock:
            self._value = max(self._value, heard) + 1
            return self._value
