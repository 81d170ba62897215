"""What can be seen of a worker from outside: metrics, logs, traces. Loaded where asked for.

Tested by test_tracing.py.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from blimp.distribution import needing
from blimp.errors import ConfigError

if TYPE_CHECKING:
    from blimp.queue.extras.observability.tracing import Tracer
    from blimp.queue.watching import TraceSettings


def open_tracer(settings: TraceSettings, *, service: str) -> Tracer | str:
    """Return what makes spans, or why nothing does: "" if nothing was asked for.

    Raises ConfigError for an unknown exporter, or a file that cannot be written.
    """
    if not (settings.is_wanted or _has_provider()):
        return ""
    try:
        with needing("trace", "traces need"):
            from blimp.queue.extras.observability.tracing import Tracer
    except ConfigError as error:
        return str(error)
    return Tracer(settings, service=service)


def _has_provider() -> bool:
    """Return whether this program has set up OpenTelemetry itself."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return False
    ours = sys.modules.get("blimp.queue.extras.observability.tracing")
    unset = (trace.ProxyTracerProvider, *(() if ours is None else (ours.OwnProvider,)))
    return not isinstance(trace.get_tracer_provider(), unset)
