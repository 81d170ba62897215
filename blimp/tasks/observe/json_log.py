"""A worker's log as lines of JSON, with what runs: by structlog, loaded only where asked for."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError
from blimp.tasks.observe.context import read_context
from blimp.tasks.observe.plain import to_line

try:
    import structlog
except ImportError as error:
    raise ConfigError(
        f"logs as JSON need structlog: pip install 'blimp[logs]' ({error})"
    ) from error

if TYPE_CHECKING:
    from blimp.tasks.message import TaskMessage
    from blimp.tasks.middleware import CallNext
    from blimp.tasks.work.job import Job, Verdict

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
        """Return a log as `blimp.tasks.log.Log` is one. Any thread may write to it."""
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

    async def middleware(self, job: Job, call_next: CallNext) -> Verdict:
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
