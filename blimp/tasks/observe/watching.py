"""How a worker is watched, and having it watched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from blimp.tasks.observe.child import ChildWatching

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp

LOOPBACK = "127.0.0.1"
LOG_FORMATS = ("text", "json")
LogFormat = Literal["text", "json"]


class Watching(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is watched; by default not at all.

    metrics_port: where Prometheus metrics are served, None for nowhere, 0 for any that is free.
    log_format: of what it writes on standard error. vehicle: told in every line, "" for none.
    """

    metrics_port: int | None = None
    metrics_address: str = LOOPBACK
    log_format: LogFormat = "text"
    vehicle: str = ""


@contextlib.contextmanager
def watched(app: TaskApp, watching: Watching) -> Iterator[None]:
    """Have the app's next worker, made inside, be watched.

    Raises ConfigError where the port is taken, or an extra that is asked for is not installed.
    """
    with contextlib.ExitStack() as stack:
        if watching.metrics_port is not None:
            from blimp.tasks.observe.metrics import Metrics

            stack.enter_context(
                Metrics(app, port=watching.metrics_port, address=watching.metrics_address)
            )
        if watching.log_format == "json":
            stack.enter_context(_json_logs(app, watching))
        yield


@contextlib.contextmanager
def _json_logs(app: TaskApp, watching: Watching) -> Iterator[None]:
    from blimp.tasks.observe.json_log import JsonLogs

    logs = JsonLogs(level=app.log_level, vehicle=watching.vehicle)

    def make(**bound: Any) -> Any:
        log = logs.make(**bound)
        app.child_watching = ChildWatching(
            log_level=app.log_level, vehicle=logs.vehicle, worker=logs.worker
        )
        return log

    before = app.make_log, app.middleware, app.child_watching
    logs.install()
    app.make_log, app.middleware = make, (logs.middleware, *app.middleware)
    try:
        yield
    finally:
        logs.uninstall()
        app.make_log, app.middleware, app.child_watching = before
