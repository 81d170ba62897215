"""The real-time runner: calls the loop at its rate and tells how punctual it was."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

from blimp.clock import Clock
from blimp.control.loop import FlightLoop
from blimp.types import LoopStatus

_COLLECT_EVERY_S = 30.0  # garbage, disarmed: a collection takes longer than a cycle


def run(
    loop: FlightLoop,
    *,
    clock: Clock,
    rate_hz: float,
    should_stop: Callable[[], bool],
    on_cycle: Callable[[], None] | None = None,
) -> LoopStatus:
    """Step `loop` every 1/rate_hz seconds until `should_stop()`; return its last status.

    `on_cycle` is called after every completed cycle and only then: it pets the watchdogs.
    A late cycle is counted as an overrun and the missed ones are dropped, never caught up
    in a burst. Outputs are safe when this returns or raises; an exception of the loop
    passes through to the caller.
    """
    period_s = 1.0 / rate_hz
    timing = loop.timing
    try:
        with _steady_memory():
            deadline_s = clock.now_s()
            collected_s = deadline_s
            while not should_stop():
                clock.sleep_until(deadline_s)
                start_s = clock.now_s()
                loop.step(start_s)
                if on_cycle is not None:
                    on_cycle()
                if not loop.armed and start_s - collected_s > _COLLECT_EVERY_S:
                    gc.collect(1)  # what exceptions left behind, while nothing depends on it
                    collected_s = start_s
                end_s = clock.now_s()
                overrun = end_s - deadline_s > period_s
                timing.add(
                    wakeup_error_s=start_s - deadline_s, step_s=end_s - start_s, overrun=overrun
                )
                deadline_s += period_s
                if end_s > deadline_s:
                    deadline_s += period_s * ceil((end_s - deadline_s) / period_s)
    finally:
        loop.close()
    return timing.status()


@contextmanager
def _steady_memory() -> Iterator[None]:
    """Keep the garbage collector out of flight: a full collection costs milliseconds."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
