"""The whole ship: free swing and drift, ground, energy, and bad input."""

from itertools import pairwise
from math import hypot, isfinite, pi

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blimp.airframe import Airframe
from blimp.rotation import euler, from_euler
from blimp.sim.atmosphere import GRAVITY_MPS2, isa
from blimp.sim.physics import MAX_STEP_S, Physics
from tests.sim.ships import (
    STEP_S,
    balanced,
    dragless,
    energy_j,
    fly,
    gtmab,
    twin,
    weighing,
)

NO3 = (0.0, 0.0, 0.0)
ALOFT_M = 30.0
ALOFT = (0.0, 0.0, -ALOFT_M)


def adrift(*, wind_mps: float = 0.0, seed: int = 1) -> Physics:
    """A balanced twin in the air."""
    ship = twin()
    height_m = ship.home.altitude_msl_m + ALOFT_M
    physics = Physics(airframe=balanced(ship, height_m=height_m), seed=seed, wind_mps=wind_mps)
    physics.place(position_ned_m=ALOFT)
    return physics


# --- on the ground ---------------------------------------------------------------------------


@pytest.mark.parametrize("ship", [twin(), gtmab()], ids=["twin", "gtmab"])
def test_it_stands_on_its_pad(ship: Airframe) -> None:
    physics = Physics(airframe=ship, seed=1)
    fly(physics, 5.0)
    state = physics.state
    assert state.on_ground
    assert state.t_s == pytest.approx(5.0)
    assert state.position_ned_m == pytest.approx(NO3, abs=1e-3)
    assert state.velocity_ned_mps == pytest.approx(NO3, abs=1e-6)
    assert physics.specific_force_body_mps2 == pytest.approx((0.0, 0.0, -GRAVITY_MPS2), abs=1e-4)
    assert physics.height_above_ground_m == pytest.approx(0.0, abs=1e-3)
    assert physics.touchdown_speed_mps == 0.0
    air = isa(ship.home.altitude_msl_m)
    assert physics.pressure_pa == pytest.approx(air.pressure_pa, abs=0.01)
    assert physics.temperature_c == pytest.approx(air.temperature_c, abs=1e-3)


def test_feet_hold_until_they_are_torn_off() -> None:
    ship = twin()
    held = Physics(airframe=weighing(ship, -0.5 * ship.ground.hold_n / GRAVITY_MPS2), seed=1)
    torn = Physics(airframe=weighing(ship, -1.5 * ship.ground.hold_n / GRAVITY_MPS2), seed=1)
    fly(held, 5.0)
    fly(torn, 5.0)
    assert held.state.on_ground
    assert torn.state.altitude_m > 0.5


def test_a_heavy_ship_sinks_and_stays_down() -> None:
    physics = Physics(airframe=weighing(twin(), 0.05), seed=1)
    physics.place(position_ned_m=(0.0, 0.0, -2.0))
    falling_mps = 0.0
    while not physics.state.on_ground:
        falling_mps = physics.state.velocity_ned_mps[2]
        fly(physics, STEP_S)
        assert physics.state.t_s < 60.0
    fly(physics, 0.1)
    assert physics.touchdown_speed_mps == pytest.approx(falling_mps, rel=0.02)
    assert 0.2 < physics.touchdown_speed_mps < 0.7
    highest_m = 0.0
    for _ in range(600):
        fly(physics, STEP_S)
        highest_m = max(highest_m, physics.height_above_ground_m)
    assert highest_m < 0.03
    assert physics.state.on_ground
    assert physics.state.velocity_ned_mps == pytest.approx(NO3, abs=1e-3)


# --- in the air ------------------------------------------------------------------------------


def test_forces_of_weight_and_lift() -> None:
    ship = twin()
    physics = Physics(airframe=ship, seed=1)
    physics.place(position_ned_m=(0.0, 0.0, -20.0))
    fly(physics, STEP_S)
    height_m = ship.home.altitude_msl_m + 20.0
    lift_n = isa(height_m).density_kg_m3 * ship.hull.volume_m3 * GRAVITY_MPS2
    heavy_n = ship.mass_kg * GRAVITY_MPS2 - lift_n
    moved_kg = ship.mass_kg + ship.aero.added_mass_kg[2]
    assert heavy_n > 0.0
    assert physics.state.velocity_ned_mps[2] == pytest.approx(heavy_n / moved_kg * STEP_S, rel=1e-3)


