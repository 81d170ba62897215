from math import hypot

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.control.path import Leg
from blimp.types import Vec3
from tests.control.parts import twin

LIMITS = twin().limits
DT_S = 0.01


def follow(leg: Leg, *, seconds: float) -> list[tuple[Vec3, Vec3, Vec3]]:
    """A perfect ship: it is where the reference is."""
    position, flown = leg.advance((0.0, 0.0, 0.0), 0.0).position_ned_m, []
    for _ in range(round(seconds / DT_S)):
        reference = leg.advance(position, DT_S)
        position = reference.position_ned_m
        flown.append((position, reference.velocity_ned_mps, reference.acceleration_ned_mps2))
        if reference.done:
            break
    return flown


def test_a_long_leg_rises_cruises_and_stops_at_its_end() -> None:
    leg = Leg(start_ned_m=(0.0, 0.0, -3.0), end_ned_m=(10.0, 0.0, -3.0), limits=LIMITS)
    flown = follow(leg, seconds=60.0)
    speeds = [hypot(*v) for _, v, _ in flown]
    assert max(speeds) == pytest.approx(LIMITS.speed_mps)
    assert flown[-1][0] == pytest.approx((10.0, 0.0, -3.0))
    assert speeds[-1] == 0.0
    assert leg.fraction == 1.0
    # Ramp up and down take v/a each, the rest is at speed.
    expected_s = 10.0 / LIMITS.speed_mps + LIMITS.speed_mps / LIMITS.acceleration_mps2
    assert len(flown) * DT_S == pytest.approx(expected_s, abs=1.5)


def test_straight_up_and_down_keep_to_the_column_speed() -> None:
    leg = Leg(start_ned_m=(0.0, 0.0, 0.0), end_ned_m=(0.0, 0.0, -5.0), limits=LIMITS)
    flown = follow(leg, seconds=60.0)
    assert min(v[2] for _, v, _ in flown) == pytest.approx(-LIMITS.column_mps)
    down = Leg(start_ned_m=(0.0, 0.0, -5.0), end_ned_m=(0.0, 0.0, -1.0), limits=LIMITS)
    assert max(v[2] for _, v, _ in follow(down, seconds=60.0)) == pytest.approx(LIMITS.column_mps)


def test_a_ship_blown_off_its_line_is_waited_for() -> None:
    """Seed 18 climbed on while the wind took it 1.3 m aside: lift and side force share a shaft."""
    leg = Leg(start_ned_m=(0.0, 0.0, 0.0), end_ned_m=(0.0, 0.0, -5.0), limits=LIMITS)
    for _ in range(300):
        leg.advance(leg.advance((0.0, 0.0, 0.0), 0.0).position_ned_m, DT_S)
    before = leg.fraction
    assert before > 0.0
    for _ in range(500):
        reference = leg.advance((0.0, 1.3, -5.0 * leg.fraction), DT_S)
    # Not for ever: a healthy ship stayed at 0.7 m in wind that it could just hold.
    assert hypot(*reference.velocity_ned_mps) == pytest.approx(0.25 * LIMITS.column_mps)
    along = Leg(start_ned_m=(0.0, 0.0, -5.0), end_ned_m=(9.0, 0.0, -5.0), limits=LIMITS)
    for _ in range(300):
        along.advance(along.advance((0.0, 0.0, -5.0), 0.0).position_ned_m, DT_S)
    before = along.fraction
    assert before > 0.0
    for _ in range(500):
        reference = along.advance((9.0 * along.fraction, 1.3, -5.0), DT_S)
    assert hypot(*reference.velocity_ned_mps) == 0.0
    assert along.fraction - before < 0.05  # it had to brake first


coordinate = st.floats(-50.0, 50.0)


@given(
    start=st.tuples(coordinate, coordinate, coordinate),
    end=st.tuples(coordinate, coordinate, coordinate),
)
def test_every_leg_keeps_the_limits_and_its_line(start: Vec3, end: Vec3) -> None:
    leg = Leg(start_ned_m=start, end_ned_m=end, limits=LIMITS)
    position = start
    for _ in range(400):
        reference = leg.advance(position, 0.05)
        position = reference.position_ned_m
        north, east, down = reference.velocity_ned_mps
        assert hypot(north, east) <= LIMITS.speed_mps + 1e-6
        assert -LIMITS.climb_mps - 1e-6 <= down <= max(LIMITS.descent_mps, 0.0) + 1e-6
        offset = [p - s for p, s in zip(position, start, strict=True)]
        along = leg.along
        s = sum(o * a for o, a in zip(offset, along, strict=True))
        assert hypot(*(o - s * a for o, a in zip(offset, along, strict=True))) < 1e-6
        assert -1e-9 <= s <= leg.length_m + 1e-9


def test_a_leg_of_no_length_is_done_at_once() -> None:
    leg = Leg(start_ned_m=(1.0, 2.0, -3.0), end_ned_m=(1.0, 2.0, -3.0), limits=LIMITS)
    reference = leg.advance((1.0, 2.0, -3.0), DT_S)
    assert reference.done
    assert reference.velocity_ned_mps == (0.0, 0.0, 0.0)
    assert leg.fraction == 1.0


def test_the_reference_waits_for_a_ship_that_does_not_come() -> None:
    leg = Leg(start_ned_m=(0.0, 0.0, -3.0), end_ned_m=(10.0, 0.0, -3.0), limits=LIMITS)
    for _ in range(6000):
        reference = leg.advance((0.0, 0.0, -3.0), DT_S)
    assert 0.5 < reference.position_ned_m[0] < 1.7
    assert hypot(*reference.velocity_ned_mps) < 0.05


def test_resume_starts_from_rest_beside_the_ship() -> None:
    leg = Leg(start_ned_m=(0.0, 0.0, -3.0), end_ned_m=(10.0, 0.0, -3.0), limits=LIMITS)
    follow(leg, seconds=10.0)
    leg.resume((2.5, 1.0, -3.0))
    reference = leg.advance((2.5, 1.0, -3.0), DT_S)
    assert reference.position_ned_m[0] == pytest.approx(2.5, abs=0.01)
    assert hypot(*reference.velocity_ned_mps) < 0.01
