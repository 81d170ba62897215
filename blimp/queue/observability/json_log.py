"""A process's log as lines of JSON that name the task which runs: the standard library's only."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from blimp.queue.log import Log, StderrHandler, line_of, make_logger
from blimp.queue.protocol.message import read_context

if TYPE_CHECKING:
    from blimp.queue.protocol.message import TaskMessage

MAX_TEXT_LENGTH = 10_000
MAX_ITEMS = 100
MAX_DEPTH = 6
MAX_BITS = 64
FIRST = ("timestamp", "level", "event", "worker", "vehicle", "task", "id", "trace_id", "span_id")
_task: ContextVar[dict[str, Any]] = ContextVar("blimp_log_task", default={})  # noqa: B039


class JsonLogs:
    """Makes the logs of one process, all to standard error.

    vehicle: a field of every line, "" for none. worker: likewise; `make` learns it.
    """

    def __init__(self, *, level: str = "info", vehicle: str = "") -> None:
        self.level = level
        self.vehicle = vehicle
        self.worker = ""
        self._handler = StderrHandler()
        self._handler.setFormatter(_JsonFormatter(self))
        self._root_level = logging.WARNING

    def make(self, *, level: str | None = None, **bound: Any) -> Log:
        """Return a log, as `stderr_logger` does. Any thread may write to it."""
        self.worker = str(bound.get("worker", self.worker))
        return Log(make_logger(self._handler, level=level or self.level), bound=bound)

    def install(self) -> None:
        """Have every logger of `logging` write such lines too; see `uninstall`."""
        root = logging.getLogger()
        for handler in list(root.handlers):
            if type(handler) is logging.StreamHandler and handler.stream is sys.stderr:
                root.removeHandler(handler)  # its lines would not be JSON
        root.addHandler(self._handler)
        self._root_level = root.level
        if root.level == logging.WARNING:  # the default: the program has set none
            root.setLevel(self.level.upper())

    def uninstall(self) -> None:
        root = logging.getLogger()
        if self._handler in root.handlers:
            root.removeHandler(self._handler)
            root.setLevel(self._root_level)

    @contextlib.contextmanager
    def bound(self, message: TaskMessage) -> Iterator[None]:
        """Have every line that this context writes name the task of `message`."""
        token = _task.set(_fields_of(message))
        try:
            yield
        finally:
            _task.reset(token)


class _JsonFormatter(logging.Formatter):
    def __init__(self, logs: JsonLogs) -> None:
        super().__init__()
        self._logs = logs

    def format(self, record: logging.LogRecord) -> str:
        line = {"worker": self._logs.worker, "vehicle": self._logs.vehicle} | _task.get()
        line = {name: value for name, value in line.items() if value != ""}
        if not hasattr(record, "fields"):
            line["logger"] = record.name
        line |= line_of(self, record)
        first = {name: line.pop(name) for name in FIRST if name in line}
        return to_line(first | line)


def _fields_of(message: TaskMessage) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "task": message.task,
        "id": message.id,
        "queue": message.queue,
        "delivery": message.delivery,
    }
    if (context := read_context(message.headers)) is not None:
        fields |= {"trace_id": context[0], "span_id": context[1]}
    vehicle = message.headers.get("blimp_vehicle")
    if isinstance(vehicle, str):
        fields["vehicle"] = vehicle
    return fields


def to_line(fields: Mapping[str, Any]) -> str:
    """Return `fields` as one line of JSON, in ASCII: no value can forge a line."""
    return json.dumps({str(name): plain(value) for name, value in fields.items()})


def plain(value: Any, depth: int = 0) -> Any:
    """Return `value`, or as much of it as JSON can hold and a person reads. Never raises."""
    try:
        return _plain(value, depth)
    except Exception as error:  # its own methods may raise, or another thread change it
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if type(value) is str:
        return value if len(value) <= MAX_TEXT_LENGTH else f"{value[:MAX_TEXT_LENGTH]}…"
    if type(value) is int:
        return value if value.bit_length() <= MAX_BITS else f"<int of {value.bit_length()} bits>"
    if type(value) is float:
        return value if math.isfinite(value) else repr(value)
    if depth < MAX_DEPTH and isinstance(value, Mapping):
        items = list(value.items())[:MAX_ITEMS]
        return {_name(name): plain(item, depth + 1) for name, item in items}
    if depth < MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in list(value)[:MAX_ITEMS]]
    text = str(value) if isinstance(value, str) else repr(value)
    return plain(str.__str__(text))


def _name(value: Any) -> str:
    return value if type(value) is str else str(plain(value, MAX_DEPTH))
