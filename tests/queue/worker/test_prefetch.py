"""A prefetch that follows the work: many short tasks at once, few long ones."""

from __future__ import annotations

from blimp.clock import ManualClock
from blimp.queue.worker.in_flight import AHEAD_S, LEAST, MOST, AdaptivePrefetch


def test_it_follows_what_ends_within_its_limits() -> None:
    clock = ManualClock()
    ahead = AdaptivePrefetch(clock=clock)
    assert ahead.limit() == LEAST
    ahead.ended(120)
    assert ahead.limit() == LEAST, "not before the moment is over"
    clock.advance(2.0 * AHEAD_S)
    assert ahead.limit() == 60
    ahead.ended(10_000)
    clock.advance(2.0 * AHEAD_S)
    assert ahead.limit() == MOST
    clock.advance(10.0)  # a long task
    ahead.ended(1)
    assert ahead.limit() == LEAST
