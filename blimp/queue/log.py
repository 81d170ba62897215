"""Lines of `key=value` on standard error; standard output is for data.

Written by hand: structlog brings rich and pygments with it, four megabytes of a worker's forty.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

LEVELS = ("debug", "info", "warning", "error")


class Log:
    """Writes an event and its fields as one line. Thread-safe; never fails its caller.

    level: one of LEVELS; what is below it is not written. bound: fields of every line.
    """

    def __init__(self, *, level: str = "info", bound: dict[str, Any] | None = None) -> None:
        self._least = LEVELS.index(level)
        self._bound = bound or {}

    def debug(self, event: str, **fields: Any) -> None:
        self._write(0, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(1, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(2, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write(3, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Write an error with the traceback of the exception that is being handled."""
        self._write(3, event, fields | {"exception": traceback.format_exc().rstrip("\n")})

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if level < self._least:
            return
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        line = {"timestamp": now, "level": LEVELS[level], "event": event, **self._bound, **fields}
        text = " ".join(f"{key}={_value(value)}" for key, value in line.items())
        with contextlib.suppress(OSError, ValueError):  # closed, or its reader has gone
            sys.stderr.write(f"{text}\n")


def stderr_logger(*, level: str = "info", **bound: Any) -> Log:
    return Log(level=level, bound=bound)


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if not text or text.isalnum():
        return text
    plain = text.isprintable() and not any(letter in text for letter in ' "=')
    if plain:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(one if one.isprintable() else _escape(one) for one in escaped) + '"'


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
