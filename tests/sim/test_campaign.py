"""The campaign's draws and counts; thousands of flights are `python -m benchmarks.campaign`."""

from collections import Counter

import pytest

from benchmarks.campaign import (
    LOAD,
    Draw,
    draw_healthy,
    fly_cell,
    fly_healthy,
    load_ship,
    plant_of,
    wind_limit_mps,
)
from benchmarks.consistency import QUANTITIES, fly, row_of
from blimp.service.airframes.check import check
from blimp.ship.lockstep import Lockstep
from blimp.types import OutcomeState

SHIPS = ("twin", "gtmab", "hobby", "blimp2b")


@pytest.mark.long
def test_a_healthy_draw_is_a_ship_that_can_fly_in_a_wind_that_it_can_hold() -> None:
    draws = [draw_healthy(n, seed=3, ships=SHIPS, watch_s=1.0) for n in range(60)]
    assert draws == [draw_healthy(n, seed=3, ships=SHIPS, watch_s=1.0) for n in range(60)]
    assert min(Counter(draw.airframe for draw in draws).values()) >= 5
    for draw in draws:
        plant = plant_of(load_ship(draw.airframe), draw)
        assert check(plant).ok
        assert 0.0 <= draw.wind_mps <= wind_limit_mps(plant)
        assert abs(draw.load) <= LOAD
    assert min(draw.load for draw in draws) < -0.04
    assert max(draw.load for draw in draws) > 0.04


@pytest.mark.long
@pytest.mark.parametrize("thrust_scale", [0.9, 1.0])
def test_a_blimp2b_that_is_one_percent_heavy_lifts(thrust_scale: float) -> None:
    """Its propeller lifts twice of what it pushes down, and has to lift half of that."""
    draw = Draw(airframe="blimp2b", seed=1001, load=0.01, thrust_scale=thrust_scale)
    ship = load_ship("blimp2b")
    assert check(plant_of(ship, draw)).ok
    with Lockstep(ship, seed=draw.seed, wind_mps=0.15, plant=plant_of(ship, draw)) as flight:
        flight.command("arm")
        climb_s = 2.0 / ship.limits.climb_mps
        outcome = flight.complete("takeoff", within_s=3.0 * climb_s, altitude_m=2.0)
        assert outcome.state is OutcomeState.DONE
        assert flight.truth.altitude_m > 1.5


@pytest.mark.long
def test_a_ship_without_side_force_flies_in_a_wind_near_what_it_can_hold() -> None:
    """With its nose in the wind all of its surge may be needed: here in more than it should."""
    draw = Draw(airframe="hobby", seed=1002, wind_mps=0.75, watch_s=1.0)
    assert wind_limit_mps(load_ship("hobby")) < draw.wind_mps
    flown = fly_healthy(draw)
    assert (flown.bad, flown.accused) == ((), ())


@pytest.mark.long
def test_a_light_ship_whose_thrust_is_upright_turns_it_over_to_come_down() -> None:
    """Of what was asked down and what was asked to turn, the turn had kept its servo upright."""
    draw = Draw(
        airframe="cloudship",
        seed=729039,
        load=-0.00751,
        wind_mps=0.219,
        mode="hold",
        failures=("accel-z-reversed",),
    )
    assert "unsafe" not in fly_cell(draw).bad


@pytest.mark.long
def test_a_heavy_ship_whose_side_motor_is_named_in_its_take_off_lands_gently() -> None:
    """It fell at 0.68 m/s: what it weighs had been forgotten."""
    draw = Draw(
        airframe="gtmab", seed=123957, load=0.038407, wind_mps=0.28119, mode="takeoff",
        failures=("left-full",),
    )  # fmt: skip
    assert fly_cell(draw).bad == ()


@pytest.mark.long
@pytest.mark.parametrize(
    ("draw", "velocity_mps"),
    [
        (Draw(airframe="twin", seed=5, load=0.02, wind_mps=0.2, drag_scale=1.4), 0.035),
        (Draw(airframe="gtmab", seed=6, load=-0.01, wind_mps=0.1, thrust_scale=0.9), 0.035),
        # It swings in this wind, and its IMU rises and falls otherwise than its hull.
    ],
    ids=lambda value: getattr(value, "airframe", ""),
)
def test_the_estimator_knows_how_good_it_is(draw: Draw, velocity_mps: float) -> None:
    """The velocity was .05 m/s wrong with noises that one ship was tuned to."""
    airframe, squares = fly(draw)
    row = row_of(airframe, [squares])
    for name in QUANTITIES:
        assert row[name]["worst"] < 2.5, name
        assert row[name]["within_95"] > 0.8, name
    assert row["velocity"]["rms"] < velocity_mps
