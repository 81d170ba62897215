"""The ground's part of a trace: its root span, if the environment asks for one."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from blimp.config import trace_settings_from_environment
from blimp.errors import ConfigError
from ground_station.report import Report

if TYPE_CHECKING:
    from blimp.queue.extras.observability.tracing import Tracer


@contextmanager
def traced(*, report: Report) -> Iterator["Tracer | None"]:
    """Yield the tracer; None if the environment asks for none.

    If tracing cannot start, a message says so, and the command runs without.
    """
    settings = trace_settings_from_environment()
    if not settings.is_wanted:
        yield None
        return
    from blimp.queue.extras.observability import open_tracer

    try:
        tracer = open_tracer(settings, service="ground")
    except ConfigError as error:
        tracer = str(error)
    if isinstance(tracer, str):
        report.say(f"ground: not traced: {tracer}")
        yield None
        return
    with tracer:
        yield tracer


def root_span(tracer: "Tracer | None", name: str) -> AbstractContextManager[object]:
    """Make the block the root span of a trace, if there is a tracer."""
    return nullcontext() if tracer is None else tracer.span(name)
