"""How many messages a worker takes in advance: by the pace of its work, and by rate limits."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.worker.job import Job

AHEAD_S = 0.05
LEAST, MOST = 16, 128


class AdaptivePrefetch:
    """A prefetch that follows the work, within LEAST and `most`. The caller's lock guards it.

    Short tasks need a large one: a round trip to the broker costs as much as a few of them. Long
    tasks must not wait here while another worker is idle, nor keep an emergency task waiting. So
    it is the number that ended within the last AHEAD_S, which is then how long a new message
    waits for those before it.
    """

    def __init__(self, *, clock: Clock, most: int = MOST) -> None:
        self._clock = clock
        self._most = most
        self._since_s = clock.now_s()
        self._ended = 0
        self._limit = self._least = LEAST

    def ended(self, jobs: int) -> None:
        self._ended += jobs

    def grow(self, by: int) -> None:
        """`by` more may run at once, or fewer: the prefetch is never less than that."""
        self._least = max(LEAST, self._least + by)

    def limit(self) -> int:
        now_s = self._clock.now_s()
        passed_s = now_s - self._since_s
        if passed_s >= AHEAD_S:
            ahead = min(self._most, round(self._ended * AHEAD_S / passed_s))
            self._limit = max(self._least, ahead)
            self._since_s, self._ended = now_s, 0
        return self._limit


BURST_S = 0.1  # a job that waited this much too long is made up for
HELD_S = 1.0  # as many jobs wait in the worker as may begin in this time, within the limits
LEAST_HELD, MOST_HELD = 16, 128
LONGEST_LATER_S = 60.0  # of one postponement: the rate may change meanwhile


class Rate:
    """A token bucket for one task, and the jobs that wait for it. The caller's lock guards it.

    It holds one token: an unused one is not added to the next.
    """

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self.waiting: deque[Job] = deque()
        self.next_s = 0.0  # when there is a token again
        self._later_s = 0.0  # when the last postponed one is due

    def change(self, per_s: float, *, now_s: float) -> None:
        self.per_s = per_s
        self.next_s = min(self.next_s, now_s + 1.0 / per_s)
        self._later_s = now_s

    def take(self, now_s: float, *, has_waited: bool = False) -> bool:
        """Take a token; return False if there is none.

        has_waited: for a job that waited for it, up to BURST_S too long.
        """
        if now_s < self.next_s:
            return False
        kept_s = BURST_S if has_waited else 0.0
        self.next_s = max(self.next_s, now_s - kept_s) + 1.0 / self.per_s
        return True

    def is_full(self) -> bool:
        """Return whether so many wait here that one more should be delivered later."""
        held = min(MOST_HELD, max(LEAST_HELD, self.per_s * HELD_S))
        return len(self.waiting) >= held

    def later_s(self, now_s: float) -> float:
        """Return in how many seconds a postponed one is due: each after the one before."""
        after_s = max(self._later_s, now_s + len(self.waiting) / self.per_s)
        self._later_s = min(after_s + 1.0 / self.per_s, now_s + LONGEST_LATER_S)
        return self._later_s - now_s
