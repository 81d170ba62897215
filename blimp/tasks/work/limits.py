"""Time limits: soft, which a task hears of, and hard, which ends it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from blimp.tasks.work.alarms import Alarm, Alarms
    from blimp.tasks.work.job import Job

TO_END_S = 1.0  # what was cancelled or killed has so long to be gone; then it is stuck


class TimeLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from where the function is called; None for no limit."""

    soft_s: float | None
    hard_s: float | None


def limit_of(job: Job) -> TimeLimit | None:
    """Return the limits of `job`, None for none. The message's own come first."""
    hard_s, soft_s = job.message.timelimit
    options = job.task.options
    hard_s = hard_s or options.time_limit
    soft_s = soft_s or options.soft_time_limit
    return TimeLimit(soft_s=soft_s, hard_s=hard_s) if hard_s or soft_s else None


class Limits:
    """Watches the functions that have limits.

    on_stuck: called with a job that went past its hard limit and cannot be ended: a plain
        function in a thread, or a coroutine that does not heed its cancellation.
    """

    def __init__(self, *, alarms: Alarms, on_stuck: Callable[[Job], None]) -> None:
        self._alarms = alarms
        self._on_stuck = on_stuck

    @contextlib.contextmanager
    def watch(self, job: Job, limit: TimeLimit) -> Iterator[None]:
        watched = _Watched(self._alarms)
        assert job.call is not None
        if limit.soft_s is not None:
            watched.add(limit.soft_s, job.call.interrupt)
        if limit.hard_s is not None:
            watched.add(limit.hard_s, partial(self._end, job, limit.hard_s, watched))
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
    """The alarms of one call. Once it was left no more are set."""

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
            alarm.cancel()
