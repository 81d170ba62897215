"""Ships that nobody has tuned for fly like the others.

More of them: `python -m benchmarks.campaign healthy --random-ships 100 --flights 500`.
"""

from random import Random

import pytest

from benchmarks.campaign import Draw, again, fly_cell, fly_healthy, load_ship, wind_limit_mps
from benchmarks.random_ship import random_ship
from blimp.control.samples import role
from blimp.service.airframes.check import check
from blimp.ship.failures import BY_NAME

CALM = 0.3  # of the wind that a ship can hold: what it does at its limit is for the campaign
FIXED = (0, 1, 3, 8, 9)
FAILURES = ("none", "imu-dead", "baro-dead", "link-lost", "crash")


def draw(seed: int, **given: object) -> Draw:
    chance, name = Random(seed), f"ship-{seed}"
    wind_mps = chance.uniform(0.0, CALM) * wind_limit_mps(load_ship(name))
    load = chance.uniform(-0.01, 0.01)
    return Draw(airframe=name, seed=seed, load=load, wind_mps=wind_mps, **given)  # type: ignore[arg-type]


def test_ships_of_all_layouts_and_sensors_are_drawn_and_each_can_fly() -> None:
    ships = [random_ship(seed) for seed in range(60)]
    random_ship.cache_clear()
    assert ships == [random_ship(seed) for seed in range(60)]
    assert all(check(ship).ok for ship in ships)
    assert len({ship.thruster_names for ship in ships}) == 6
    tilts = ("tilt-left", "tilt-right")
    assert {ship.servo_names for ship in ships} == {(), ("tilt",), tilts, ("rudder",)}
    assert {bool(ship.surface) for ship in ships if "rudder" in ship.servo_names} == {True}
    assert len({device.chip for ship in ships for device in ship.device}) >= 17
    assert all({"imu", "baro", "power"} <= {*map(role, ship.device)} for ship in ships)
    masses = sorted(ship.mass_kg for ship in ships)
    assert masses[-1] > 30.0 * masses[0]


def fly(seed: int) -> None:
    flown = fly_healthy(draw(seed, watch_s=5.0))
    assert (flown.bad, flown.accused) == ((), ()), again(
        "python -m benchmarks.campaign healthy", flown.draw
    )


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", FIXED[::2])
def test_a_ship_that_the_check_accepts_flies_a_square(seed: int) -> None:
    fly(seed)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("seed", "failure"), list(zip(FIXED, FAILURES, strict=True)))
def test_a_ship_that_the_check_accepts_survives_a_cell_of_the_matrix(
    seed: int, failure: str
) -> None:
    assert BY_NAME[failure].fits(random_ship(seed))
    flown = fly_cell(draw(seed, mode="hold", failures=(failure,)))
    assert (flown.bad, flown.accused) == ((), ()), again(
        "python -m benchmarks.campaign cells", flown.draw
    )
