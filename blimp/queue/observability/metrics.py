"""A worker's figures as Prometheus reads them, put together when it asks.

Prometheus metrics of the workers of one app, on a port of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from blimp.closing import Closing
from blimp.errors import ConfigError
from blimp.queue.observability.counters import Histogram, Tally
from blimp.queue.observability.http_server import PageServer
from blimp.queue.observability.options import LOOPBACK
from blimp.queue.observability.queue_figures import Figures, Queues
from blimp.queue.resources.pool import RELEASE_TASK
from blimp.queue.resources.pool_server import COUNTERS
from blimp.queue.worker.job import Stage
from blimp.queue.worker.pools import Place, place_of

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.worker.worker import Worker

# What the worker itself counts: its name there, the metric's, and its meaning.
COUNTS = (
    ("reconnects", "blimp_worker_reconnects", "Times the broker was lost and come back to"),
    ("leases_lost", "blimp_worker_leases_lost", "Messages that others took from this worker"),
    ("restored", "blimp_worker_restored", "Messages taken back that this name had in hand before"),
    ("given_back", "blimp_worker_given_back", "Messages put back, not begun, in a stop"),
    ("cut_off", "blimp_worker_cut_off", "Tasks cut off in a stop that would not wait"),
    ("events_dropped", "blimp_worker_events_dropped", "Events that could not be sent"),
)
PLACES = {Place.LOOP: "loop", Place.THREAD: "thread", Place.PROCESS: "process"}
TASK, TASK_STATE = ("task",), ("task", "state")


class WorkerCollector:
    """Yields the metrics of one worker, and of the queues it consumes.

    A part that fails is left out; the others are told all the same.
    """

    def __init__(self, *, worker: Worker, tally: Tally, queues: Queues) -> None:
        self._worker = worker
        self._tally = tally
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        for part in (self._tasks, self._work, self._broker, self._pools):
            try:
                yield from list(part())
            except Exception as error:
                failed = GaugeMetricFamily(
                    "blimp_worker_figures_missing", "A part that cannot be told", labels=("why",)
                )
                failed.add_metric([type(error).__name__], 1.0)
                yield failed

    def describe(self) -> Iterable[Metric]:
        """Nothing: it would ask the broker."""
        return ()

    def _tasks(self) -> Iterator[Metric]:
        totals = self._tally.totals()
        for name, meaning, found in (
            ("received", "Tasks taken from the broker", totals.received),
            ("started", "Tasks whose function was called", totals.started),
            ("redelivered", "Tasks that came again unasked", totals.redelivered),
            ("dead", "Tasks made dead letters by what they ended with", totals.dead),
        ):
            family = CounterMetricFamily(f"blimp_tasks_{name}", meaning, labels=TASK)
            for task, count in found.items():
                family.add_metric([task], count)
            yield family
        ended = CounterMetricFamily("blimp_tasks_ended", "Tasks by their end", labels=TASK_STATE)
        for labels, count in totals.ended.items():
            ended.add_metric(labels, count)
        yield ended
        retries = CounterMetricFamily(
            "blimp_tasks_retries", "Tasks that are to run again", labels=TASK
        )
        for (task, state), count in totals.ended.items():
            if state == "RETRY":
                retries.add_metric([task], count)
        yield retries
        yield _histogram(
            "blimp_tasks_latency_seconds",
            "From when a task was due to its beginning, on the broker's clock",
            totals.latencies,
        )
        yield _histogram(
            "blimp_tasks_runtime_seconds", "How long its function ran", totals.runtimes
        )
        away = CounterMetricFamily(
            "blimp_tasks_turned_away", "Messages that could not be run", labels=("reason",)
        )
        for reason in ("unknown_task", "unreadable"):
            away.add_metric([reason], self._worker.counts[reason])
        yield away

    def _work(self) -> Iterator[Metric]:
        worker = self._worker
        for key, name, meaning in COUNTS:
            yield CounterMetricFamily(name, meaning, value=worker.counts[key])
        jobs = worker.jobs()
        yield GaugeMetricFamily(
            "blimp_worker_tasks_in_hand", "Messages taken and not settled", value=len(jobs)
        )
        busy = Counter(place_of(job.task) for job in jobs if job.stage is Stage.RUNNING)
        sizes = worker.sizes
        size_of = {
            Place.LOOP: sizes.loop_workers * sizes.loop_concurrency,
            Place.THREAD: sizes.sync_workers,
            Place.PROCESS: sizes.process_workers,
        }
        size = GaugeMetricFamily(
            "blimp_worker_executor_size", "Tasks that run at once", labels=("executor",)
        )
        running = GaugeMetricFamily(
            "blimp_worker_executor_busy", "Tasks that run now", labels=("executor",)
        )
        for place, label in PLACES.items():
            size.add_metric([label], size_of[place])
            running.add_metric([label], busy[place])
        yield size
        yield running

    def _broker(self) -> Iterator[Metric]:
        figures = self._queues.read(self._worker.queues)
        self._tally.hear(figures)
        yield GaugeMetricFamily(
            "blimp_broker_up", "Whether the broker answered just now", value=float(figures.is_up)
        )
        if figures.is_up:
            yield from _queues(figures)

    def _pools(self) -> Iterator[Metric]:
        app = self._worker.app
        if RELEASE_TASK not in app.tasks or not self._queues.read(self._worker.queues).is_up:
            return
        found = [self._queues.pool(name) for name in app.pools]
        resources = GaugeMetricFamily(
            "blimp_pool_resources", "Resources by state", labels=("pool", "state")
        )
        waiting = GaugeMetricFamily(
            "blimp_pool_waiting", "Holders that wait for one", labels=("pool",)
        )
        for stats in found:
            resources.add_metric([stats.name, "free"], len(stats.free))
            resources.add_metric([stats.name, "busy"], len(stats.busy))
            waiting.add_metric([stats.name], len(stats.waiting))
        yield resources
        yield waiting
        for counter in sorted(COUNTERS - {"token"}):
            family = CounterMetricFamily(
                f"blimp_pool_{counter}", f"Of a pool: {counter}", labels=("pool",)
            )
            for stats in found:
                family.add_metric([stats.name], getattr(stats, counter))
            yield family


def _queues(figures: Figures) -> Iterator[Metric]:
    messages = GaugeMetricFamily(
        "blimp_queue_messages",
        "Messages that wait (ready) and that some worker has (in_flight)",
        labels=("queue", "lane", "state"),
    )
    age = GaugeMetricFamily(
        "blimp_queue_oldest_message_age_seconds",
        "Age of the oldest that waits; absent where none does",
        labels=("queue", "lane"),
    )
    for one in figures.lanes:
        for state, count in (("ready", one.ready), ("in_flight", one.in_flight)):
            if count is not None:
                messages.add_metric([one.queue, one.lane, state], count)
        if one.oldest_age_s is not None:
            age.add_metric([one.queue, one.lane], one.oldest_age_s)
    yield messages
    yield age
    for name, meaning, found in (
        ("scheduled_messages", "Messages whose time has not come", figures.scheduled),
        ("dead_letters", "Messages that were given up", figures.dead),
    ):
        family = GaugeMetricFamily(f"blimp_queue_{name}", meaning, labels=("queue",))
        for queue, count in found.items():
            family.add_metric([queue], count)
        yield family


def _histogram(name: str, meaning: str, found: Mapping[Any, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, meaning, labels=TASK_STATE)
    for labels, one in found.items():
        family.add_metric(labels, one.buckets(), one.sum_s)
    return family


MOST_PORT = 65_535


class Metrics(Closing):
    """Serves the metrics of the app's next worker at http://ADDRESS:PORT/metrics.

        with app, Metrics(app, port=9464):
            Worker(app=app).run()

    Made before the worker; a context manager; close is idempotent. port: 0 for any that is
    free. Raises ConfigError where the port is taken, or the extra `metrics` is not installed.
    """

    def __init__(self, app: TaskApp, *, port: int, address: str = LOOPBACK) -> None:
        try:
            from prometheus_client import CollectorRegistry, ProcessCollector
        except ImportError as error:
            raise ConfigError(
                f"metrics need prometheus-client: pip install 'blimp[metrics]' ({error})"
            ) from error
        if not 0 <= port <= MOST_PORT:
            raise ConfigError(f"metrics port {port}: must be from 0 to {MOST_PORT}")
        self._app = app
        self._tally = Tally()
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._queues: Queues | None = None
        self._server = PageServer(
            page=self._page, address=address, port=port, on_start=self._learn_clock
        )
        app.extend(self._watch)
        self._is_closed = False

    @property
    def port(self) -> int:
        return self._server.port

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._app.extensions.remove(self._watch)
        self._server.close()
        if self._queues is not None:
            self._queues.close()

    def _watch(self, worker: Worker) -> Tally:
        from blimp.queue.observability.metrics import WorkerCollector

        if self._queues is not None:
            raise ConfigError("metrics of one worker are served already: give each a port")
        self._queues = Queues(self._app)
        self._registry.register(
            WorkerCollector(worker=worker, tally=self._tally, queues=self._queues)
        )
        self._server.start()
        return self._tally

    def _learn_clock(self) -> None:
        assert self._queues is not None
        self._tally.hear(self._queues.read(()))

    def _page(self, accept: str) -> tuple[str, bytes]:
        from prometheus_client.exposition import choose_encoder

        encode: Any
        encode, kind = choose_encoder(accept)
        return kind, encode(self._registry)
