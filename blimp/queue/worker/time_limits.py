"""Time limits: a soft one raises in the task, a hard one ends it. One thread keeps the alarms."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.worker.job import Job

LONGEST_S = 3600.0  # of one sleep: the system refuses centuries
MANY = 64  # cancelled alarms that may stay before they are removed


Alarm = list[Any]  # [when it is due, its number, its action], the action None once cancelled


class Alarms:
    """Runs actions in one thread, in order of time: they must be short, and must not raise.

    The thread starts with the first alarm, and sleeps while there is none.
    """

    def __init__(self, *, clock: Clock, log: Any) -> None:
        self._clock = clock
        self._log = log
        self._changed = threading.Condition()
        self._heap: list[Alarm] = []
        self._order = itertools.count()
        self._cancelled = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def set(self, after_s: float, action: Callable[[], object]) -> Alarm:
        alarm = [self._clock.now_s() + after_s, next(self._order), action]
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._serve, name="alarms", daemon=True)
                self._thread.start()
            heapq.heappush(self._heap, alarm)
            if self._heap[0] is alarm:
                self._changed.notify()
        return alarm

    def cancel(self, alarm: Alarm) -> None:
        """Drop its action, which may be under way just now. Idempotent; any thread."""
        with self._changed:
            if alarm[2] is None:
                return
            alarm[2] = None
            self._cancelled += 1
            if self._cancelled > max(MANY, len(self._heap) // 2):
                self._heap = [one for one in self._heap if one[2] is not None]
                heapq.heapify(self._heap)
                self._cancelled = 0

    def close(self) -> None:
        """Run no further action. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)

    def _serve(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except BaseException:  # of any kind: without this thread no limit holds
                self._log.exception("alarm")

    def _next(self) -> Callable[[], object] | None:
        """Wait for the next action to be due; None once closed."""
        with self._changed:
            while not self._closed:
                left_s = self._heap[0][0] - self._clock.now_s() if self._heap else None
                if left_s is None or left_s > 0.0:
                    self._changed.wait(timeout=left_s and min(left_s, LONGEST_S))
                    continue
                alarm = heapq.heappop(self._heap)
                action: Callable[[], object] | None = alarm[2]
                alarm[2] = None  # too late to cancel it
                if action is not None:
                    return action
                self._cancelled -= 1
        return None


TO_END_S = 1.0  # a cancelled or killed function that still runs then is stuck


def limits_of(job: Job) -> tuple[float | None, float | None]:
    """Return the hard and the soft limit of `job`, s, None for none. The message's come first."""
    hard_s, soft_s = job.message.timelimit
    return hard_s or job.task.options.time_limit, soft_s or job.task.options.soft_time_limit


class Limits:
    """Watches the functions that have limits.

    on_stuck: called with a job past its hard limit that cannot be ended: a plain function in
        a thread, or a coroutine that ignores its cancellation.
    """

    def __init__(self, *, alarms: Alarms, on_stuck: Callable[[Job], None]) -> None:
        self._alarms = alarms
        self._on_stuck = on_stuck

    @contextlib.contextmanager
    def watch(self, job: Job, *, hard_s: float | None, soft_s: float | None) -> Iterator[None]:
        watched = _Watched(self._alarms)
        assert job.call is not None
        if soft_s:
            watched.add(soft_s, job.call.interrupt)
        if hard_s:
            watched.add(hard_s, partial(self._end, job, hard_s, watched))
        try:
            yield
        finally:
            watched.leave()

    def _end(self, job: Job, hard_s: float, watched: _Watched) -> None:
        assert job.call is not None
        job.timed_out_s = hard_s
        if job.call.cancel():
            watched.add(TO_END_S, partial(self._on_stuck, job))
        else:
            self._on_stuck(job)


class _Watched:
    """The alarms of one call. After `leave` no more are set."""

    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms
        self._lock = threading.Lock()
        self._set: list[Alarm] | None = []

    def add(self, after_s: float, action: Callable[[], object]) -> None:
        with self._lock:
            if self._set is not None:
                self._set.append(self._alarms.set(after_s, action))

    def leave(self) -> None:
        with self._lock:
            alarms, self._set = self._set, None
        for alarm in alarms or ():
            self._alarms.cancel(alarm)
