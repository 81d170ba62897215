"""What is in flight in a worker: delivered to it, and not completed yet."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from blimp.queue.options import per_second
from blimp.queue.worker.job import Phase, Place, Stage, place_of

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
LOOK_S = 1.0
FULL_S = 1.0  # a pool is full and none of its jobs has ended: what waits for it goes back


class AdaptivePrefetch:
    """A prefetch that follows the work, within LEAST and `most`. The caller's lock guards it.

    Short tasks need a large one: while the server delivers and acknowledges some, others must be
    here to run. Long tasks must not wait here while another worker is idle, nor keep an emergency
    task waiting. So it is the number that ended within the last AHEAD_S, which is then how long a
    new message waits for those before it.
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
        return len(self.waiting) >= min(MOST_HELD, max(LEAST_HELD, self.per_s * HELD_S))

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

    Jobs that wait for a pool in which none has ended for FULL_S are `overdue`: another worker may
    be idle. Once they went back, `hold` keeps it from taking more than the pool runs at once, until
    a job of it ends.

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
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._jobs: dict[str, Job] = {}  # by delivery tag
        self._counts = dict.fromkeys(Phase, 0)
        self._busy: dict[Place, int] = {}  # of those that are COUNTED
        self._full_s: dict[Place, float] = {}  # since when jobs wait, or the last one ended
        self._held: set[Place] = set()
        self._waiting: list[tuple[float, int, Job]] = []  # a heap; the consuming thread's
        self._order = itertools.count()
        self.held_by: Callable[[], bool] = bool  # returns whether to take nothing more
        self.rates: dict[str, Rate] = {}  # by the task's name
        self._freed: list[Job] = []  # of the SLOWED, those whose rate limit was lifted

    def expect(self, tasks: Iterable[Task]) -> None:
        """Prepare for messages of `tasks`."""
        with self._lock:
            for task in tasks:
                self._busy.setdefault(place_of(task), 0)
                per_s = per_second(task.options.rate_limit)
                if per_s is not None:
                    self.rates.setdefault(task.name, Rate(per_s))

    def limit_rate(self, task: str, per_s: float | None) -> None:
        """Limit how often a second `task` begins from now on; None: no limit."""
        with self._lock:
            rate = self.rates.get(task)
            if rate is not None and per_s is not None:
                rate.change(per_s, now_s=self._clock.now_s())
            elif rate is not None:
                del self.rates[task]
                self._freed += rate.waiting
            elif per_s is not None:
                self.rates[task] = Rate(per_s)

    def postpone_s(self, task: str) -> float | None:
        """Return in how long one more of `task` should be delivered; None to take it now."""
        with self._lock:
            rate = self.rates.get(task)
            if rate is None or not rate.is_full():
                return None
            return rate.later_s(self._clock.now_s())

    def grow(self, by: int) -> None:
        """A pool runs `by` more jobs at once, or fewer."""
        with self._lock:
            if self._fixed is not None:
                self._fixed = max(1, self._fixed + by)
            self._adaptive.grow(by)

    def take(self, job: Job, *, wait_s: float) -> bool:
        """Add `job`; return whether it may run now. Otherwise `due` returns it in `wait_s`."""
        with self._lock:
            self._jobs[job.delivery.tag] = job
            if wait_s <= 0.0:
                return self._may_run(job)
            self._enter(job, Phase.SCHEDULED)
        heapq.heappush(self._waiting, (self._clock.now_s() + wait_s, next(self._order), job))
        return False

    def due(self) -> list[Job]:
        """Return the jobs whose time has come, in that order, once."""
        if not self._waiting and not self._counts[Phase.SLOWED]:
            return []
        ready: list[Job] = []
        with self._lock:
            while self._waiting and self._waiting[0][0] <= self._clock.now_s():
                job = heapq.heappop(self._waiting)[2]
                # If it was not lost meanwhile, and its rate allows it.
                if job.phase is Phase.SCHEDULED and self._may_run(job):
                    ready.append(job)
            return ready + self._released()

    def overdue(self) -> list[Job]:
        """Return the jobs that have waited too long for a full pool, in the order they came.

        They are returned again when they have waited as long once more.
        """
        if not self._full_s:
            return []
        with self._lock:
            now_s = self._clock.now_s()
            full = {place for place, since_s in self._full_s.items() if now_s - since_s >= FULL_S}
            self._full_s.update(dict.fromkeys(full, now_s))
            return [
                job
                for job in self._jobs.values()
                if job.place in full and job.phase is Phase.COUNTED and job.stage is Stage.WAITING
            ]

    def hold(self, place: Place) -> None:
        """Take no more for this pool than it runs at once, until one of its jobs ends."""
        with self._lock:
            self._held.add(place)

    def patience_s(self, longest_s: float) -> float:
        """Return how long to block: `longest_s`, or until the next job is due, or overdue."""
        if not self._waiting and not self._counts[Phase.SLOWED] and not self._full_s:
            return longest_s
        next_s = [self._waiting[0][0]] if self._waiting else []
        with self._lock:
            if self._freed:
                return 0.0
            next_s += [rate.next_s for rate in self.rates.values() if rate.waiting]
            next_s += [since_s + FULL_S for since_s in self._full_s.values()]
        return min((longest_s, *(max(0.0, one - self._clock.now_s()) for one in next_s)))

    def room(self) -> int:
        """Return how many may be taken; 0 while the worker stops."""
        with self._lock:
            return self._room()

    def limit(self) -> int:
        """Return how many may be in flight at once, with those that wait for their time."""
        with self._lock:
            prefetch = self._prefetch()
            apart = len(self._jobs) - self._counts[Phase.COUNTED]
        return max(prefetch.values()) * min(2, len(prefetch)) + apart

    def is_scheduled(self, job: Job) -> bool:
        """Return whether `job` is in flight and waits for its time."""
        return job.phase is Phase.SCHEDULED

    def waiting(self) -> int:
        """Return how many wait for their time, or for their task's rate."""
        return self._counts[Phase.SCHEDULED] + self._counts[Phase.SLOWED]

    def wait_for_room(self, timeout_s: float) -> bool:
        """Wait until one more may be taken, or the worker stops; return whether it may."""
        with self._changed:
            self._changed.wait_for(lambda: self._room() or self._stopping.is_set(), timeout_s)
            return self._room() > 0

    def ran(self, job: Job) -> None:
        """`job` has run, and its result waits for a commit."""
        with self._changed:
            if self._counts[Phase.WRITING] < MOST_WRITING and job.phase is Phase.COUNTED:
                self._enter(job, Phase.WRITING)
                self._changed.notify_all()

    def release(self, *jobs: Job) -> None:
        """The jobs are completed, or requeued."""
        with self._changed:
            for job in jobs:
                self._jobs.pop(job.delivery.tag, None)
                if job.phase is Phase.SLOWED:  # it is lost, requeued or revoked
                    rate = self.rates.get(job.task.name)
                    for waiting in (self._freed, *([rate.waiting] if rate else [])):
                        with contextlib.suppress(ValueError):
                            waiting.remove(job)
                self._enter(job, None)
            self._adaptive.ended(len(jobs))
            self._changed.notify_all()

    def lose(self, tag: str) -> Job | None:
        """Another worker has this delivery now: its job's end is refused. Returns the job."""
        job = self._jobs.get(tag)
        if job is not None:
            job.lose()
            if job.withdraw():
                self.release(job)
        return job

    def nudge(self) -> None:
        """Have every waiting thread check again."""
        with self._changed:
            self._changed.notify_all()

    def tags(self) -> list[str]:
        with self._lock:
            return list(self._jobs)

    def jobs(self) -> list[Job]:
        """Return what is in flight, in the order it was taken."""
        with self._lock:
            return list(self._jobs.values())

    def wait_empty(self, timeout_s: float | None, *, unless: Callable[[], bool]) -> None:
        """Return when nothing is in flight, `unless` is true at a nudge, or after `timeout_s`.

        The main thread wakes each LOOK_S, to run the handler of a signal that another thread got.
        """
        left_s = math.inf if timeout_s is None else timeout_s
        with self._changed:
            while not self._changed.wait_for(
                lambda: not self._jobs or unless(), timeout=min(left_s, LOOK_S)
            ):
                left_s -= LOOK_S
                if left_s <= 0:
                    return

    def _enter(self, job: Job, phase: Phase | None) -> None:
        """Count `job` in `phase`, and no longer where it was. None: it is not in flight."""
        before, job.phase = job.phase, phase
        for one, change in ((before, -1), (phase, 1)):
            if one is not None:
                self._counts[one] += change
            if one is Phase.COUNTED:
                self._busy[job.place] = self._busy.get(job.place, 0) + change
                self._mind(job.place, ended=change < 0)

    def _mind(self, place: Place, *, ended: bool) -> None:
        """Note since when jobs wait for this pool."""
        slots = self._slots(place)
        if not 0 < slots < self._busy[place]:
            self._full_s.pop(place, None)
        elif ended or place not in self._full_s:
            self._full_s[place] = self._clock.now_s()
        if ended:
            self._held.discard(place)

    def _room(self) -> int:
        if self._stopping.is_set() or self.held_by():
            return 0
        prefetch = self._prefetch()
        shares = [most - self._busy.get(place, 0) for place, most in prefetch.items()]
        most = max(shares)
        if len(shares) > 1:
            over = sum(share for share in shares if share < 0)
            most = min(most, max(prefetch.values()) + over)
        return max(0, min(most, MOST_SLOWED - self._counts[Phase.SLOWED]))

    def _may_run(self, job: Job) -> bool:
        """Count `job` as running, or have it wait for its task's rate."""
        rate = self.rates.get(job.task.name) if self.rates else None
        if rate is None or (not rate.waiting and rate.take(self._clock.now_s())):
            self._enter(job, Phase.COUNTED)
            return True
        rate.waiting.append(job)
        self._enter(job, Phase.SLOWED)
        return False

    def _released(self) -> list[Job]:
        """Return the jobs that their task's rate allows now."""
        now_s, released = self._clock.now_s(), self._freed
        self._freed = []
        for rate in self.rates.values():
            while rate.waiting and rate.take(now_s, has_waited=True):
                released.append(rate.waiting.popleft())
        for job in released:
            self._enter(job, Phase.COUNTED)
        return released

    def _prefetch(self) -> dict[Place, int]:
        """Return how many jobs of each pool; never empty."""
        places = self._busy or (Place.THREAD,)
        if self._fixed is not None:
            prefetch = dict.fromkeys(places, self._fixed)
        else:
            ahead = self._adaptive.limit()
            prefetch = {place: max(ahead, self._slots(place)) for place in places}
        for place in self._held:
            prefetch[place] = self._slots(place)
        return prefetch
