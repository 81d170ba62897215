"""What is in flight in a worker: delivered to it, and not completed yet."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from blimp.queue.options import per_second
from blimp.queue.worker.job import Place, place_of

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.task import Task
    from blimp.queue.worker.job import Job

AHEAD_S = 0.05
LEAST, MOST = 16, 512  # of AdaptivePrefetch
BURST_S = 0.1  # a job that waited this much too long is made up for
HELD_S = 1.0  # as many jobs wait in the worker as may begin in this time, within the limits
LEAST_HELD, MOST_HELD = 16, 128
LONGEST_LATER_S = 60.0  # of one postponement: the rate may change meanwhile
MOST_SLOWED = 1000  # jobs that wait for their task's rate
MOST_WRITING = 128  # jobs that wait for a commit of their result


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


class InFlight:
    """The jobs in flight. Those that wait for their time do not count against `prefetch`.

    Nor do those that wait for a rate limit, up to MOST_SLOWED; nor, up to MOST_WRITING, those
    for which `ran` was called: the more of them, the more go in one commit.

    prefetch: how many jobs of one pool, None for what AdaptivePrefetch says, and never fewer
        than the pool runs at once, which `slots` returns; `expect` says which pools the tasks
        need. With several pools, a full one must not keep the others from their messages, and
        which pool the next message needs is not known before it is taken. So up to `prefetch`
        more than a full pool's share may be taken, and wait here until it has room. After that
        nothing is taken: a queue has one order, and a requeued message would be delivered next.

    The consuming thread takes; any thread may release, and change a rate.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        prefetch: int | None,
        stopping: threading.Event,
        slots: Callable[[Place], int] = lambda _: 0,
        most: int = MOST,
    ) -> None:
        self._clock = clock
        self._fixed = prefetch
        self._slots = slots
        self._adaptive = AdaptivePrefetch(clock=clock, most=most)
        self._stopping = stopping
        self._changed = threading.Condition()
        self._jobs: dict[str, Job] = {}  # by delivery tag
        self._counted: dict[str, Place] = {}  # of those that do not wait for their time
        self._busy: dict[Place, int] = {}
        self._waiting: list[tuple[float, int, Job]] = []  # a heap; the consuming thread's
        self._order = itertools.count()
        self.held_by: Callable[[], bool] = bool  # returns whether to take nothing more
        self._rates: dict[str, Rate] = {}  # by the task's name
        self._slowed: set[str] = set()  # tags of those that wait for their task's rate
        self._freed: list[Job] = []  # of those, the ones whose rate limit was lifted
        self._writing: set[str] = set()  # tags of those that ran, and wait for a commit

    def expect(self, tasks: Iterable[Task]) -> None:
        """Prepare for messages of `tasks`."""
        with self._changed:
            for task in tasks:
                self._busy.setdefault(place_of(task), 0)
                per_s = per_second(task.options.rate_limit)
                if per_s is not None:
                    self._rates.setdefault(task.name, Rate(per_s))

    def limit_rate(self, task: str, per_s: float | None) -> None:
        """Limit how often a second `task` begins from now on; None: no limit."""
        with self._changed:
            rate = self._rates.get(task)
            if rate is not None and per_s is not None:
                rate.change(per_s, now_s=self._clock.now_s())
            elif rate is not None:
                del self._rates[task]
                self._freed += rate.waiting
            elif per_s is not None:
                self._rates[task] = Rate(per_s)

    @property
    def limits_rates(self) -> bool:
        """Return whether any task has a rate limit."""
        return bool(self._rates)

    def postpone_s(self, task: str) -> float | None:
        """Return in how long one more of `task` should be delivered; None to take it now."""
        with self._changed:
            rate = self._rates.get(task)
            if rate is None or not rate.is_full():
                return None
            return rate.later_s(self._clock.now_s())

    def grow(self, by: int) -> None:
        """A pool runs `by` more jobs at once, or fewer."""
        with self._changed:
            if self._fixed is not None:
                self._fixed = max(1, self._fixed + by)
            self._adaptive.grow(by)

    def take(self, job: Job, *, wait_s: float) -> bool:
        """Add `job`; return whether it may run now. Otherwise `due` returns it in `wait_s`."""
        with self._changed:
            self._jobs[job.delivery.tag] = job
            if wait_s <= 0.0:
                return self._may_run(job)
        heapq.heappush(self._waiting, (self._clock.now_s() + wait_s, next(self._order), job))
        return False

    def due(self) -> list[Job]:
        """Return the jobs whose time has come, in that order, once."""
        ready: list[Job] = []
        while self._waiting and self._waiting[0][0] <= self._clock.now_s():
            job = heapq.heappop(self._waiting)[2]
            with self._changed:
                # If it was not lost meanwhile, and its rate allows it.
                if job.delivery.tag in self._jobs and self._may_run(job):
                    ready.append(job)
        if self._slowed:
            with self._changed:
                ready += self._released()
        return ready

    def patience_s(self, longest_s: float) -> float:
        """Return how long to block: `longest_s`, or until the next job is due."""
        if not self._waiting and not self._slowed:
            return longest_s
        next_s = [self._waiting[0][0]] if self._waiting else []
        with self._changed:
            if self._freed:
                return 0.0
            next_s += [rate.next_s for rate in self._rates.values() if rate.waiting]
        return min((longest_s, *(max(0.0, one - self._clock.now_s()) for one in next_s)))

    def is_scheduled(self, job: Job) -> bool:
        """Return whether `job` is in flight and waits for its time."""
        with self._changed:
            tag = job.delivery.tag
            apart = (self._counted, self._slowed, self._writing)
            return tag in self._jobs and not any(tag in others for others in apart)

    def has_room(self) -> bool:
        """Return whether one more may be taken; False while the worker stops."""
        return self.room() > 0

    def room(self) -> int:
        """Return how many may be taken; 0 while the worker stops."""
        if self._stopping.is_set() or self.held_by():
            return 0
        with self._changed:
            prefetch = self._prefetch()
            shares = [
                most - busy for most, busy in zip(prefetch, self._busy.values(), strict=False)
            ] or prefetch
            slowed = len(self._slowed)
        most = max(shares)
        if len(shares) > 1:
            over = sum(share for share in shares if share < 0)
            most = min(most, max(prefetch) + over)
        return max(0, min(most, MOST_SLOWED - slowed))

    def limit(self) -> int:
        """Return how many may be in flight at once, with those that wait for their time."""
        with self._changed:
            prefetch = self._prefetch()
            writing = len(self._writing)
        most = max(prefetch) * min(2, len(prefetch))
        return most + self.waiting() + writing

    def waiting(self) -> int:
        """Return how many wait for their time."""
        with self._changed:
            return len(self._jobs) - len(self._counted) - len(self._writing)

    def wait_for_room(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: self.has_room() or self._stopping.is_set(), timeout=timeout_s
            )

    def ran(self, job: Job) -> None:
        """`job` has run, and its result waits for a commit."""
        with self._changed:
            tag = job.delivery.tag
            if len(self._writing) < MOST_WRITING and tag in self._counted:
                self._busy[self._counted.pop(tag)] -= 1
                self._writing.add(tag)
                self._changed.notify_all()

    def release(self, *jobs: Job) -> None:
        """The jobs are completed, or requeued."""
        with self._changed:
            for job in jobs:
                self._jobs.pop(job.delivery.tag, None)
                if job.delivery.tag in self._slowed:
                    self._forget_slowed(job)
                self._writing.discard(job.delivery.tag)
                place = self._counted.pop(job.delivery.tag, None)
                if place is not None:
                    self._busy[place] -= 1
            self._adaptive.ended(len(jobs))
            self._changed.notify_all()

    def lose(self, tag: str) -> Job | None:
        """Another worker has this delivery now: its job's end is refused. Returns the job."""
        with self._changed:
            job = self._jobs.get(tag)
        if job is None:
            return None
        job.lose()
        if job.withdraw():
            self.release(job)
        return job

    def nudge(self) -> None:
        """Have every waiting thread check again."""
        with self._changed:
            self._changed.notify_all()

    def tags(self) -> list[str]:
        with self._changed:
            return list(self._jobs)

    def jobs(self) -> list[Job]:
        """Return what is in flight, in the order it was taken."""
        with self._changed:
            return list(self._jobs.values())

    def wait_empty(self, timeout_s: float | None, *, unless: Callable[[], bool]) -> None:
        """Return when nothing is in flight, `unless` is true at a nudge, or after `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs or unless(), timeout=timeout_s)

    def _count(self, job: Job) -> None:
        place = job.place
        self._counted[job.delivery.tag] = place
        self._busy[place] = self._busy.get(place, 0) + 1

    def _may_run(self, job: Job) -> bool:
        """Count `job` as running, or have it wait for its task's rate."""
        rate = self._rates.get(job.task.name) if self._rates else None
        if rate is None or (not rate.waiting and rate.take(self._clock.now_s())):
            self._count(job)
            return True
        rate.waiting.append(job)
        self._slowed.add(job.delivery.tag)
        return False

    def _released(self) -> list[Job]:
        """Return the jobs that their task's rate allows now."""
        now_s, released = self._clock.now_s(), self._freed
        self._freed = []
        for rate in self._rates.values():
            while rate.waiting and rate.take(now_s, has_waited=True):
                released.append(rate.waiting.popleft())
        for job in released:
            self._slowed.discard(job.delivery.tag)
            self._count(job)
        return released

    def _forget_slowed(self, job: Job) -> None:
        """It waits no longer: it is lost, requeued or revoked. It may be delivered again."""
        self._slowed.discard(job.delivery.tag)
        rate = self._rates.get(job.task.name)
        for waiting in (self._freed, *([rate.waiting] if rate is not None else [])):
            with contextlib.suppress(ValueError):
                waiting.remove(job)

    def _prefetch(self) -> list[int]:
        """Return how many jobs of each pool, in the order of `_busy`; never empty."""
        if self._fixed is not None:
            return [self._fixed] * max(1, len(self._busy))
        ahead = self._adaptive.limit()
        return [max(ahead, self._slots(place)) for place in self._busy] or [ahead]
