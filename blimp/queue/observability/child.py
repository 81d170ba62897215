"""What a child process is told about being watched, and heeds while it runs a task."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.queue.extensions import ChildExtension
from blimp.queue.observability.options import TraceSettings

if TYPE_CHECKING:
    from blimp.queue.observability.json_log import JsonLogs
    from blimp.queue.observability.tracing import Tracer
    from blimp.queue.protocol.message import TaskMessage


class ChildWatching(msgspec.Struct, frozen=True, kw_only=True):
    """log_level: of its lines of JSON; "" for no such lines."""

    log_level: str = ""
    vehicle: str = ""
    worker: str = ""
    trace: TraceSettings = TraceSettings()
    service: str = ""

    def extension(self) -> ChildExtension:
        return ChildExtension(
            factory="blimp.queue.observability.child:ChildWatch",
            settings=msgspec.to_builtins(self),
        )


class ChildWatch:
    """The hook of observability in a child process; made with the settings of ChildWatching."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._watching = msgspec.convert(settings, ChildWatching)

    def around(self, message: TaskMessage) -> AbstractContextManager[object]:
        """Have what runs inside be watched, in a process that runs nothing else."""
        stack = contextlib.ExitStack()
        tracer = _tracer(self._watching)
        if tracer is not None:
            stack.enter_context(tracer.within(message))
        if self._watching.log_level:
            stack.enter_context(_logs(self._watching).bound(message))
        return stack

    def close(self) -> None:
        """Send the spans that wait to be sent."""
        tracer = _tracer(self._watching)
        if tracer is not None:
            tracer.close()


@cache
def _tracer(watching: ChildWatching) -> Tracer | None:
    from blimp.queue.observability.open_tracer import open_tracer

    tracer = open_tracer(watching.trace, service=watching.service)
    return None if isinstance(tracer, str) else tracer


@cache
def _logs(watching: ChildWatching) -> JsonLogs:
    from blimp.queue.observability.json_log import JsonLogs

    logs = JsonLogs(level=watching.log_level, vehicle=watching.vehicle)
    logs.worker = watching.worker
    logs.install()
    return logs
