"""A worker's Prometheus metrics, by prometheus-client, served on a port of their own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter as Count
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from blimp.closing import Closing
from blimp.distribution import needing
from blimp.errors import ConfigError, LinkError
from blimp.queue.brokers.streams.store import SCRIPTS
from blimp.queue.extensions import Extension
from blimp.queue.redis.client import open_redis
from blimp.queue.redis.keys import GROUP, LEVELS, NOBODY, Keys
from blimp.queue.resources.pool import RELEASE_TASK, ResourcePool
from blimp.queue.resources.pool_server import COUNTERS
from blimp.queue.watching import LOOPBACK
from blimp.queue.worker.job import Place, Stage, place_of

with needing("metrics", "metrics need"):
    from prometheus_client import (
        CollectorRegistry,
        Counter,
        Histogram,
        ProcessCollector,
        make_wsgi_app,
    )
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.record import Outcome
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.worker import Worker

BOUNDS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0, 300.0, 1800.0,
)  # fmt: skip
DEADLINE_S = 0.5  # for the broker's answer
FRESH_S = 0.5  # the broker is asked no oftener, however many scrapers ask
PRIORITIES = ("emergency", "high", "normal", "low")  # a queue's streams, in order
CLOCK_BEATS = 30  # heartbeats between two looks at the broker's clock
COUNTS = {  # what the worker itself counts, and its meaning
    "reconnects": "Times the broker was lost and found again",
    "leases_lost": "Messages that other workers took over",
    "restored": "Messages that a worker of this name left in flight",
    "requeued": "Messages put back, not begun, in a stop",
    "cut_off": "Tasks interrupted by a cold stop",
    "events_dropped": "Events that could not be sent",
}
# What is read when a scraper asks: the metric's name, its meaning, its labels.
GAUGES = {
    "worker_metrics_missing": ("A part that failed", "why"),
    "worker_in_flight": ("Messages taken and not acknowledged",),
    "worker_pool_size": ("Tasks that fit at once", "pool"),
    "worker_pool_busy": ("Tasks that run now", "pool"),
    "broker_up": ("Whether the broker answered just now",),
    "broadcasts_heard": ("Whether an emergency broadcast would arrive",),
    "queue_messages": ("Ready, or in flight in a worker", "queue", "priority", "state"),
    "queue_oldest_message_age_seconds": ("Of those that are ready", "queue", "priority"),
    "queue_scheduled_messages": ("Messages whose ETA has not come", "queue"),
    "queue_dead_letters": ("Messages that will not be delivered again", "queue"),
    "pool_resources": ("Resources by state", "pool", "state"),
    "pool_waiting": ("Holders that wait for one", "pool"),
}
POOLS = {Place.LOOP: "loop", Place.THREAD: "thread", Place.PROCESS: "process"}
TASK, TASK_STATE = ("task",), ("task", "state")
RETRY = "RETRY"
# Chosen: a scraper sends its request at once, and Prometheus waits for 10 s.
READ_S = 1.0  # for a part of a request, and for a part of the answer
REQUEST_S = 2.0  # for all of it: a client that sends a byte now and then ends, too


class Metrics(Closing):
    """Serves the metrics of the app's next worker at http://ADDRESS:PORT/metrics.

        with app, Metrics(app, port=9464):
            Worker(app=app).run()

    Made before the worker; a context manager; close is idempotent. port: 0 takes any free port.
    Raises ConfigError for a port that is taken, or an address of another machine.
    """

    def __init__(self, app: TaskApp, *, port: int, address: str = LOOPBACK) -> None:
        self._app = app
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._collector: _Collector | None = None
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
        if self._collector is not None:
            self._collector.close()

    def _extend(self, worker: Worker) -> TaskMetrics:
        if self._collector is not None:
            raise ConfigError(
                "another worker of this process serves metrics already: give each its own port"
            )
        self._collector = _Collector(worker)
        metrics = TaskMetrics(worker, registry=self._registry)
        self._registry.register(self._collector)
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
            name = f"blimp_tasks_{name}_seconds"
            found = Histogram(name, meaning, TASK_STATE, buckets=BOUNDS_S, registry=registry)
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


class _Collector(Closing):
    """What is read when a scraper asks: the worker, its queues, its app's resource pools.

    The broker is asked on a connection of its own, for DEADLINE_S at most and no oftener than
    every FRESH_S. A part that fails is left out, and the others are shown.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._app = worker.app
        self._lock = threading.Lock()
        self._broker: list[Metric] = []
        self._asked_s = -FRESH_S
        self._client: Any = None
        self._url = ""

    def collect(self) -> Iterator[Metric]:
        yield from self._part(self._read_worker)
        with self._lock:
            now_s = self._app.clock.now_s()
            if now_s - self._asked_s >= FRESH_S:
                self._broker = [*self._read_broker()]
                self._asked_s = now_s
        yield from self._broker

    def describe(self) -> Iterable[Metric]:
        """Nothing: it would ask the broker."""
        return ()

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _part(self, read: Callable[[], Iterator[Metric]]) -> list[Metric]:
        try:
            return [*read()]
        except Exception as error:
            failed = _gauge("worker_metrics_missing")
            failed.add_metric([type(error).__name__], 1.0)
            return [failed]

    def _read_worker(self) -> Iterator[Metric]:
        worker = self._worker
        for name, meaning in COUNTS.items():
            yield CounterMetricFamily(f"blimp_worker_{name}", meaning, value=worker.counts[name])
        rejected = CounterMetricFamily(
            "blimp_worker_rejected", "Messages that could not be run", labels=("reason",)
        )
        for reason in ("unknown_task", "unreadable", "not_genuine", "copied"):
            rejected.add_metric([reason], worker.counts[reason])
        yield rejected
        heard = _gauge("broadcasts_heard")
        heard.add_metric([], float(not self._app.deaf()))
        yield heard
        jobs = worker.jobs()
        in_flight = _gauge("worker_in_flight")
        in_flight.add_metric([], len(jobs))
        yield in_flight
        running = Count(place_of(job.task) for job in jobs if job.stage is Stage.RUNNING)
        size, busy = _gauge("worker_pool_size"), _gauge("worker_pool_busy")
        for place, label in POOLS.items():
            size.add_metric([label], worker.sizes.slots(place))
            busy.add_metric([label], running[place])
        yield from (size, busy)

    def _read_broker(self) -> Iterator[Metric]:
        up = _gauge("broker_up")
        on_redis = self._app.capabilities.on_redis
        try:
            queues = [*(self._read_streams() if on_redis else self._read_kombu())]
        except Exception:  # of any broker's driver: the worker logs its own
            up.add_metric([], 0.0)
            yield up
            return
        up.add_metric([], 1.0)
        yield up
        yield from queues
        yield from self._part(self._read_pools)

    def _read_streams(self) -> Iterator[Metric]:
        if self._url != self._app.broker:
            self.close()
            self._url = self._app.broker
            self._client = open_redis(self._url, timeout_s=DEADLINE_S)
        queues = self._worker.queues
        keys = [Keys().queue(name) for name in queues]
        names = [key for one in keys for key in (*one.levels, one.later, one.dead, one.clock)]
        _, *found = SCRIPTS["levels"].run(self._client, names, [GROUP, NOBODY, LEVELS])
        messages, age = _gauge("queue_messages"), _gauge("queue_oldest_message_age_seconds")
        scheduled, dead = _gauge("queue_scheduled_messages"), _gauge("queue_dead_letters")
        for queue, (*each, later, letters, _) in zip(queues, found, strict=True):
            levels = zip(each[::3], each[1::3], each[2::3], strict=True)
            for priority, (ready, in_flight, age_ms) in zip(PRIORITIES, levels, strict=True):
                if ready < 0:
                    continue  # not a stream
                messages.add_metric([queue, priority, "ready"], ready)
                messages.add_metric([queue, priority, "in_flight"], in_flight)
                if age_ms >= 0:
                    age.add_metric([queue, priority], age_ms / 1000.0)
            for family, count in ((scheduled, later), (dead, letters)):
                if count >= 0:
                    family.add_metric([queue], count)
        yield from (messages, age, scheduled, dead)

    def _read_kombu(self) -> Iterator[Metric]:
        """Ask what every broker can say: how many messages wait, of any priority."""
        messages = _gauge("queue_messages")
        kind: Any = self._app.broker_kind  # a KombuBroker
        with kind.open_connection(self._app.broker, timeout_s=DEADLINE_S) as connection:
            connection.ensure_connection(max_retries=0, timeout=DEADLINE_S)
            for queue in self._worker.queues:
                with contextlib.suppress(connection.channel_errors):  # not declared yet
                    found = connection.channel().queue_declare(queue, passive=True)
                    messages.add_metric([queue, "all", "ready"], int(found.message_count))
        yield messages

    def _read_pools(self) -> Iterator[Metric]:
        app = self._app
        if RELEASE_TASK not in app.tasks:
            return
        if self._client is None:  # not on streams: the pools are on the results' server
            pools = [app.pools[name] for name in app.pools]
        else:
            pools = [ResourcePool(self._client, name, clock=app.clock) for name in app.pools]
        found = [pool.stats() for pool in pools]
        resources, waiting = _gauge("pool_resources"), _gauge("pool_waiting")
        for stats in found:
            resources.add_metric([stats.name, "free"], len(stats.free))
            resources.add_metric([stats.name, "busy"], len(stats.busy))
            waiting.add_metric([stats.name], len(stats.waiting))
        yield from (resources, waiting)
        for counter in sorted(COUNTERS - {"token"}):
            family = CounterMetricFamily(
                f"blimp_pool_{counter}", f"Grants of a pool: {counter}", labels=("pool",)
            )
            for stats in found:
                family.add_metric([stats.name], getattr(stats, counter))
            yield family


def _gauge(name: str) -> GaugeMetricFamily:
    meaning, *labels = GAUGES[name]
    return GaugeMetricFamily(f"blimp_{name}", meaning, labels=labels)


# --- the page --------------------------------------------------------------------------------


class _Server(WSGIServer):
    """wsgiref's, which answers one client after another, with limits on how long each takes.

    prometheus_client.start_http_server keeps a thread for each client that connects and sends
    nothing, and wakes twice a second (docs/decisions/0029).
    """

    request_queue_size = 16

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without a DNS query for this machine's name
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        end = threading.Timer(REQUEST_S, _hang_up, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request(request, client_address)
        finally:
            end.cancel()

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
