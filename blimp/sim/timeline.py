"""The world's time, and what will happen at exact moments of it."""

import heapq
from collections.abc import Callable
from math import inf


class Timeline:
    """Seconds since the world began, and the events that wait for their moment.

    Events at one moment happen in the order they were planned, so that a run can be
    repeated to the bit.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def next_s(self) -> float:
        """When the next event is due; infinity when nothing is planned."""
        return self._planned[0][0] if self._planned else inf

    def at(self, t_s: float, action: Callable[[], None]) -> None:
        """Do `action` at `t_s`; as soon as time moves, where that has passed."""
        heapq.heappush(self._planned, (t_s, self._count, action))
        self._count += 1

    def run_next(self) -> None:
        """Move to the next event and let it happen."""
        t_s, _, action = heapq.heappop(self._planned)
        self.now_s = max(self.now_s, t_s)
        action()
