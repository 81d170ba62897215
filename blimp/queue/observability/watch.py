"""Metrics, JSON logs and traces for an app's next worker, and for its child processes.

Tested by test_log_json.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.queue.extensions import ChildExtension, Extension
from blimp.queue.log import JsonLogs
from blimp.queue.observability import open_tracer
from blimp.queue.observability.settings import TraceSettings, Watching
from blimp.reading import ready

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.observability.tracing import Tracer
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.protocol.record import Outcome
    from blimp.queue.worker.job import CallNext, Job
    from blimp.queue.worker.worker import Worker

# What is not asked for is not imported: metrics 22 ms and 2 MB, traces 120 ms and 3 MB.


@contextlib.contextmanager
def watched(app: TaskApp, watching: Watching) -> Iterator[None]:
    """Have the app's next worker, made inside, be watched.

    Raises ConfigError for a port that is taken, or an extra that is not installed.
    """
    changed = ("make_log", "tracer", "outer_middleware", "child_extension")
    before = {name: getattr(app, name) for name in changed}
    with contextlib.ExitStack() as stack:
        for name, value in before.items():
            stack.callback(setattr, app, name, value)
        if watching.metrics_port is not None:
            from blimp.queue.observability.metrics import Metrics

            address = watching.metrics_address
            stack.enter_context(Metrics(app, port=watching.metrics_port, address=address))
        child = ChildSettings(trace=watching.trace, service=app.name)
        if watching.log_format == "json":
            _write_json(app, child, vehicle=watching.vehicle, stack=stack)
        tracer = open_tracer(watching.trace, service=app.name)
        if not isinstance(tracer, str):
            _trace(app, child, tracer, stack=stack)  # last: outside of all other middleware
        elif tracer:
            app.make_log(level=app.log_level).warning("not traced", reason=tracer)
        yield


def _write_json(
    app: TaskApp, child: ChildSettings, *, vehicle: str, stack: contextlib.ExitStack
) -> None:
    logs = JsonLogs(level=app.log_level, vehicle=vehicle)

    def make(**bound: Any) -> Any:
        log = logs.make(**bound)
        own = {"log_level": app.log_level, "vehicle": vehicle, "worker": logs.worker}
        app.child_extension = msgspec.structs.replace(child, **own).extension()
        return log

    async def name_task(job: Job, call_next: CallNext) -> Outcome:
        with logs.bound(job.message):
            return await call_next(job)

    logs.install()
    stack.callback(logs.uninstall)
    app.make_log, app.outer_middleware = make, (name_task, *app.outer_middleware)


def _trace(
    app: TaskApp, child: ChildSettings, tracer: Tracer, *, stack: contextlib.ExitStack
) -> None:
    from blimp.queue.observability.tracing import TracedJobs

    class Flush(Extension):
        """Sends the spans that wait: a process that restarts itself has no other end."""

        def __init__(self, _: Worker) -> None: ...

        def stopped(self) -> None:
            tracer.flush()

    stack.enter_context(tracer)
    app.tracer = tracer
    app.outer_middleware = (TracedJobs(app=app, tracer=tracer), *app.outer_middleware)
    app.child_extension = app.child_extension or child.extension()
    app.extend(Flush)
    stack.callback(app.extensions.remove, Flush)


# --- child processes ------------------------------------------------------------------------


@ready
class ChildSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a child process does around each task. log_level: of its JSON lines; "" for none."""

    log_level: str = ""
    vehicle: str = ""
    worker: str = ""
    trace: TraceSettings = TraceSettings()
    service: str = ""

    def extension(self) -> ChildExtension:
        return ChildExtension(factory=f"{__name__}:ChildWatch", settings=msgspec.to_builtins(self))


class ChildWatch:
    """The ChildHook in a child process; made with ChildSettings as JSON."""

    def __init__(self, settings: dict[str, Any]) -> None:
        found = msgspec.convert(settings, ChildSettings)
        tracer = open_tracer(found.trace, service=found.service)
        self._tracer = None if isinstance(tracer, str) else tracer
        self._logs = None
        if found.log_level:
            self._logs = JsonLogs(level=found.log_level, vehicle=found.vehicle)
            self._logs.worker = found.worker
            self._logs.install()

    def around(self, message: TaskMessage) -> AbstractContextManager[object]:
        """Have what runs inside be watched, in a process that runs nothing else."""
        stack = contextlib.ExitStack()
        if self._tracer is not None:
            stack.enter_context(self._tracer.within(message))
        if self._logs is not None:
            stack.enter_context(self._logs.bound(message))
        return stack

    def close(self) -> None:
        """Send the spans that wait."""
        if self._tracer is not None:
            self._tracer.close()
