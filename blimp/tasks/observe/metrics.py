"""Prometheus metrics of the workers of one app, on a port of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blimp.closing import Closing
from blimp.errors import ConfigError
from blimp.tasks.observe.queues import Queues
from blimp.tasks.observe.server import PageServer
from blimp.tasks.observe.settings import LOOPBACK
from blimp.tasks.observe.tally import Tally

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp
    from blimp.tasks.worker import Worker

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
        app.observers.append(self._watch)
        self._is_closed = False

    @property
    def port(self) -> int:
        return self._server.port

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._app.observers.remove(self._watch)
        self._server.close()
        if self._queues is not None:
            self._queues.close()

    def _watch(self, worker: Worker) -> Tally:
        from blimp.tasks.observe.collector import WorkerCollector

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
