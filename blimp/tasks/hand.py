"""What a worker has in hand: taken from the broker, not settled yet."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.tasks.job import Job


class Hand:
    """The jobs in hand. Those that wait for their time do not count against `prefetch`.

    The consuming thread takes; any thread may let go.
    """

    def __init__(self, *, clock: Clock, prefetch: int, stopping: threading.Event) -> None:
        self._clock = clock
        self._prefetch = prefetch
        self._stopping = stopping
        self._changed = threading.Condition()
        self._jobs: dict[str, Job] = {}  # by delivery tag
        self._waiting: list[tuple[float, int, Job]] = []  # a heap; the consuming thread's
        self._order = itertools.count()

    def take(self, job: Job, *, wait_s: float) -> bool:
        """Hold `job`; say whether it may run now. Otherwise `due` returns it in `wait_s`."""
        with self._changed:
            self._jobs[job.delivery.tag] = job
        if wait_s <= 0.0:
            return True
        heapq.heappush(self._waiting, (self._clock.now_s() + wait_s, next(self._order), job))
        return False

    def due(self) -> list[Job]:
        """Return the jobs whose time has come, in that order, once."""
        ready = []
        while self._waiting and self._waiting[0][0] <= self._clock.now_s():
            ready.append(heapq.heappop(self._waiting)[2])
        return ready

    def patience_s(self, longest_s: float) -> float:
        """Return how long to block: `longest_s`, or until the next job is due."""
        if not self._waiting:
            return longest_s
        return min(longest_s, max(0.0, self._waiting[0][0] - self._clock.now_s()))

    def has_room(self) -> bool:
        """Say whether one more may be taken; never where the worker stops."""
        return self.room() > 0

    def room(self) -> int:
        """Return how many may be taken; none where the worker stops."""
        if self._stopping.is_set():
            return 0
        return max(0, self._prefetch - (len(self._jobs) - len(self._waiting)))

    def limit(self) -> int:
        """Return how many may be in hand at once, those that wait for their time included."""
        return self._prefetch + len(self._waiting)

    def waiting(self) -> int:
        """Return how many wait for their time."""
        return len(self._waiting)

    def wait_for_room(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: self.has_room() or self._stopping.is_set(), timeout=timeout_s
            )

    def let_go(self, job: Job) -> None:
        """The job is settled, or the broker's again."""
        with self._changed:
            self._jobs.pop(job.delivery.tag, None)
            self._changed.notify_all()

    def lose(self, tag: str) -> None:
        """Someone else has this delivery now: its job's end counts no more."""
        with self._changed:
            job = self._jobs.get(tag)
        if job is None:
            return
        job.lose()
        if job.withdraw():
            self.let_go(job)

    def nudge(self) -> None:
        """Have whoever waits look again."""
        with self._changed:
            self._changed.notify_all()

    def tags(self) -> list[str]:
        with self._changed:
            return list(self._jobs)

    def jobs(self) -> list[Job]:
        """Return what is in hand, in the order it was taken."""
        with self._changed:
            return list(self._jobs.values())

    def wait_empty(self, timeout_s: float | None, *, unless: Callable[[], bool]) -> None:
        """Return when nothing is in hand, or `unless` holds at a nudge, or after `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs or unless(), timeout=timeout_s)
