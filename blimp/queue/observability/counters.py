"""What has become of a worker's tasks, counted as it happens. As little as can be per task."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from blimp.queue.extensions import Extension

if TYPE_CHECKING:
    from blimp.queue.observability.queue_figures import Figures
    from blimp.queue.protocol.outcome import Outcome
    from blimp.queue.worker.job import Job

BOUNDS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0, 300.0, 1800.0,
)  # fmt: skip
RETRY = "RETRY"


class Histogram:
    """How many values are in each class of BOUNDS_S, the last one without a bound."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, value_s: float) -> None:
        self.counts[bisect_left(BOUNDS_S, value_s)] += 1
        self.sum_s += value_s

    def copy(self) -> Histogram:
        found = Histogram()
        found.counts, found.sum_s = list(self.counts), self.sum_s
        return found

    def buckets(self) -> list[tuple[str, float]]:
        """Return the counts as Prometheus has them: each with all that are below."""
        total, found = 0, []
        for bound, count in zip((*map(repr, BOUNDS_S), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """By task, or by task and state."""

    received: dict[str, int]
    redelivered: dict[str, int]
    started: dict[str, int]
    dead: dict[str, int]
    ended: dict[tuple[str, str], int]
    runtimes: dict[tuple[str, str], Histogram]
    latencies: dict[tuple[str, str], Histogram]


class Tally(Extension):
    """Counts by task, and by state; both are few: only tasks that the app has become jobs.

    broker_ahead_s: what is to be added to this machine's monotonic clock to have the broker's;
        None where the broker has not said yet: latencies are not counted then.
    """

    def __init__(self) -> None:
        self.broker_ahead_s: float | None = None
        self._lock = threading.Lock()
        self._received: Counter[str] = Counter()
        self._redelivered: Counter[str] = Counter()
        self._started: Counter[str] = Counter()
        self._dead: Counter[str] = Counter()
        self._ended: Counter[tuple[str, str]] = Counter()
        self._runtimes: dict[tuple[str, str], Histogram] = {}
        self._latencies: dict[tuple[str, str], Histogram] = {}

    # --- hooks of a job ---------------------------------------------------------------------

    def received(self, job: Job) -> None:
        name, message = job.task.name, job.message
        with self._lock:
            self._received[name] += 1
            if message.delivery - message.retries > 1:
                self._redelivered[name] += 1

    def started(self, job: Job) -> None:
        with self._lock:
            self._started[job.task.name] += 1

    def finished(self, job: Job, outcome: Outcome) -> None:
        if outcome.requeue or outcome.again_in_s is not None or outcome.replacement:
            return  # it has not ended: it comes again
        state = outcome.state.value if outcome.retry_in_s is None else RETRY
        key = (job.task.name, state)
        started_s, ended_s = job.started_s, job.ended_s
        with self._lock:
            self._ended[key] += 1
            if outcome.dead:
                self._dead[job.task.name] += 1
            if started_s is None:
                return
            if ended_s is not None:
                _histogram(self._runtimes, key).add(ended_s - started_s)
            if self.broker_ahead_s is not None and job.message.issued_ms is not None:
                due_s = max(job.message.issued_ms / 1000.0, job.message.eta_s or 0.0)
                waited_s = started_s + self.broker_ahead_s - due_s
                _histogram(self._latencies, key).add(max(0.0, waited_s))

    def hear(self, figures: Figures) -> None:
        """Learn the broker's clock from an answer of its own."""
        if figures.now_s is not None:
            self.broker_ahead_s = figures.now_s - figures.asked_s

    # --- for who reads ------------------------------------------------------------------------

    def totals(self) -> Totals:
        """Return what stands now. Any thread."""
        with self._lock:
            return Totals(
                received=dict(self._received),
                redelivered=dict(self._redelivered),
                started=dict(self._started),
                dead=dict(self._dead),
                ended=dict(self._ended),
                runtimes={key: one.copy() for key, one in self._runtimes.items()},
                latencies={key: one.copy() for key, one in self._latencies.items()},
            )


def _histogram(table: dict[tuple[str, str], Histogram], key: tuple[str, str]) -> Histogram:
    found = table.get(key)
    if found is None:
        found = table[key] = Histogram()
    return found
