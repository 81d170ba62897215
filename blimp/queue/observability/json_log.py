"""Anything as what JSON can hold. Never raises: a log must not fail whoever writes it.

A worker's log as lines of JSON, with what runs: by structlog, loaded only where asked for.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError
from blimp.queue.protocol.trace_context import read_context

if TYPE_CHECKING:
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.protocol.outcome import Outcome
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.middleware import CallNext

MAX_TEXT_LENGTH = 10_000
MAX_ITEMS = 100
MAX_DEPTH = 6
MAX_BITS = 64


def to_line(fields: Mapping[str, Any]) -> str:
    """Return `fields` as one line of JSON, in ASCII: no value can forge a line."""
    return json.dumps({str(name): plain(value) for name, value in fields.items()})


def plain(value: Any, depth: int = 0) -> Any:
    """Return `value`, or as much of it as JSON can hold and a person will read."""
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


try:
    import structlog
except ImportError as error:
    raise ConfigError(
        f"logs as JSON need structlog: pip install 'blimp[logs]' ({error})"
    ) from error


FIRST = ("timestamp", "level", "event", "worker", "vehicle", "task", "id", "trace_id", "span_id")


class JsonLogs:
    """Makes the logs of one process, all to standard error.

    What is logged while a task runs names it: its own lines, those of `structlog`, and those of
    the standard library's `logging`. vehicle: told in every line, "" for none.
    """

    def __init__(self, *, level: str = "info", vehicle: str = "") -> None:
        self.level = level
        self.vehicle = vehicle
        self.worker = ""
        self._kind = structlog.make_filtering_bound_logger(level)
        self._handler: logging.Handler | None = None
        self._root_level = logging.WARNING

    def make(self, *, level: str | None = None, **bound: Any) -> Any:
        """Return a log as `blimp.queue.log.Log` is one. Any thread may write to it."""
        self.worker = str(bound.get("worker", self.worker))
        kind = self._kind if level is None else structlog.make_filtering_bound_logger(level)
        return structlog.wrap_logger(
            _Stderr(),
            processors=self._processors(),
            wrapper_class=kind,
            cache_logger_on_first_use=False,
            **bound,
        )

    def install(self) -> None:
        """Have `logging` and `structlog` write such lines too, where nobody set them up to."""
        root = logging.getLogger()
        for handler in list(root.handlers):
            if type(handler) is logging.StreamHandler and handler.stream is sys.stderr:
                root.removeHandler(handler)  # its lines would be none of JSON
        self._handler = _Handler(self.make(level="debug"))
        root.addHandler(self._handler)
        self._root_level = root.level
        if root.level == logging.WARNING:
            root.setLevel(self.level.upper())
        if not structlog.is_configured():
            structlog.configure(
                processors=self._processors(),
                wrapper_class=self._kind,
                logger_factory=lambda *_: _Stderr(),
                cache_logger_on_first_use=False,
            )

    def uninstall(self) -> None:
        if self._handler is not None:
            logging.getLogger().removeHandler(self._handler)
            logging.getLogger().setLevel(self._root_level)
            structlog.reset_defaults()
            self._handler = None

    @contextlib.contextmanager
    def bound(self, message: TaskMessage) -> Iterator[None]:
        """Have every line that this context writes name the task of `message`."""
        with structlog.contextvars.bound_contextvars(**self._about(message)):
            yield

    async def middleware(self, job: Job, call_next: CallNext) -> Outcome:
        with self.bound(job.message):
            return await call_next(job)

    def _about(self, message: TaskMessage) -> dict[str, Any]:
        about: dict[str, Any] = {
            "task": message.task,
            "id": message.id,
            "queue": message.queue,
            "delivery": message.delivery,
        }
        trace = read_context(message.headers)
        if trace is not None:
            about |= {"trace_id": trace.trace_id, "span_id": trace.span_id}
        vehicle = message.headers.get("blimp_vehicle")
        if isinstance(vehicle, str):
            about["vehicle"] = vehicle
        return about

    def _processors(self) -> list[Any]:
        return [
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            self._render,
        ]

    def _render(self, _: Any, __: str, event: MutableMapping[str, Any]) -> str:
        defaults = {"worker": self.worker, "vehicle": self.vehicle}
        event = {name: value for name, value in defaults.items() if value} | dict(event)
        first = {name: event.pop(name) for name in FIRST if name in event}
        return to_line(first | event)


class _Stderr:
    """Where the lines go. A reader that has gone fails nobody."""

    def msg(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")

    log = debug = info = warning = error = exception = critical = msg


class _Handler(logging.Handler):
    """Takes what the standard library's loggers say. Never raises."""

    def __init__(self, log: Any) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:  # arguments that do not fit the text
            text = str(record.msg)
        more: Mapping[str, Any] = {"exc_info": record.exc_info} if record.exc_info else {}
        with contextlib.suppress(Exception):
            getattr(self._log, _level(record.levelno))(text, logger=record.name, **more)


def _level(number: int) -> str:
    for least, name in ((50, "critical"), (40, "error"), (30, "warning"), (20, "info")):
        if number >= least:
            return name
    return "debug"
