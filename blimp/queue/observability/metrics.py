"""A worker's Prometheus metrics, by prometheus-client, served on a port of their own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter as Count
from collections.abc import Iterable, Iterator
from functools import cache
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from blimp.closing import Closing
from blimp.errors import ConfigError, LinkError
from blimp.queue.extensions import Extension
from blimp.queue.observability.queue_stats import QueueReader, QueueStats
from blimp.queue.observability.settings import LOOPBACK
from blimp.queue.resources.pool import RELEASE_TASK
from blimp.queue.resources.pool_server import COUNTERS
from blimp.queue.worker.job import Place, Stage, place_of

try:
    from prometheus_client import (
        CollectorRegistry,
        Counter,
        Histogram,
        ProcessCollector,
        make_wsgi_app,
    )
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
except ImportError as error:
    raise ConfigError(
        f"metrics need prometheus-client: pip install 'blimp[metrics]' ({error})"
    ) from error

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.record import Outcome
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.worker import Worker

BOUNDS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0, 300.0, 1800.0,
)  # fmt: skip
CLOCK_BEATS = 30  # heartbeats between two looks at the broker's clock
# What the worker itself counts: its name there, the metric's, and its meaning.
COUNTS = (
    ("reconnects", "blimp_worker_reconnects", "Times the broker was lost and found again"),
    ("leases_lost", "blimp_worker_leases_lost", "Messages that other workers took over"),
    ("restored", "blimp_worker_restored", "Messages that a worker of this name left in flight"),
    ("requeued", "blimp_worker_requeued", "Messages put back, not begun, in a stop"),
    ("cut_off", "blimp_worker_cut_off", "Tasks interrupted by a cold stop"),
    ("events_dropped", "blimp_worker_events_dropped", "Events that could not be sent"),
)
POOLS = {Place.LOOP: "loop", Place.THREAD: "thread", Place.PROCESS: "process"}
TASK, TASK_STATE = ("task",), ("task", "state")
RETRY = "RETRY"
MAX_PORT = 65_535
MAX_REQUESTS = 4  # at once; further ones are closed
READ_S = 5.0  # for a part of a request, and for a part of the answer
REQUEST_S = 10.0  # for all of it: a client that sends a byte now and then ends, too


class Metrics(Closing):
    """Serves the metrics of the app's next worker at http://ADDRESS:PORT/metrics.

        with app, Metrics(app, port=9464):
            Worker(app=app).run()

    Made before the worker; a context manager; close is idempotent. port: 0 for any that is
    free. Raises ConfigError for a port that is taken, or an address of another machine.
    """

    def __init__(self, app: TaskApp, *, port: int, address: str = LOOPBACK) -> None:
        if not 0 <= port <= MAX_PORT:
            raise ConfigError(f"metrics port {port}: must be from 0 to {MAX_PORT}")
        self._app = app
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._queues: QueueReader | None = None
        self._server = _open_server(address, port)
        self._server.set_app(make_wsgi_app(self._registry))
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        app.extend(self._extend)
        self._is_closed = False

    @property
    def port(self) -> int:
        return self._server.server_port

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._app.extensions.remove(self._extend)
        with contextlib.suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the wait for a request
        if self._thread.is_alive():
            self._thread.join(timeout=READ_S)
        self._server.server_close()
        if self._queues is not None:
            self._queues.close()

    def _extend(self, worker: Worker) -> TaskMetrics:
        if self._queues is not None:
            raise ConfigError("metrics of one worker are served already: give each a port")
        self._queues = QueueReader(self._app)
        metrics = TaskMetrics(worker, registry=self._registry)
        self._registry.register(_WorkerCollector(worker, queues=self._queues))
        self._thread.start()
        return metrics

    def _serve(self) -> None:
        while not self._is_closed:  # `serve_forever` wakes twice a second
            self._server.handle_request()


class TaskMetrics(Extension):
    """Counts what becomes of tasks as it happens. Only tasks of the app make labels.

    The label sets are cached: prometheus-client's own look-up is most of what a count costs.
    """

    def __init__(self, worker: Worker, *, registry: CollectorRegistry) -> None:
        self._app = worker.app
        self._beats = 0
        # What is added to the app's clock to have the broker's; None until the broker answers.
        self._broker_ahead_s: float | None = None

        def counter(name: str, meaning: str, labels: tuple[str, ...] = TASK) -> Any:
            return cache(Counter(f"blimp_tasks_{name}", meaning, labels, registry=registry).labels)

        def histogram(name: str, meaning: str) -> Any:
            found = Histogram(
                f"blimp_tasks_{name}_seconds",
                meaning,
                TASK_STATE,
                buckets=BOUNDS_S,
                registry=registry,
            )
            return cache(found.labels)

        self._received = counter("received", "Tasks taken from the broker")
        self._started = counter("started", "Tasks whose function was called")
        self._redelivered = counter("redelivered", "Deliveries that no retry asked for")
        self._dead = counter("dead", "Tasks whose outcome made them dead letters")
        self._ended = counter("ended", "Tasks by their outcome", TASK_STATE)
        self._latency = histogram(
            "latency", "From when a task was due to its beginning, on the broker's clock"
        )
        self._runtime = histogram("runtime", "How long its function ran")

    def consuming(self) -> None:
        self._read_clock()

    def beat(self, alive: bool) -> None:
        self._beats += 1
        if alive and self._beats % CLOCK_BEATS == 0:
            with contextlib.suppress(LinkError):
                self._read_clock()

    def _read_clock(self) -> None:
        theirs_s = self._app.broker_clock.now_s()
        self._broker_ahead_s = theirs_s - self._app.clock.now_s()

    def received(self, job: Job) -> None:
        self._received(job.task.name).inc()
        if job.message.delivery - job.message.retries > 1:
            self._redelivered(job.task.name).inc()

    def started(self, job: Job) -> None:
        self._started(job.task.name).inc()

    def finished(self, job: Job, outcome: Outcome) -> None:
        if outcome.requeue or outcome.again_in_s is not None or outcome.replacement:
            return  # it has not ended: it comes again
        name, started_s, message = job.task.name, job.started_s, job.message
        state = outcome.state.value if outcome.retry_in_s is None else RETRY
        self._ended(name, state).inc()
        if outcome.dead:
            self._dead(name).inc()
        if started_s is None:
            return
        if job.ended_s is not None:
            self._runtime(name, state).observe(job.ended_s - started_s)
        if self._broker_ahead_s is not None and message.issued_ms is not None:
            due_s = max(message.issued_ms / 1000.0, message.eta_s or 0.0)
            waited_s = started_s + self._broker_ahead_s - due_s
            self._latency(name, state).observe(max(0.0, waited_s))


class _WorkerCollector:
    """What is read when a scraper asks: the worker, its queues, its app's resource pools.

    A part that fails is left out, and the others are shown.
    """

    def __init__(self, worker: Worker, *, queues: QueueReader) -> None:
        self._worker = worker
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        for part in (self._work, self._broker, self._resources):
            try:
                yield from list(part())
            except Exception as error:
                failed = GaugeMetricFamily(
                    "blimp_worker_metrics_missing", "A part that failed", labels=("why",)
                )
                failed.add_metric([type(error).__name__], 1.0)
                yield failed

    def describe(self) -> Iterable[Metric]:
        """Nothing: it would ask the broker."""
        return ()

    def _work(self) -> Iterator[Metric]:
        worker = self._worker
        for key, name, meaning in COUNTS:
            yield CounterMetricFamily(name, meaning, value=worker.counts[key])
        rejected = CounterMetricFamily(
            "blimp_worker_rejected", "Messages that could not be run", labels=("reason",)
        )
        for reason in ("unknown_task", "unreadable"):
            rejected.add_metric([reason], worker.counts[reason])
        yield rejected
        jobs = worker.jobs()
        yield GaugeMetricFamily(
            "blimp_worker_in_flight", "Messages taken and not acknowledged", value=len(jobs)
        )
        busy = Count(place_of(job.task) for job in jobs if job.stage is Stage.RUNNING)
        size = GaugeMetricFamily(
            "blimp_worker_pool_size", "Tasks that fit at once", labels=["pool"]
        )
        running = GaugeMetricFamily("blimp_worker_pool_busy", "Tasks that run now", labels=["pool"])
        for place, label in POOLS.items():
            size.add_metric([label], worker.sizes.slots(place))
            running.add_metric([label], busy[place])
        yield size
        yield running

    def _broker(self) -> Iterator[Metric]:
        stats = self._queues.read(self._worker.queues)
        yield GaugeMetricFamily(
            "blimp_broker_up", "Whether the broker answered just now", value=float(stats.is_up)
        )
        if stats.is_up:
            yield from _queue_metrics(stats)

    def _resources(self) -> Iterator[Metric]:
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
                f"blimp_pool_{counter}", f"Grants of a pool: {counter}", labels=("pool",)
            )
            for stats in found:
                family.add_metric([stats.name], getattr(stats, counter))
            yield family


def _queue_metrics(stats: QueueStats) -> Iterator[Metric]:
    messages = GaugeMetricFamily(
        "blimp_queue_messages",
        "Messages that wait (ready) and that a worker has (in_flight)",
        labels=("queue", "priority", "state"),
    )
    age = GaugeMetricFamily(
        "blimp_queue_oldest_message_age_seconds",
        "Age of the oldest that waits; absent if none waits",
        labels=("queue", "priority"),
    )
    for one in stats.streams:
        for state, count in (("ready", one.ready), ("in_flight", one.in_flight)):
            if count is not None:
                messages.add_metric([one.queue, one.priority, state], count)
        if one.oldest_age_s is not None:
            age.add_metric([one.queue, one.priority], one.oldest_age_s)
    yield messages
    yield age
    for name, meaning, found in (
        ("scheduled_messages", "Messages whose ETA has not come", stats.scheduled),
        ("dead_letters", "Messages that will not be delivered again", stats.dead),
    ):
        family = GaugeMetricFamily(f"blimp_queue_{name}", meaning, labels=("queue",))
        for queue, count in found.items():
            family.add_metric([queue], count)
        yield family


# --- the page --------------------------------------------------------------------------------


class _Server(ThreadingMixIn, WSGIServer):
    """wsgiref's, with limits: prometheus_client.start_http_server keeps a thread for each client
    that connects and sends nothing, and wakes twice a second (docs/decisions/0027)."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.BoundedSemaphore(MAX_REQUESTS)
        super().__init__(*arguments)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without a DNS query for this machine's name
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        end = threading.Timer(REQUEST_S, _hang_up, (request,))
        end.daemon = True
        try:
            end.start()
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: the client has closed its connection."""


class _Handler(WSGIRequestHandler):
    timeout = READ_S

    def log_message(self, *_: object) -> None:
        """Nothing: a line for each scrape helps nobody."""


def _open_server(address: str, port: int) -> _Server:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    kind = type("Server", (_Server,), {"address_family": family})
    try:
        server: _Server = kind((address, port), _Handler)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"metrics at {address}:{port}: {error}") from error
    return server


def _hang_up(request: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed
        request.shutdown(socket.SHUT_RDWR)
