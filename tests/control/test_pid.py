import math

import pytest

from blimp.control.pid import Pid


def test_proportional_integral_and_derivative_add_up() -> None:
    pid = Pid(p=2.0, i=0.5, d=0.1)
    assert pid.update(1.0, 0.1, rate=3.0) == pytest.approx(2.0 * 1.0 - 0.1 * 3.0 + 0.05)
    assert pid.update(1.0, 0.1) == pytest.approx(2.0 + 0.10)


def test_the_integral_is_bounded() -> None:
    pid = Pid(p=0.0, i=1.0, integral_limit=0.3)
    for _ in range(100):
        pid.update(1.0, 0.1)
    assert pid.integral == pytest.approx(0.3)
    for _ in range(200):
        pid.update(-1.0, 0.1)
    assert pid.integral == pytest.approx(-0.3)


@pytest.mark.parametrize("side", [1, -1])
def test_a_saturated_output_stops_growth_into_it_but_not_out_of_it(side: int) -> None:
    pid = Pid(p=1.0, i=1.0)
    pid.update(0.5 * side, 1.0)
    wound = pid.integral
    for _ in range(50):
        pid.update(1.0 * side, 1.0, saturated=side)
    assert pid.integral == wound
    pid.update(-0.25 * side, 1.0, saturated=side)
    assert pid.integral == pytest.approx(wound - 0.25 * side)


def test_recovery_from_saturation_is_immediate() -> None:
    """A plant held at its stop for a minute must not overshoot for a minute afterwards."""
    pid, position, limit = Pid(p=1.0, i=0.5), 0.0, 0.1
    peak = 0.0
    for _ in range(6000):
        error = 1.0 - position
        demand = pid.update(error, 0.01, saturated=_saturation(pid, error, limit))
        position += max(-limit, min(limit, demand)) * 0.01
        peak = max(peak, position)
    assert position == pytest.approx(1.0, abs=0.02)
    assert peak < 1.1


def _saturation(pid: Pid, error: float, limit: float) -> int:
    wish = error + pid.integral
    return (wish > limit) - (wish < -limit)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_changes_nothing(bad: float) -> None:
    pid = Pid(p=1.0, i=1.0, d=1.0)
    pid.update(0.5, 1.0)
    assert pid.update(bad, 1.0) == pid.integral == 0.5
    assert pid.update(1.0, 1.0, rate=bad) == 0.5


def test_hold_and_reset() -> None:
    pid = Pid(p=0.0, i=1.0, integral_limit=2.0)
    pid.update(1.0, 1.0, hold=True)
    assert pid.integral == 0.0
    pid.reset(5.0)
    assert pid.integral == 2.0
