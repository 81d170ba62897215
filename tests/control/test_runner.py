import gc

import pytest

from blimp.clock import ManualClock
from blimp.control.runner import run
from tests.control.parts import Bench


class Script:
    """Lets a run go on for so many cycles; some of them slow."""

    def __init__(self, ship: Bench, *, cycles: int, slow: dict[int, float] | None = None) -> None:
        self.clock = ManualClock(start_s=50.0)
        self.cycles = cycles
        self.slow = slow or {}
        self.done = 0
        self.starts: list[float] = []
        self._step = ship.loop.step
        self._ship = ship
        ship.loop.step = self.step  # type: ignore[method-assign]

    def step(self, now_s: float) -> None:
        self.starts.append(now_s)
        self._step(now_s)
        self.clock.advance(self.slow.get(len(self.starts), 0.001))

    def should_stop(self) -> bool:
        return len(self.starts) >= self.cycles

    def on_cycle(self) -> None:
        self.done += 1


def test_it_steps_at_its_rate_and_leaves_the_outputs_safe() -> None:
    ship = Bench(settle_s=0.0)
    script = Script(ship, cycles=50)
    status = run(
        ship.loop,
        clock=script.clock,
        rate_hz=100.0,
        should_stop=script.should_stop,
        on_cycle=script.on_cycle,
    )
    gaps = [b - a for a, b in zip(script.starts, script.starts[1:], strict=False)]
    assert gaps == pytest.approx([0.01] * 49)
    assert (status.cycles, status.overruns, script.done) == (50, 0, 50)
    assert status.step_ms["mean"] == pytest.approx(1.0)
    assert status.step_ms["p99"] == pytest.approx(1.0, rel=0.06)
    assert status.wakeup_error_ms["p999"] < 0.01
    assert ship.outputs.calls[-2:] == ["safe", "disable"]


def test_a_slow_cycle_is_counted_and_the_missed_ones_are_dropped() -> None:
    ship = Bench(settle_s=0.0)
    script = Script(ship, cycles=20, slow={5: 0.035})
    status = run(ship.loop, clock=script.clock, rate_hz=100.0, should_stop=script.should_stop)
    assert status.overruns == 1
    after = script.starts[5] - script.starts[4]
    assert after == pytest.approx(0.04)  # the next whole period, no burst
    assert script.starts[6] - script.starts[5] == pytest.approx(0.01)


def test_the_watchdog_is_not_petted_for_a_cycle_that_failed() -> None:
    ship = Bench(settle_s=0.0)
    script = Script(ship, cycles=20)
    petted: list[int] = []

    def on_cycle() -> None:
        petted.append(len(script.starts))
        if len(petted) == 3:
            ship.sensors.raises = RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        run(
            ship.loop,
            clock=script.clock,
            rate_hz=100.0,
            should_stop=script.should_stop,
            on_cycle=on_cycle,
        )
    assert petted == [1, 2, 3]
    assert ship.outputs.calls[-2:] == ["safe", "disable"]


def test_the_collector_sleeps_in_flight_and_is_woken_after() -> None:
    ship = Bench(settle_s=0.0)
    script = Script(ship, cycles=3)
    seen: list[bool] = []
    assert gc.isenabled()
    run(
        ship.loop,
        clock=script.clock,
        rate_hz=100.0,
        should_stop=script.should_stop,
        on_cycle=lambda: seen.append(gc.isenabled()),
    )
    assert seen == [False] * 3
    assert gc.isenabled()
