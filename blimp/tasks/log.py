"""Structured logs on standard error; standard output is for data."""

from __future__ import annotations

import sys
from typing import Any

LEVELS = ("debug", "info", "warning", "error")


def stderr_logger(*, level: str = "info", **bindings: Any) -> Any:
    """Return a structlog logger of its own, so that nobody's configuration is touched.

    level: one of LEVELS; what is below it is not written.
    """
    import structlog

    return structlog.wrap_logger(
        structlog.WriteLogger(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], bool_as_flag=False
            ),
        ],
        **bindings,
    )
