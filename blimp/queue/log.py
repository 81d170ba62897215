"""Events with fields, one line each on standard error, by the standard library's `logging`.

Standard output is for data. structlog would cost an idle worker 4.3 MB and a start 0.12 s.
"""

from __future__ import annotations

import codecs
import contextlib
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blimp.clock import Clock

LEVELS = ("debug", "info", "warning", "error")


class Log:
    """Writes an event and its fields through a logger. Thread-safe; never fails its caller.

    bound: fields of every line.
    """

    def __init__(self, logger: logging.Logger, *, bound: dict[str, Any]) -> None:
        self._logger = logger
        self._bound = bound

    def debug(self, event: str, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Write an error with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, fields, exc_info=True)

    def _write(
        self, level: int, event: str, fields: dict[str, Any], *, exc_info: bool = False
    ) -> None:
        self._logger.log(level, event, extra={"fields": self._bound | fields}, exc_info=exc_info)


class StderrHandler(logging.Handler):
    """Writes to the standard error of the moment. A closed stream or a bad value fails nobody."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):
            sys.stderr.write(f"{self.format(record)}\n")


class KeyValueFormatter(logging.Formatter):
    """`key=value` pairs; what is not printable is escaped, so that no value forges a line."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_value(value)}" for key, value in line_of(self, record).items())


def line_of(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, Any]:
    """Return what a line says: time, level, event, the record's fields, its exception."""
    time = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
    line = {"timestamp": time, "level": record.levelname.lower(), "event": _message(record)}
    line |= getattr(record, "fields", {})
    if record.exc_info:
        line["exception"] = formatter.formatException(record.exc_info)
    return line


def make_logger(handler: logging.Handler, *, level: str) -> logging.Logger:
    """Return a logger of its own: it is in no registry, so nobody's settings change it."""
    logger = logging.Logger("blimp.queue", level.upper())
    logger.addHandler(handler)
    return logger


class Throttle:
    """Admits some lines of each kind in a period, and counts the others. Thread-safe.

    Garbage on a queue must not fill the disk that the broker's log is on.
    """

    def __init__(self, *, clock: Clock, most: int = 10, period_s: float = 60.0) -> None:
        self._clock = clock
        self._most = most
        self._period_s = period_s
        self._lock = threading.Lock()
        self._kinds: dict[str, tuple[float, int, int]] = {}  # period's begin, admitted, left out

    def admit(self, kind: str) -> dict[str, int] | None:
        """Return further fields of a line that may be written; None if it may not."""
        now_s = self._clock.now_s()
        with self._lock:
            began_s, admitted, left_out = self._kinds.get(kind, (now_s, 0, 0))
            if now_s - began_s >= self._period_s:
                began_s, admitted = now_s, 0
            if admitted >= self._most:
                self._kinds[kind] = (began_s, admitted, left_out + 1)
                return None
            self._kinds[kind] = (began_s, admitted + 1, 0)
            return {"left_out": left_out} if left_out else {}


def stderr_logger(*, level: str = "info", **bound: Any) -> Log:
    handler = StderrHandler()
    handler.setFormatter(KeyValueFormatter())
    return Log(make_logger(handler, level=level), bound=bound)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # the arguments do not fit the text
        return str(record.msg)


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if text.isprintable() and not any(letter in text for letter in ' "='):
        return text
    return '"' + printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def printable(text: str) -> str:
    """Return `text` with what is not printable escaped: no line break, no escape sequence."""
    if text.isprintable():
        return text
    escape = codecs.getencoder("unicode_escape")
    return "".join(one if one.isprintable() else escape(one)[0].decode() for one in text)
