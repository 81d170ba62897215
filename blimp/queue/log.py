"""Events with fields, one line each on standard error, by the standard library's `logging`.

As `key=value` or as JSON. Standard output is for data. structlog would cost an idle worker 4.3 MB
and a start 0.12 s.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from blimp.queue.protocol.message import read_context

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.protocol.message import TaskMessage

LEVELS = ("debug", "info", "warning", "error")
MAX_TEXT_LENGTH = 10_000
MOST_LINES = 60  # of a kind in a minute: one a second, as fast as a person reads
MAX_KINDS = 1000  # that are counted at once; there are fewer in the code
# Of a line of JSON: the first fields.
FIRST = ("timestamp", "level", "event", "worker", "vehicle", "task", "id", "trace_id", "span_id")
# The message whose task runs: each line that its context writes names it.
running_message: ContextVar[TaskMessage | None] = ContextVar("running_message", default=None)


class Log(logging.LoggerAdapter[logging.Logger]):
    """Writes an event and its fields: `log.info("consuming", queues=2)`. Thread-safe.

    Never fails its caller. Its logger is in no registry, so that nobody's settings change it.
    bound: fields of every line. Lines of one event are limited; see `LineLimit`.
    """

    def __init__(self, handler: logging.Handler, *, level: str, bound: dict[str, Any]) -> None:
        logger = logging.Logger("blimp.queue", level.upper())
        logger.addFilter(LineLimit())
        logger.addHandler(handler)
        super().__init__(logger)
        self._bound = bound

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        exc_info = kwargs.pop("exc_info", None)
        return msg, {"extra": {"fields": self._bound | dict(kwargs)}, "exc_info": exc_info}


def stderr_logger(*, level: str = "info", **bound: Any) -> Log:
    """Return a log that writes `key=value` pairs, or on a terminal lines for a person."""
    return Log(_text_handler(), level=level, bound=bound)


def _text_handler() -> StderrHandler:
    handler = StderrHandler()
    is_terminal = sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()
    handler.setFormatter(TerminalFormatter() if is_terminal else KeyValueFormatter())
    return handler


class StderrHandler(logging.Handler):
    """Writes to the standard error of the moment. A closed stream or a bad value fails nobody."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):
            sys.stderr.write(f"{self.format(record)}\n")


class KeyValueFormatter(logging.Formatter):
    """`key=value` pairs; what is not printable is escaped, so that no value forges a line."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_value(value)}" for key, value in line_of(self, record).items())


class TerminalFormatter(logging.Formatter):
    """The time of day, level, event and `key=value` pairs; a traceback in lines of its own.

    The lines of a traceback are indented, so that none of them looks like the line of an event.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = line_of(self, record)
        fields.pop("timestamp")
        level, event = fields.pop("level"), printable(str(fields.pop("event")))
        traceback = str(fields.pop("exception", ""))
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        pairs = (f"{key}={_value(value)}" for key, value in fields.items())
        lines = [" ".join((time, f"{level:7}", event, *pairs))]
        lines += [f"    {printable(line)}" for line in traceback.splitlines()]
        return "\n".join(lines)


def line_of(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, Any]:
    """Return what a line says: time, level, event, the record's fields, its exception."""
    time = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
    try:
        event = record.getMessage()
    except Exception:  # the arguments do not fit the text
        event = str(record.msg)
    line = {"timestamp": time, "level": record.levelname.lower(), "event": event}
    line |= record.fields if hasattr(record, "fields") else _origin(record)
    if record.exc_info:
        line["exception"] = formatter.formatException(record.exc_info)
    return line


def _origin(record: logging.LogRecord) -> dict[str, Any]:
    """Return where a line of `logging` comes from: the task that runs, and the logger."""
    message = running_message.get()
    task = {} if message is None else {"task": message.task, "id": message.id}
    return task | {"logger": record.name}


def _value(value: Any) -> str:
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text.isprintable() and not any(letter in text for letter in ' "='):
        return text
    return '"' + printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def printable(text: str) -> str:
    """Return `text` with what is not printable escaped: no line break, no escape sequence."""
    if text.isprintable():
        return text
    escape = codecs.getencoder("unicode_escape")
    return "".join(one if one.isprintable() else escape(one)[0].decode() for one in text)


class Tally:
    """Admits some lines of each kind in a period, and counts the others. Thread-safe."""

    def __init__(self, *, most: int, period_s: float = 60.0) -> None:
        self._most = most
        self._period_s = period_s
        self._lock = threading.Lock()
        self._kinds: dict[str, tuple[float, int, int]] = {}  # period's begin, admitted, left out

    def admit(self, kind: str, *, now_s: float) -> dict[str, int] | None:
        """Return further fields of a line that may be written; None if it may not."""
        with self._lock:
            began_s, admitted, left_out = self._kinds.get(kind, (now_s, 0, 0))
            if not 0.0 <= now_s - began_s < self._period_s:  # the time of day may be set back
                began_s, admitted = now_s, 0
            if admitted >= self._most:
                self._kinds[kind] = (began_s, admitted, left_out + 1)
                return None
            if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            self._kinds[kind] = (began_s, admitted + 1, 0)
            return {"left_out": left_out} if left_out else {}


class Throttle:
    """A Tally on a clock.

    Garbage on a queue must not fill the disk that the broker's log is on.
    """

    def __init__(self, *, clock: Clock, most: int = 10, period_s: float = 60.0) -> None:
        self._clock = clock
        self._tally = Tally(most=most, period_s=period_s)

    def admit(self, kind: str) -> dict[str, int] | None:
        """Return further fields of a line that may be written; None if it may not."""
        return self._tally.admit(kind, now_s=self._clock.now_s())


