"""The simulated ESC: it arms, obeys, and stops without a signal."""

import pytest

from blimp.sim.chips.esc import Esc
from tests.sim.bench import Bench


def armed(bench: Bench, **options: object) -> Esc:
    esc = Esc(options=options, timeline=bench.timeline)
    esc.signal(0.0015 if options.get("reversible") else 0.001)
    bench.run(1.1)
    assert esc.throttle() == 0.0
    return esc


@pytest.mark.parametrize(
    ("reversible", "pulse_s", "throttle"),
    [
        (False, 0.0015, 0.5), (False, 0.002, 1.0), (False, 0.0022, 1.0), (False, 0.0009, 0.0),
        (True, 0.00175, 0.5), (True, 0.001, -1.0), (True, 0.0015, 0.0),
    ],
)  # fmt: skip
def test_pulses_as_throttles(reversible: bool, pulse_s: float, throttle: float) -> None:
    esc = armed(Bench(), reversible=reversible)
    esc.signal(pulse_s)
    assert esc.throttle() == pytest.approx(throttle)


def test_it_does_not_obey_before_a_second_of_standstill() -> None:
    bench = Bench()
    esc = Esc(options={}, timeline=bench.timeline)
    esc.signal(0.002)
    bench.run(5.0)
    assert esc.throttle() == 0.0
    esc.signal(0.001)
    bench.run(0.9)
    esc.signal(0.002)
    assert esc.throttle() == 0.0
    esc.signal(0.001)
    bench.run(1.1)
    esc.signal(0.002)
    assert esc.throttle() == 1.0


@pytest.mark.parametrize("lost", [None, 0.0001, 0.004])
def test_without_a_signal_it_stops_and_must_be_armed_again(lost: float | None) -> None:
    bench = Bench()
    esc = armed(bench)
    esc.signal(0.002)
    bench.run(1.0)
    esc.signal(lost)
    assert esc.throttle() == 1.0, "for a quarter of a second it waits"
    bench.run(0.3)
    assert esc.throttle() == 0.0
    esc.signal(0.002)
    bench.run(2.0)
    assert esc.throttle() == 0.0


def test_a_short_gap_costs_nothing() -> None:
    bench = Bench()
    esc = armed(bench)
    esc.signal(0.0015)
    bench.run(1.0)
    esc.signal(None)
    bench.run(0.1)
    esc.signal(0.0015)
    assert esc.throttle() == pytest.approx(0.5)