def test_a_ship_light_on_the_pad_finds_the_height_where_it_floats() -> None:
    ship = weighing(twin(), -0.003)
    ground = msgspec.structs.replace(ship.ground, hold_n=0.0)
    physics = Physics(airframe=msgspec.structs.replace(ship, ground=ground), seed=1)
    fly(physics, 300.0)
    # Density falls by 1.17e-4 kg/m^3 a metre: 3 g less lift after 16 m (3 m are used at home).
    density = ship.mass_kg / ship.hull.volume_m3
    floats_m = (1.0 - (density / isa(0.0).density_kg_m3) ** (1.0 / 4.2558)) * 288.15 / 0.0065
    found_m = physics.state.altitude_m + ship.home.altitude_msl_m
    assert found_m == pytest.approx(floats_m, abs=1.0)


def test_energy_stays_without_drag_and_falls_with_it() -> None:
    ship = balanced(twin(), height_m=400.0)

    def energies(variant: Airframe) -> list[float]:
        physics = Physics(airframe=variant, seed=1)
        physics.place(
            position_ned_m=(0.0, 0.0, -397.0),
            attitude=from_euler(0.3, 0.2, 1.0),
            velocity_ned_mps=(0.5, 0.3, 0.1),
            rates_body_radps=(0.5, 0.3, 0.6),
        )
        found = [energy_j(physics, variant)]
        for _ in range(3000):
            fly(physics, STEP_S)
            found.append(energy_j(physics, variant))
        return [energy - found[0] for energy in found]

    # 1.3 J move; second order: the error is a quarter of what twice the step makes.
    assert max(map(abs, energies(dragless(ship)))) < 1e-4
    losing = energies(ship)
    assert all(after < before for before, after in pairwise(losing))
    assert losing[-1] < -1.0


def test_half_the_step_gives_the_same_flight() -> None:
    flights = []
    for dt_s in (0.01, 0.005, 0.0025):
        physics = adrift()
        physics.place(
            position_ned_m=ALOFT, attitude=from_euler(0.1, 0.2, 0.0), velocity_ned_mps=(0.6, 0.2, 0)
        )
        for _ in range(round(20.0 / dt_s)):
            physics.step(dt_s, (0.5, 0.3, 0.2), (0.4, 0.1, -0.1))
        flights.append(physics.state.position_ned_m)
    coarse, middle, fine = flights
    assert middle == pytest.approx(fine, abs=0.01)
    assert coarse == pytest.approx(fine, abs=0.02)


def test_a_slipping_hull_turns_broadside() -> None:
    """The Munk moment wins: fins hold less than half of it."""
    physics = adrift()
    physics.place(position_ned_m=ALOFT, velocity_ned_mps=(0.6, 0.06, 0.0))
    fly(physics, 3.0)
    yaw = euler(physics.state.attitude)[2]
    assert yaw < -0.02  # the ship moves to the right of its nose; the nose goes left


def test_fins_large_enough_hold_the_nose_into_the_flow() -> None:
    ship = balanced(twin(), height_m=twin().home.altitude_msl_m + ALOFT_M)
    aero = msgspec.structs.replace(ship.aero, fin_lift_per_rad=3.0)
    physics = Physics(airframe=msgspec.structs.replace(ship, aero=aero), seed=1)
    physics.place(position_ned_m=ALOFT, velocity_ned_mps=(0.6, 0.06, 0.0))
    fly(physics, 1.5)
    assert euler(physics.state.attitude)[2] > 0.01


def test_a_free_ship_ends_up_moving_with_the_wind() -> None:
    physics = adrift(wind_mps=1.0, seed=7)
    fly(physics, 60.0)
    start = physics.state.position_ned_m
    wind = [0.0, 0.0]
    for _ in range(400):
        fly(physics, 0.5)
        wind[0] += 0.5 * physics.wind_ned_mps[0]
        wind[1] += 0.5 * physics.wind_ned_mps[1]
    end = physics.state.position_ned_m
    assert hypot(*wind) == pytest.approx(200.0, rel=0.35)
    # It follows slow gusts half a minute late, hence not to the metre.
    assert end[0] - start[0] == pytest.approx(wind[0], abs=8.0)
    assert end[1] - start[1] == pytest.approx(wind[1], abs=8.0)


