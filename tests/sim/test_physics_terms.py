"""Terms that most ships lack: gas that warms and leaks, wings, moving masses, play, temperature."""

import struct
from importlib import resources
from itertools import pairwise
from math import cos, radians, sin
from statistics import fmean

import msgspec
import pytest

from blimp import airframe
from blimp.airframe import Airframe, Polar, Servo
from blimp.errors import AirframeError
from blimp.rotation import euler, from_euler
from blimp.sim.aerodynamics import Aerodynamics, Lift
from blimp.sim.atmosphere import gas_density_kg_m3, isa
from blimp.sim.physics import Physics
from blimp.sim.rigid_body import RigidBody
from blimp.sim.servo import ServoArm
from tests.sim.bench import Bench, read
from tests.sim.ships import STEP_S, fly, gtmab, twin

replace = msgspec.structs.replace


def with_hull(**changes: object) -> Airframe:
    return replace(twin(), hull=replace(twin().hull, **changes))


def aloft(ship: Airframe, *, height_m: float = 20.0) -> Physics:
    physics = Physics(airframe=ship, seed=1)
    physics.place(position_ned_m=(0.0, 0.0, -height_m))
    return physics


# --- gas and air -----------------------------------------------------------------------------


def test_superheat_lifts_latex_and_slack_foil_but_not_taut_foil() -> None:
    """V = V0 (p0 / p) (T / T0): 10 degrees of 288 are 3.5 % of what the hull displaces."""
    for hull, share in (
        ({"envelope": "latex"}, 10.0 / (isa(23.0).temperature_c + 273.15)),
        ({"taut_m3": 1.1 * twin().hull.volume_m3}, 10.0 / (isa(23.0).temperature_c + 273.15)),
        ({}, 0.0),
    ):
        physics = aloft(with_hull(**hull))
        cold_kg = physics.displaced_kg
        physics.weather(superheat_c=10.0)
        assert physics.displaced_kg / cold_kg - 1.0 == pytest.approx(share, abs=1e-12)
        assert physics.heaviness_kg == pytest.approx(twin().mass_kg - physics.displaced_kg)


def test_latex_carries_the_same_at_every_height_and_foil_does_not() -> None:
    latex = with_hull(envelope="latex")
    low, high = aloft(latex, height_m=0.0), aloft(latex, height_m=500.0)
    assert high.displaced_kg == pytest.approx(low.displaced_kg, rel=1e-12)
    low, high = aloft(twin(), height_m=0.0), aloft(twin(), height_m=500.0)
    ratio = isa(503.0).density_kg_m3 / isa(3.0).density_kg_m3
    assert high.displaced_kg / low.displaced_kg == pytest.approx(ratio, rel=1e-12)


def test_foil_that_cools_goes_slack_and_falls() -> None:
    physics = aloft(twin())
    physics.weather(superheat_c=-10.0)
    before_m = physics.state.altitude_m
    fly(physics, 10.0)
    assert physics.state.altitude_m < before_m - 1.0


def test_warm_air_carries_less() -> None:
    physics = aloft(twin())
    physics.weather(warmer_c=10.0)
    kelvin = isa(23.0).temperature_c + 273.15
    assert physics.temperature_c == pytest.approx(isa(23.0).temperature_c + 10.0)
    assert physics.pressure_pa == isa(23.0).pressure_pa
    expected_kg = isa(23.0).density_kg_m3 * twin().hull.volume_m3 * kelvin / (kelvin + 10.0)
    assert physics.displaced_kg == pytest.approx(expected_kg, rel=1e-12)


def test_a_leak_takes_lift_less_the_weight_of_the_gas_by_its_purity() -> None:
    for purity in (1.0, 0.9):
        physics = Physics(airframe=with_hull(helium_purity=purity, envelope="latex"), seed=1)
        before_kg, lift_kg = physics.heaviness_kg, physics.displaced_kg
        physics.leak(86_400.0 * 0.001)  # a litre a second
        fly(physics, 10.0)
        lost_m3 = 0.01
        sunk_kg = lift_kg - physics.displaced_kg
        assert sunk_kg == pytest.approx(lost_m3 * lift_kg / twin().hull.volume_m3, rel=1e-6)
        heavier_kg = physics.heaviness_kg - before_kg
        gas_kg = gas_density_kg_m3(purity) * lost_m3
        assert heavier_kg == pytest.approx(sunk_kg - gas_kg, rel=1e-6)


def test_bad_weather_is_refused() -> None:
    physics = aloft(twin())
    for bad in (61.0, -61.0, float("nan")):
        with pytest.raises(ValueError, match=r"superheat_c is .*must be from -60 to 60"):
            physics.weather(superheat_c=bad)
        with pytest.raises(ValueError, match="warmer_c is"):
            physics.weather(warmer_c=bad)
    for bad in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="must be finite, not negative"):
            physics.leak(bad)


# --- wings ----------------------------------------------------------------------------------

