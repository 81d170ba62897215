"""How a worker is watched, and having it watched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from blimp.queue.extensions import Extension
from blimp.queue.observability.open_tracer import open_tracer
from blimp.queue.observability.options import Watching

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.observability.tracing import Tracer
    from blimp.queue.worker.worker import Worker


@contextlib.contextmanager
def watched(app: TaskApp, watching: Watching) -> Iterator[None]:
    """Have the app's next worker, made inside, be watched.

    Raises ConfigError where the port is taken, or an extra that is asked for is not installed.
    """
    with contextlib.ExitStack() as stack:
        if watching.metrics_port is not None:
            from blimp.queue.observability.metrics import Metrics

            stack.enter_context(
                Metrics(app, port=watching.metrics_port, address=watching.metrics_address)
            )
        if watching.log_format == "json":
            stack.enter_context(_json_logs(app, watching))
        stack.enter_context(_traced(app, watching))  # last: outside of all other middleware
        yield


@contextlib.contextmanager
def _traced(app: TaskApp, watching: Watching) -> Iterator[None]:
    tracer = open_tracer(watching.trace, service=app.name)
    if isinstance(tracer, str):
        if tracer:
            app.make_log(level=app.log_level).warning("not traced", reason=tracer)
        yield
        return
    from blimp.queue.observability.child import ChildWatching
    from blimp.queue.observability.traced_jobs import TracedJobs

    def make(_: Worker) -> Extension:
        return _Flush(tracer)

    before = app.tracer, app.outer_middleware, app.child_extension
    app.tracer = tracer
    app.outer_middleware = (TracedJobs(app=app, tracer=tracer), *app.outer_middleware)
    if app.child_extension is None:
        app.child_extension = ChildWatching(trace=watching.trace, service=app.name).extension()
    app.extend(make)
    try:
        yield
    finally:
        app.extensions.remove(make)
        app.tracer, app.outer_middleware, app.child_extension = before
        tracer.close()


@contextlib.contextmanager
def _json_logs(app: TaskApp, watching: Watching) -> Iterator[None]:
    from blimp.queue.observability.child import ChildWatching
    from blimp.queue.observability.json_log import JsonLogs

    logs = JsonLogs(level=app.log_level, vehicle=watching.vehicle)

    def make(**bound: Any) -> Any:
        log = logs.make(**bound)
        app.child_extension = ChildWatching(
            log_level=app.log_level,
            vehicle=logs.vehicle,
            worker=logs.worker,
            trace=watching.trace,
            service=app.name,
        ).extension()
        return log

    before = app.make_log, app.outer_middleware, app.child_extension
    logs.install()
    app.make_log, app.outer_middleware = make, (logs.middleware, *app.outer_middleware)
    try:
        yield
    finally:
        logs.uninstall()
        app.make_log, app.outer_middleware, app.child_extension = before


class _Flush(Extension):
    """Sends the spans that wait: a process that restarts itself has no other end."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def stopped(self) -> None:
        self._tracer.flush()
