"""The broker's clock: the one that all who measure a message's age agree on.

A Pi has no battery-backed clock, and a laptop's may be wrong; both can ask the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from blimp.errors import LinkError

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.tasks.results.redis import RedisResults


RECENT_S = 1.0


class _Answer(NamedTuple):
    ours_s: float  # monotonic, when it came
    theirs_s: float
    url: str


class BrokerClock:
    """Asks the server (TIME) each time; of several, the one in use. Thread-safe.

    Without a server it is this machine's clock.

    While all are away it goes on from the last answer on this machine's monotonic clock, so
    that a message in hand can still be judged.
    """

    def __init__(self, *, link: RedisResults | None, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._last: _Answer | None = None

    def recent_s(self) -> float:
        """Return the same without asking a broker that answered within the last second.

        For senders: where this machine slept in between it is early, never late, so what is
        sent expires too soon rather than too late.
        """
        last = self._last
        if last is not None and self._link is not None and last.url == self._link.brokers.current:
            passed_s = self._clock.now_s() - last.ours_s
            if passed_s < RECENT_S:
                return last.theirs_s + passed_s
        return self.now_s()

    def now_s(self) -> float:
        """Return seconds since the epoch on the broker's clock.

        Raises LinkError where the server does not answer and never has.
        """
        if self._link is None:
            return self._clock.wall_s()
        try:
            seconds, microseconds = self._link.ask(lambda client: client.time())
        except LinkError:
            last = self._last
            if last is None:
                raise
            return last.theirs_s + (self._clock.now_s() - last.ours_s)
        now_s = int(seconds) + int(microseconds) / 1e6
        self._last = _Answer(self._clock.now_s(), now_s, self._link.brokers.current)
        return now_s