WING = Polar(
    area_m2=0.25, drag=(0.2, 4.0, 7.0), side=(0.01, -0.1, -2.0), lift=(0.15, 3.0, 4.5),
    roll=(0.01, -0.03, -0.5), pitch=(0.05, 0.1, 5.0), yaw=(0.001, -0.002, -0.1),
    damping=(0.05, 0.03, 0.01),
)  # fmt: skip


def test_lift_and_drag_of_an_angle_of_attack() -> None:
    a, speed = radians(12.0), 0.6
    velocity = (speed * cos(a), 0.0, speed * sin(a))
    fx, fy, fz, nx, ny, nz = Lift(WING).wrench(velocity, (0.0, 0.0, 0.0))
    q = 0.5 * 1.2250 * speed**2 * 0.25
    drag, lift = q * (0.2 + 4.0 * a * a), q * (0.15 + 3.0 * a)
    # Drag is against the flow, lift across it and up: in body axes by turning through a.
    assert fx == pytest.approx(-drag * cos(a) + lift * sin(a))
    assert fz == pytest.approx(-drag * sin(a) - lift * cos(a))
    assert fy == pytest.approx(q * (0.01 - 0.1 * a * a))
    assert ny == pytest.approx(q * (0.05 + 0.1 * a))
    roll, yaw = q * (0.01 - 0.03 * a), q * (0.001 - 0.002 * a)
    assert (nx, nz) == pytest.approx((roll * cos(a) - yaw * sin(a), roll * sin(a) + yaw * cos(a)))


def test_sideslip_pushes_back_and_both_sides_alike() -> None:
    b, speed = radians(10.0), 0.5
    even = replace(WING, side=(0.0, 0.0, -2.0), roll=(0.0, 0.0, -0.5), yaw=(0.0, 0.0, -0.1))
    right, left = (
        Lift(even).wrench((speed * cos(s * b), speed * sin(s * b), 0.0), (0.0, 0.0, 0.0))
        for s in (1.0, -1.0)
    )
    q = 0.5 * 1.2250 * speed**2 * 0.25
    drag = q * (0.2 + 7.0 * b * b)
    assert right[1] == pytest.approx(-drag * sin(b) - q * 2.0 * b * cos(b))
    for mirrored, (one, other) in zip(
        (False, True, False, True, False, True), zip(right, left, strict=True), strict=True
    ):
        assert one == pytest.approx(-other if mirrored else other)


@pytest.mark.parametrize("axis", range(6))
def test_drag_is_against_each_motion_and_turn(axis: int) -> None:
    for way in (0.4, -0.4):
        u, v, w, p, q, r = (way if each == axis else 0.0 for each in range(6))
        wrench = Aerodynamics(airframe=gtmab()).wrench((u, v, w), (p, q, r), (0.0,) * 3)
        assert wrench[axis] * way < 0.0


