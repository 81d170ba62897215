"""The published ship does what was published of it."""

from math import log, pi, sqrt

import msgspec
import pytest

from blimp.airframe import Airframe, Thruster
from blimp.rotation import euler, from_euler
from blimp.sim.atmosphere import GRAVITY_MPS2, isa
from blimp.sim.physics import Physics
from tests.sim.ships import STEP_S, balanced, fly, gtmab

ALOFT = (0.0, 0.0, -5.0)


def neutral() -> Airframe:
    """Without the heaviness that the published model leaves out."""
    return balanced(gtmab(), height_m=-ALOFT[2])


def test_published_constants() -> None:
    ship = gtmab()
    assert ship.mass_kg == pytest.approx(0.1249, abs=1e-6)
    assert ship.mass.center_of_gravity_m == (0.0, 0.0, 0.09705)
    assert ship.mass.inertia_kg_m2 == (0.005821,) * 3
    assert ship.aero.added_mass_kg == (0.0466, 0.0466, 0.0545)
    assert ship.aero.linear_drag == (0.0125, 0.0125, 0.0480, 0.00098, 0.00098, 0.00098)


@pytest.mark.parametrize("axis", [0, 1], ids=["roll", "pitch"])
def test_it_swings_at_0_7_hz(axis: int) -> None:
    physics = Physics(airframe=neutral(), seed=1)
    angles = [0.0, 0.0, 0.0]
    angles[axis] = 0.05
    physics.place(position_ned_m=ALOFT, attitude=from_euler(*angles))
    crossings, peaks = [], []
    past, last = 0.05, 0.05
    for step in range(round(30.0 / STEP_S)):
        physics.step(STEP_S, (0.0,) * 5, ())
        angle = euler(physics.state.attitude)[axis]
        if last < 0.0 <= angle:
            crossings.append((step - last / (angle - last)) * STEP_S)
        if past < last > angle:
            peaks.append(last)
        past, last = last, angle
    frequency_hz = (len(crossings) - 1) / (crossings[-1] - crossings[0])
    decrement = log(peaks[0] / peaks[-1]) / (len(peaks) - 1)
    damping = decrement / sqrt(4.0 * pi**2 + decrement**2)
    assert frequency_hz == pytest.approx(0.700, abs=0.0005)
    assert damping == pytest.approx(0.0193, abs=0.0001)


@pytest.mark.parametrize(
    ("axis", "velocity", "time_constant_s"),
    [(0, (0.3, 0.0, 0.0), 13.7), (1, (0.0, 0.3, 0.0), 13.7), (2, (0.0, 0.0, 0.3), 3.74)],
    ids=["surge", "sway", "heave"],
)
def test_it_slows_down_in_its_time(
    axis: int, velocity: tuple[float, float, float], time_constant_s: float
) -> None:
    ship = neutral()
    if axis < 2:  # the published constant is of translation alone: hold the swing still
        ship = msgspec.structs.replace(
            ship, mass=msgspec.structs.replace(ship.mass, inertia_kg_m2=(1e5, 1e5, 1e5))
        )
    physics = Physics(airframe=ship, seed=1)
    physics.place(position_ned_m=ALOFT, velocity_ned_mps=velocity)
    fly(physics, 2.0)
    found_s = 2.0 / log(0.3 / physics.state.velocity_ned_mps[axis])
    assert found_s == pytest.approx(time_constant_s, rel=0.01)


def test_yaw_slows_down_in_its_time() -> None:
    physics = Physics(airframe=neutral(), seed=1)
    physics.place(position_ned_m=ALOFT, rates_body_radps=(0.0, 0.0, 1.0))
    fly(physics, 4.0)
    assert 4.0 / -log(physics.state.rates_body_radps[2]) == pytest.approx(5.94, rel=0.002)


def test_it_ends_at_thrust_over_drag() -> None:
    ship = neutral()
    physics = Physics(airframe=ship, seed=1)
    physics.place(position_ned_m=ALOFT)
    fly(physics, 30.0, throttles=(0.0, 0.0, 0.0, 0.0, 0.3))
    # It has climbed 10 m since, where the air carries a thousandth less.
    carried_kg = isa(physics.state.altitude_m).density_kg_m3 * ship.hull.volume_m3
    heavier_n = (ship.mass_kg - carried_kg) * GRAVITY_MPS2
    climb_mps = -physics.state.velocity_ned_mps[2]
    assert climb_mps == pytest.approx((physics.thrusts_n[4] - heavier_n) / 0.0480, rel=0.02)


def test_published_limits_come_out_of_the_thrusters() -> None:
    ship = gtmab()

    def limit(of: tuple[float, float, float, float]) -> tuple[float, float]:
        """The most and the least of fx, fy, fz and tau_z weighed by `of`."""
        most = least = 0.0
        for thruster in ship.thruster:
            gain = sum(a * b for a, b in zip(of, _effect(thruster), strict=True))
            ends = (gain * thruster.max_thrust_n, -gain * thruster.reverse_thrust_n)
            most += max(ends)
            least += min(ends)
        return most, least

    assert limit((1.0, 0.0, 0.0, 0.0)) == pytest.approx((0.035, -0.035))
    assert limit((0.0, 1.0, 0.0, 0.0)) == pytest.approx((0.035, -0.035))
    assert limit((0.0, 0.0, 1.0, 0.0)) == pytest.approx((0.2, -0.2))
    assert limit((0.0, 0.0, 0.0, 1.0)) == pytest.approx((0.001, -0.001), rel=1e-5)


def _effect(thruster: Thruster) -> tuple[float, float, float, float]:
    x, y, _ = thruster.position_m
    ax, ay, az = thruster.axis
    return ax, ay, az, x * ay - y * ax
