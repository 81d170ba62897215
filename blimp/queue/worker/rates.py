"""Rate limits: how often one worker begins a task of a name."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blimp.queue.worker.job import Job

BURST_S = 0.1  # by so much a busy thread may be late, and catch up with it
HELD_S = 1.0  # so much of a rate waits in hand,
LEAST_HELD, MOST_HELD = 16, 128  # within these
LONGEST_LATER_S = 60.0  # of one postponement: the rate may be changed meanwhile


class Rate:
    """A bucket of tokens for one task, and the jobs that wait for one. Its caller's lock guards it.

    It holds one token: what is not used is not kept.
    """

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self.waiting: deque[Job] = deque()
        self.next_s = 0.0  # when there is a token again
        self._later_s = 0.0  # up to when what was postponed is spread

    def change(self, per_s: float, *, now_s: float) -> None:
        self.per_s = per_s
        self.next_s = min(self.next_s, now_s + 1.0 / per_s)
        self._later_s = now_s

    def take(self, now_s: float, *, has_waited: bool = False) -> bool:
        """Take a token; False where there is none.

        has_waited: for a job that waited for it, up to BURST_S too long.
        """
        if now_s < self.next_s:
            return False
        kept_s = BURST_S if has_waited else 0.0
        self.next_s = max(self.next_s, now_s - kept_s) + 1.0 / self.per_s
        return True

    def is_full(self) -> bool:
        """Say whether so many wait in hand that one more had better come again later."""
        held = min(MOST_HELD, max(LEAST_HELD, self.per_s * HELD_S))
        return len(self.waiting) >= held

    def later_s(self, now_s: float) -> float:
        """Return in how many seconds one that is postponed may come again: each after another."""
        after_s = max(self._later_s, now_s + len(self.waiting) / self.per_s)
        self._later_s = min(after_s + 1.0 / self.per_s, now_s + LONGEST_LATER_S)
        return self._later_s - now_s
