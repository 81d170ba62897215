"""The broker's clock: the one that all who measure a message's age agree on.

A Pi has no battery-backed clock, and a laptop's may be wrong; both can ask the broker.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from blimp.errors import LinkError

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.tasks.results.redis import RedisResults


class BrokerClock:
    """Asks the server (TIME) each time; of several, the one in use. Thread-safe.

    Without a server it is this machine's clock.

    While all are away it goes on from the last answer on this machine's monotonic clock, so
    that a message in hand can still be judged.
    """

    def __init__(self, *, link: RedisResults | None, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._lock = threading.Lock()
        self._last: tuple[float, float] | None = None  # our monotonic, the broker's

    def now_s(self) -> float:
        """Return seconds since the epoch on the broker's clock.

        Raises LinkError where the server does not answer and never has.
        """
        if self._link is None:
            return self._clock.wall_s()
        try:
            seconds, microseconds = self._link.ask(lambda client: client.time())
        except LinkError:
            with self._lock:
                if self._last is None:
                    raise
                ours_s, theirs_s = self._last
            return theirs_s + (self._clock.now_s() - ours_s)
        now_s = int(seconds) + int(microseconds) / 1e6
        with self._lock:
            self._last = (self._clock.now_s(), now_s)
        return now_s