def test_a_ship_at_rest_or_pushed_sideways_has_finite_forces() -> None:
    lift = Lift(WING)
    assert lift.wrench((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)) == pytest.approx((0.0,) * 6)
    spinning = lift.wrench((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    assert spinning[3:] == pytest.approx((-0.05, -0.03, -0.01))
    sideways = lift.wrench((0.0, 0.5, 0.0), (0.0, 0.0, 0.0))
    assert sideways[1] < 0.0


# --- mass that moves --------------------------------------------------------------------------


def test_a_gondola_that_moves_pitches_the_ship_by_its_moment() -> None:
    """tan(pitch) = shift of the centre of gravity over its depth."""
    ship = airframe.load("rgblimp")
    aero = replace(ship.aero, polar=None, linear_drag=(0.05, 0.05, 0.05, 0.01, 0.01, 0.01))
    physics = Physics(airframe=replace(ship, aero=aero), seed=1)
    physics.place(position_ned_m=(0.0, 0.0, -200.0))
    fly(physics, 40.0, servos=(0.8,))
    shift_m = 0.05407 / ship.mass_kg * 0.8 * 0.05
    x, _, z = ship.mass.center_of_gravity_m
    pitch = euler(physics.state.attitude)[1]
    assert sin(pitch) / cos(pitch) == pytest.approx(-(x + shift_m) / z, abs=0.01)


def test_a_shift_there_and_back_is_no_shift_and_the_axis_theorem_holds() -> None:
    ship = airframe.load("rgblimp")
    home = RigidBody.of(ship, mass_kg=ship.mass_kg, angles_rad=(0.0,))
    moved = RigidBody.of(ship, mass_kg=ship.mass_kg, angles_rad=(0.8,))
    by_m, m, (x, _, z) = 0.04, 0.05407, (0.0747, 0.0006, 0.238)
    assert moved.matrix[4][4] - home.matrix[4][4] == pytest.approx(m * ((x + by_m) ** 2 - x**2))
    assert moved.matrix[3][5] - home.matrix[3][5] == pytest.approx(-m * by_m * z)
    again = RigidBody.of(ship, mass_kg=ship.mass_kg, angles_rad=(0.0,))
    assert again.matrix == home.matrix


def test_products_of_inertia_couple_roll_and_yaw() -> None:
    zero = (0.0, 0.0, 0.0)
    body = RigidBody(
        mass_kg=1.0, inertia_kg_m2=(2.0, 3.0, 4.0), center_of_gravity_m=zero, added_mass_kg=zero,
        added_inertia_kg_m2=zero, products_kg_m2=(0.0, 0.5, 0.0),
    )  # fmt: skip
    found = body.accelerations(zero, zero, zero, (1.0, 0.0, 0.0), zero)
    assert found[3:] == pytest.approx((4.0 / 7.75, 0.0, 0.5 / 7.75))


def test_mistakes_in_the_new_parts_are_named() -> None:
    text = (resources.files("blimp.airframes") / "rgblimp.toml").read_text("utf-8")
    for old, new, words in (
        ('servo = "gondola"', 'servo = "rail"', "a moving mass is moved by no servo 'rail'"),
        ("mass_kg = 0.05407", "mass_kg = 1.0", "must be less than the ship's"),
        ("length_m = 0.85", "taut_m3 = 0.1\nlength_m = 0.85", "taut_m3 0.1 is less than the gas"),
        ("length_m = 0.85", 'envelope = "paper"\nlength_m = 0.85', "envelope"),
        ("area_m2 = 0.248714", "area_m2 = -1.0", "area_m2"),
    ):
        assert old in text
        with pytest.raises(AirframeError, match=words):
            airframe.parse(text.replace(old, new, 1), where="mine.toml")


# --- play, and temperature ---------------------------------------------------------------------


def test_play_must_be_crossed_before_anything_moves() -> None:
    servo = Servo(name="tilt", min_rad=-1.0, max_rad=1.0, slew_radps=1.0, backlash_rad=0.1)
    arm = ServoArm(servo=servo)
    angles = [arm.step(0.01, 0.5) for _ in range(60)]
    assert angles[4] == 0.0  # 0.05 rad of the shaft: half the play
    assert angles[-1] == pytest.approx(0.45)
    back = [arm.step(0.01, 0.0) for _ in range(60)]
    assert back[9] == pytest.approx(0.45)  # the whole play, 0.1 rad
    assert back[-1] == pytest.approx(0.05)
    assert max(abs(b - a) for a, b in pairwise(angles[5:])) < 0.0101


def test_a_gyros_bias_moves_with_temperature_and_noise_does_not() -> None:
    """As many degrees per second as the part's own coefficient says; none where it stays."""

    def counts(warmer_c: float) -> list[tuple[int, ...]]:
        bench = Bench()
        chip = bench.fit("imu")
        chip.write(b"\x6b\x01")
        bench.truth.temperature_c += warmer_c
        found = []
        for _ in range(50):
            bench.run(0.01)
            found.append(struct.unpack(">3h", read(chip, 0x43, 6)))
        return found

    def means(rows: list[tuple[int, ...]]) -> list[float]:
        return [fmean(column) / 131.072 for column in zip(*rows, strict=True)]

    still, warm, warmer = (means(counts(c)) for c in (0.0, 20.0, 40.0))
    moved = [b - a for a, b in zip(still, warm, strict=True)]
    assert max(map(abs, moved)) > 0.2
    assert all(abs(dps) < 4.0 * 0.05 * 20.0 for dps in moved)
    assert [c - a for a, c in zip(still, warmer, strict=True)] == pytest.approx(
        [2.0 * dps for dps in moved], abs=0.02
    )


def test_a_compasss_offset_moves_with_temperature() -> None:
    def field_t(warmer_c: float) -> tuple[float, ...]:
        bench = Bench()
        chip = bench.fit("imu", chip="icm20948", address=0x69)
        bench.truth.temperature_c += warmer_c
        chip.compass.write(0x31, 0x08)  # 100 Hz
        found = []
        for _ in range(50):
            bench.run(0.01)
            found.append(struct.unpack("<3h", chip.compass.read(0x11, 6)))
        return tuple(fmean(column) * 0.15e-6 for column in zip(*found, strict=True))

    moved = [b - a for a, b in zip(field_t(0.0), field_t(30.0), strict=True)]
    assert 0.2e-6 < max(map(abs, moved)) < 6e-6


def test_the_pendulum_still_swings() -> None:
    """The parts above leave the plain ship as it was: gtmab's published 0.700 Hz."""
    physics = Physics(airframe=gtmab(), seed=1)
    physics.place(position_ned_m=(0.0, 0.0, -20.0), attitude=from_euler(0.0, 0.1, 0.0))
    crossings, last = [], 0.1
    for _ in range(round(6.0 / STEP_S)):
        fly(physics, STEP_S)
        pitch = euler(physics.state.attitude)[1]
        if last > 0.0 >= pitch:
            crossings.append(physics.state.t_s)
        last = pitch
    period_s = (crossings[-1] - crossings[0]) / (len(crossings) - 1)
    assert 1.0 / period_s == pytest.approx(0.700, abs=0.01)
