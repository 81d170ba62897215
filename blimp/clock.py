"""Time, passed in and never read from a default.

Everything that measures time takes a `Clock`. A test gives it a `ManualClock` and
advances it; a process on board gives it a `SystemClock`.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Three methods; seconds everywhere."""

    def now_s(self) -> float:
        """Return monotonic time in seconds. Its zero is arbitrary; it never steps back."""
        ...

    def wall_s(self) -> float:
        """Return seconds since the Unix epoch. May step: for people, never for control."""
        ...

    def sleep_until(self, deadline_s: float) -> None:
        """Return no earlier than `now_s() == deadline_s`; at once when that has passed."""
        ...


class SystemClock:
    """The machine's CLOCK_MONOTONIC, which all processes of one machine share."""

    now_s = staticmethod(time.monotonic)  # no call of Python's between
    wall_s = staticmethod(time.time)

    def sleep_until(self, deadline_s: float) -> None:
        delay_s = deadline_s - time.monotonic()
        if delay_s > 0.0:
            time.sleep(delay_s)


class ManualClock:
    """A clock that stands still until a test advances it."""

    def __init__(self, *, start_s: float = 0.0, wall_offset_s: float = 1.7e9) -> None:
        self._now_s = start_s
        self._wall_offset_s = wall_offset_s

    def now_s(self) -> float:
        return self._now_s

    def wall_s(self) -> float:
        return self._now_s + self._wall_offset_s

    def sleep_until(self, deadline_s: float) -> None:
        self._now_s = max(self._now_s, deadline_s)

    def advance(self, seconds: float) -> None:
        """Move time forward by `seconds`. Raises ValueError on a step back."""
        if not seconds >= 0.0:
            raise ValueError(f"a clock cannot go back: advance({seconds!r})")
        self._now_s += seconds