def test_forces_depend_on_the_air_not_on_the_ground() -> None:
    """In steady wind everything happens as in still air, seen from the air."""
    still, windy = adrift(), adrift(wind_mps=2.0, seed=3)
    windy._wind._acceleration = NO3  # the one test that needs wind without its gusts
    windy._wind.step = lambda *_, **__: None  # type: ignore[method-assign]
    wind = windy.wind_ned_mps
    windy.place(position_ned_m=ALOFT, velocity_ned_mps=wind)
    for physics in (still, windy):
        fly(physics, 10.0, throttles=(0.6, 0.5, 0.2), servos=(0.3, 0.1, 0.2))
    carried = [10.0 * x for x in wind]
    for a, b, c in zip(
        still.state.position_ned_m, windy.state.position_ned_m, carried, strict=True
    ):
        # Not to the last bit: another height, if only by rounding, is another density.
        assert b - c == pytest.approx(a, abs=0.02)


def test_the_accelerometer_feels_the_swing() -> None:
    """Specific force is acceleration of the centre of gravity less gravity."""
    ship = gtmab()
    physics = Physics(airframe=ship, seed=1)
    physics.place(position_ned_m=ALOFT, attitude=from_euler(0.0, 0.2, 0.0))
    fly(physics, STEP_S)
    forward, _, down = physics.specific_force_body_mps2
    # Released from rest nose-up by 0.2 rad: only lift acts, up along the world's vertical,
    # and moved air slows it; gravity itself is not felt.
    assert forward == pytest.approx(1.95, abs=0.4)
    assert down == pytest.approx(-GRAVITY_MPS2, abs=0.3)


# --- actuators and battery -------------------------------------------------------------------


def test_tilt_turns_thrust_from_forward_to_up() -> None:
    def after(tilt_rad: float) -> tuple[float, float, float]:
        physics = adrift()
        fly(physics, 3.0, throttles=(0.6, 0.6, 0.0), servos=(tilt_rad, 0.0, 0.0))
        return physics.state.velocity_ned_mps

    assert after(0.0)[0] > 0.1
    assert abs(after(0.0)[2]) < 0.05
    assert after(0.5 * pi)[2] < -0.1
    assert after(-0.5 * pi)[2] > 0.1


def test_differential_thrust_and_tail_turn_it() -> None:
    right = adrift()
    fly(right, 3.0, throttles=(0.6, -0.6, 0.0))
    assert right.state.rates_body_radps[2] > 0.05
    left = adrift()
    fly(left, 3.0, throttles=(0.0, 0.0, 0.8))  # the stern goes right
    assert left.state.rates_body_radps[2] < -0.05


def test_thrust_below_or_beside_the_centre_turns_the_ship() -> None:
    for throttles, tilt_rad, axis in (((0.6, 0.6, 0.0), 0.0, 1), ((0.6, -0.6, 0.0), 0.5 * pi, 0)):
        physics = adrift()
        fly(physics, 0.5, throttles=throttles, servos=(tilt_rad, 0.0, 0.0))
        assert physics.state.rates_body_radps[axis] > 0.01, "the nose goes up, or left does"


def test_rudder_and_elevator_work_with_airspeed_only() -> None:
    for servos, axis in (((0.0, 0.0, 0.5), 2), ((0.0, 0.5, 0.0), 1)):
        resting, moving = adrift(), adrift()
        moving.place(position_ned_m=ALOFT, velocity_ned_mps=(0.7, 0.0, 0.0))
        fly(resting, 1.0, servos=servos)
        fly(moving, 1.0, servos=servos)
        assert resting.state.rates_body_radps[axis] == pytest.approx(0.0, abs=1e-6)
        assert moving.state.rates_body_radps[axis] > 0.01


