"""How many messages a worker holds where nobody says: as many as it ends in a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blimp.clock import Clock

AHEAD_S = 0.05
LEAST, MOST = 16, 128


class AdaptivePrefetch:
    """A prefetch that follows the work, within LEAST and `most`. Its caller's lock guards it.

    Short tasks need many at once: a round trip to the broker costs as much as a few of them.
    Long ones must not lie here while another worker is idle, or an emergency lane waits behind
    them. So it is what ended within the last AHEAD_S: that is how long what is taken next
    waits for what was taken before.
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
        """So many more may run at once, or fewer: it is never less than that."""
        self._least = max(LEAST, self._least + by)

    def limit(self) -> int:
        now_s = self._clock.now_s()
        passed_s = now_s - self._since_s
        if passed_s >= AHEAD_S:
            ahead = min(self._most, round(self._ended * AHEAD_S / passed_s))
            self._limit = max(self._least, ahead)
            self._since_s, self._ended = now_s, 0
        return self._limit
