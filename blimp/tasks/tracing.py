"""The spans of a command on board: in the mailbox, and in the flight process.

The flight process makes no spans itself, because its loop does nothing that could wait. It
says when it accepted a command, on the clock that both processes share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.trace import SpanKind

from blimp.queue.extras.observability.tracing import wall_ns

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.extras.observability.tracing import Tracer

T = TypeVar("T")


def follow_traced(
    follow: Callable[[], T],
    *,
    tracer: Tracer,
    command: str,
    clock: Clock,
    accepted_s: Callable[[], float | None],
    attributes: dict[str, Any],
) -> T:
    """Return what `follow` returns. accepted_s: when the ship accepted the command, or None."""
    asked_s = clock.now_s()
    with tracer.span(f"mailbox {command}", kind=SpanKind.CLIENT, attributes=attributes):
        try:
            return follow()
        finally:
            _record_flight(tracer, command, clock=clock, asked_s=asked_s, accepted_s=accepted_s())


def _record_flight(
    tracer: Tracer, command: str, *, clock: Clock, asked_s: float, accepted_s: float | None
) -> None:
    if accepted_s is None:
        return  # refused, or never received
    now_s = clock.now_s()
    # A redelivered command was accepted before, and a simulated ship's clock may be another.
    began_s = accepted_s if asked_s <= accepted_s <= now_s else asked_s
    tracer.record(
        f"flight {command}",
        began_ns=wall_ns(began_s, now_s=now_s),
        ended_ns=wall_ns(now_s, now_s=now_s),
        kind=SpanKind.SERVER,
        attributes={"blimp.accepted_s": accepted_s},
    )
