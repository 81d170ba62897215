"""The broker's clock: all processes measure a message's age on it.

A Pi has no battery-backed clock, and a laptop's may be wrong; both can ask the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from blimp.errors import LinkError

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.redis.client import RedisServer


RECENT_S = 1.0


class Moment(NamedTuple):
    """One moment on two clocks: this machine's monotonic one, and the broker's."""

    ours_s: float
    theirs_s: float


class _Answer(NamedTuple):
    """By how much the broker's clock is ahead of our monotonic one, at least and at most."""

    came_s: float
    least_s: float
    most_s: float
    url: str = ""


class BrokerClock:
    """Asks the server (TIME) each time; of several, the one in use. Thread-safe.

    Without a server it is this machine's clock.

    While all are unreachable it continues from the last answer on this machine's monotonic
    clock, so that the age of a message in flight is still known.

    An answer is as old as its way back took, which is unknown. A sender uses the earliest time
    that it can be now, and the judge of an age the latest: no message is ever judged younger
    than it is.
    """

    def __init__(self, *, link: RedisServer | None, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._last: _Answer | None = None

    def recent_s(self) -> float:
        """Return the same without asking a broker that answered within the last second.

        For senders: if this machine slept in between it is early, never late, so what is
        sent expires too soon rather than too late.
        """
        last = self._last
        if last is not None and self._link is not None and last.url == self._link.brokers.current:
            now_s = self._clock.now_s()
            if now_s - last.came_s < RECENT_S:
                return now_s + last.least_s
        return self.now_s()

    def now_s(self) -> float:
        """Return seconds since the epoch on the broker's clock, never late.

        Raises LinkError if the server does not answer and never has.
        """
        return self._ask().least_s + self._clock.now_s()

    def latest_s(self) -> float:
        """Return the same, never early: what an age is measured with. Raises LinkError."""
        return self.latest().theirs_s

    def latest(self) -> Moment:
        """Return now, on the broker's clock as late as it can be. Raises LinkError."""
        answer = self._ask()
        now_s = self._clock.now_s()
        return Moment(now_s, now_s + answer.most_s)

    def _ask(self) -> _Answer:
        """Return the newest answer. Raises LinkError."""
        if self._link is None:
            now_s = self._clock.now_s()
            ahead_s = self._clock.wall_s() - now_s
            return _Answer(now_s, ahead_s, ahead_s)
        sent: list[float] = []  # of several servers, or of two tries, the last one answered

        def ask(client: Any) -> Any:
            sent.append(self._clock.now_s())
            return client.time()

        try:
            seconds, microseconds = self._link.ask(ask)
        except LinkError:
            if self._last is None:
                raise
            return self._last
        theirs_s, came_s = int(seconds) + int(microseconds) / 1e6, self._clock.now_s()
        url = self._link.brokers.current
        self._last = _Answer(came_s, theirs_s - came_s, theirs_s - sent[-1], url)
        return self._last