class LineLimit(logging.Filter):
    """Lets MOST_LINES of one kind pass in a minute, and has the next one say how many it did not.

    Most lines can be caused from outside: by rubbish in a queue, unsigned broadcasts, tasks that
    fail. Who sends them must not fill the disk, nor drown what else is said. A kind is an event,
    or a text before its values are put in. What is for debugging is not limited. The time is the
    record's own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._tally = Tally(most=MOST_LINES)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG:
            return True
        more = self._tally.admit(str(record.msg), now_s=record.created)
        if more:
            fields = getattr(record, "fields", None)
            if isinstance(fields, dict):
                record.fields = fields | more
            else:
                record.msg = f"{record.msg} ({more['left_out']} like it were left out)"
        return more is not None


# --- the loggers of `logging` ---------------------------------------------------------------------


class TaskLogs:
    """Has the loggers of `logging`, and warnings, name the task that runs, in one process.

    form: "json" makes each line a document, the worker's own lines too. In "text" the settings of
    the program stand: where it has a handler, nothing is added.
    vehicle: a field of every line of JSON, "" for none. worker: likewise; `make` learns it.
    """

    def __init__(self, *, form: str = "json", level: str = "info", vehicle: str = "") -> None:
        self.form = form
        self.level = level
        self.vehicle = vehicle
        self.worker = ""
        self._handler = _text_handler()
        if form == "json":
            self._handler.setFormatter(_JsonFormatter(self))
        else:
            self._handler.addFilter(_is_unhandled)
        self._root_level = logging.WARNING
        self._show_warning = warnings.showwarning

    def make(self, *, level: str | None = None, **bound: Any) -> Log:
        """Return a log, as `stderr_logger` does. Any thread may write to it."""
        self.worker = str(bound.get("worker", self.worker))
        return Log(self._handler, level=level or self.level, bound=bound)

    def install(self) -> None:
        """Have every logger of `logging` write such lines too; see `uninstall`."""
        root = logging.getLogger()
        self._root_level = root.level
        for handler in list(root.handlers):
            if self._replaces(handler):
                root.removeHandler(handler)
        if root.handlers and self.form == "text":
            return
        root.addHandler(self._handler)
        if root.level == logging.WARNING:  # the default: the program has set none
            root.setLevel(self.level.upper())
        if warnings.showwarning.__module__ == "warnings":  # the program has none of its own
            self._show_warning = warnings.showwarning
            warnings.showwarning = self._log_warning

    def uninstall(self) -> None:
        root = logging.getLogger()
        if self._handler in root.handlers:
            root.removeHandler(self._handler)
            root.setLevel(self._root_level)
        if warnings.showwarning == self._log_warning:
            warnings.showwarning = self._show_warning

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        self.install()
        try:
            yield
        finally:
            self.uninstall()

    def _replaces(self, handler: logging.Handler) -> bool:
        """Whether `handler` writes to standard error and nobody has chosen its form.

        A call of `logging.info(…)` alone adds such a one. JSON is chosen for all.
        """
        if type(handler) is not logging.StreamHandler or handler.stream is not sys.stderr:
            return False
        form = getattr(handler.formatter, "_fmt", logging.BASIC_FORMAT)
        is_default = form == logging.BASIC_FORMAT and self._root_level == logging.WARNING
        return is_default or self.form == "json"

    def _log_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if file is not None:
            self._show_warning(message, category, filename, lineno, file, line)
            return
        words = (category.__name__, message, filename, lineno)
        logging.getLogger("py.warnings").warning("%s: %s (%s:%s)", *words)


def _is_unhandled(record: logging.LogRecord) -> bool:
    """Whether no logger on the way to the root has a handler of the program's own."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None and logger is not logging.root:
        if any(not isinstance(one, logging.NullHandler) for one in logger.handlers):
            return False
        logger = logger.parent
    return True


class _JsonFormatter(logging.Formatter):
    def __init__(self, logs: TaskLogs) -> None:
        super().__init__()
        self._logs = logs

    def format(self, record: logging.LogRecord) -> str:
        line = {"worker": self._logs.worker, "vehicle": self._logs.vehicle} | _about_task()
        line = {name: value for name, value in line.items() if value != ""}
        line |= line_of(self, record)
        first = {name: line.pop(name) for name in FIRST if name in line}
        return to_line(first | line)


def _about_task() -> dict[str, Any]:
    """Return all that a line of JSON says of the task that runs."""
    message = running_message.get()
    if message is None:
        return {}
    fields: dict[str, Any] = {
        "task": message.task,
        "id": message.id,
        "queue": message.queue,
        "delivery": message.delivery,
    }
    if (context := read_context(message.headers)) is not None:
        fields["trace_id"], fields["span_id"] = context
    vehicle = message.headers.get("blimp_vehicle")
    return fields | {"vehicle": vehicle} if isinstance(vehicle, str) else fields


def to_line(fields: Mapping[str, Any]) -> str:
    """Return `fields` as one line of JSON, in ASCII: no value can forge a line."""
    return json.dumps({str(name): _plain(value) for name, value in fields.items()})


def _plain(value: Any) -> Any:
    """Return `value` if JSON can hold it and a person reads it, or else a text. Never raises."""
    with contextlib.suppress(Exception):  # NaN, a loop, a key, a class, a change meanwhile
        if len(json.dumps(value, allow_nan=False)) <= MAX_TEXT_LENGTH:
            return value
    try:
        text = value if type(value) is str else repr(value)
    except Exception as error:  # of its own methods
        text = f"<{type(value).__name__}: {type(error).__name__}>"
    return text if len(text) <= MAX_TEXT_LENGTH else f"{text[:MAX_TEXT_LENGTH]}…"
