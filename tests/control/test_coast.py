"""The hull's own motion, for the time without an IMU."""

from math import pi

import pytest

from blimp import airframe as airframes
from blimp.control.coast import Coast
from blimp.rotation import euler, from_euler
from blimp.types import ZERO3


@pytest.mark.parametrize(
    ("name", "axis", "period_s"),
    [
        ("gtmab", 1, 1.0 / 0.700),  # Q. Tao et al. 2020: the swing
        ("blimp2b", 1, 1.84),  # Zufferey et al. 2006: pitch
        ("blimp2b", 0, 1.29),  # and roll
    ],
)
def test_a_hull_swings_on_with_its_published_period(name: str, axis: int, period_s: float) -> None:
    coast, tilt = Coast(airframe=airframes.load(name)), [0.0, 0.0, 0.5]
    tilt[axis] = 0.1
    attitude, rates, t_s = from_euler(*tilt), ZERO3, 0.0
    while euler(attitude)[axis] > 0.0:
        attitude, rates = coast.step(attitude, rates, 0.01)
        t_s += 0.01
    assert 4.0 * t_s == pytest.approx(period_s, rel=0.1)
    assert euler(attitude)[2] == pytest.approx(0.5, abs=pi / 180)
