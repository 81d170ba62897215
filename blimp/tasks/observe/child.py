"""What a child process is told about being watched, and heeds while it runs a task."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from blimp.tasks.message import TaskMessage
    from blimp.tasks.observe.json_log import JsonLogs


class ChildWatching(msgspec.Struct, frozen=True, kw_only=True):
    """log_level: of its lines of JSON; "" for no such lines."""

    log_level: str = ""
    vehicle: str = ""
    worker: str = ""


def in_child(
    watching: ChildWatching | None, message: TaskMessage
) -> AbstractContextManager[object]:
    """Have what runs inside be watched, in a process that runs nothing else."""
    if watching is None or not watching.log_level:
        return contextlib.nullcontext()
    return _logs(watching).bound(message)


@cache
def _logs(watching: ChildWatching) -> JsonLogs:
    from blimp.tasks.observe.json_log import JsonLogs

    logs = JsonLogs(level=watching.log_level, vehicle=watching.vehicle)
    logs.worker = watching.worker
    logs.install()
    return logs