def test_the_battery_sags_with_the_throttle_and_empties() -> None:
    battery = msgspec.structs.replace(twin().battery, capacity_ah=0.05)
    physics = Physics(airframe=msgspec.structs.replace(twin(), battery=battery), seed=1)
    full_v = physics.battery_v
    idle_a = physics.battery_current_a
    fly(physics, 1.0, throttles=(1.0, 1.0, 1.0))
    sag_v = (physics.battery_current_a - idle_a) * battery.resistance_ohm
    assert sag_v > 0.05
    emptier_v = 2.0 * (4.20 - 4.10) * (1.0 - physics.battery_charge) / 0.1
    assert physics.battery_v == pytest.approx(full_v - sag_v - emptier_v, abs=0.002)
    full_n = physics.thrusts_n[2]
    fly(physics, 40.0, throttles=(1.0, 1.0, 1.0), servos=(-1.5, 0.0, 0.0))
    assert physics.battery_charge < 0.5
    assert physics.thrusts_n[2] < 0.9 * full_n


# --- bad input, and the bits -----------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_an_input_that_is_no_number_is_refused_by_name(value: float) -> None:
    physics = Physics(airframe=twin(), seed=1)
    before = physics.state
    with pytest.raises(ValueError, match=r"throttle of 'right' is"):
        physics.step(STEP_S, (0.0, value, 0.0), (0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match=r"servo 'elevator' is"):
        physics.step(STEP_S, (0.0, 0.0, 0.0), (0.0, value, 0.0))
    assert physics.state == before


def test_a_wrong_count_or_step_is_refused() -> None:
    physics = Physics(airframe=twin(), seed=1)
    with pytest.raises(ValueError, match="left, right, tail"):
        physics.step(STEP_S, (0.0, 0.0), (0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="got 3 throttles and 0 servo targets"):
        physics.step(STEP_S, (0.0, 0.0, 0.0), ())
    for dt_s in (0.0, -0.005, 1.01 * MAX_STEP_S, float("nan")):
        with pytest.raises(ValueError, match="dt_s"):
            physics.step(dt_s, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


def test_the_same_seed_gives_the_same_flight_to_the_bit() -> None:
    def run(seed: int) -> object:
        physics = Physics(airframe=twin(), seed=seed, wind_mps=0.5)
        fly(physics, 5.0, throttles=(0.9, 0.8, 0.1), servos=(1.2, 0.0, 0.1))
        return physics.state

    assert run(1) == run(1)
    assert run(1) != run(2)


@settings(max_examples=100, deadline=None)
@given(
    ship=st.sampled_from([twin(), gtmab()]),
    wind_mps=st.floats(0.0, 15.0),
    seed=st.integers(0, 2**32),
    height_m=st.floats(-0.5, 100.0),
    angles=st.tuples(*[st.floats(-3.2, 3.2)] * 3),
    rates=st.tuples(*[st.floats(-10.0, 10.0)] * 3),
    velocity=st.tuples(*[st.floats(-15.0, 15.0)] * 3),
    inputs=st.lists(st.floats(-1e6, 1e6), min_size=8, max_size=8),
    dt_s=st.floats(1e-4, MAX_STEP_S),
)
def test_whatever_happens_stays_finite(
    ship: Airframe,
    wind_mps: float,
    seed: int,
    height_m: float,
    angles: tuple[float, float, float],
    rates: tuple[float, float, float],
    velocity: tuple[float, float, float],
    inputs: list[float],
    dt_s: float,
) -> None:
    physics = Physics(airframe=ship, seed=seed, wind_mps=wind_mps)
    physics.place(
        position_ned_m=(0.0, 0.0, -height_m),
        attitude=from_euler(*angles),
        velocity_ned_mps=velocity,
        rates_body_radps=rates,
    )
    motors, servos = len(ship.thruster), len(ship.servo)
    for _ in range(200):
        physics.step(dt_s, inputs[:motors], inputs[5 : 5 + servos])
    state = physics.state
    values = (
        *state.attitude,
        *state.position_ned_m,
        *state.velocity_ned_mps,
        *state.rates_body_radps,
        *physics.specific_force_body_mps2,
        *physics.thrusts_n,
        physics.pressure_pa,
        physics.battery_v,
        physics.height_above_ground_m,
    )
    assert all(isfinite(value) for value in values)
    assert hypot(*state.attitude) == pytest.approx(1.0, abs=1e-9)
    assert hypot(*state.velocity_ned_mps) < 60.0
    assert physics.height_above_ground_m > -4.0  # the ground gives: 15 m/s is no landing
