"""The oracle's bounds: never sure that a ship is lost while somebody might hold it down."""

import pytest

from blimp import airframe as airframes
from blimp.ship.failures import BY_NAME
from blimp.ship.lockstep import Lockstep
from blimp.ship.oracle import Bounds, bounds


def of(airframe: str, failure: str, *, load: float = 0.0, wind_mps: float = 0.0) -> Bounds:
    with Lockstep(airframe, seed=1, held=True) as ship:
        physics = ship.world.physics
        physics.load(load * physics.displaced_kg)
        return bounds(ship, BY_NAME[failure], wind_mps=wind_mps)


def reason(bounds: Bounds) -> str:
    return bounds.hopeless(far_m=40.0, hard_mps=0.5, seconds=300.0)


@pytest.mark.parametrize("failure", ["none", "left-dead", "mains-full", "tail-full", "baro-dead"])
def test_what_still_pushes_down_is_never_hopeless(failure: str) -> None:
    assert reason(of("twin", failure, load=-0.02, wind_mps=0.5)) == ""


def test_a_healthy_twin_pushes_by_all_of_both_propellers() -> None:
    main_n = sum((1.0 + t.asymmetry) * t.max_thrust_n for t in airframes.load("twin").thruster[:2])
    found = of("twin", "none")
    assert found.down_n == pytest.approx(main_n, rel=1e-3)
    assert found.aside_n == pytest.approx((main_n**2 + 0.4**2) ** 0.5, rel=1e-3)


@pytest.mark.parametrize("failure", ["mains-dead", "tilt-ahead", "i2c-stuck"])
def test_a_light_ship_that_nothing_pushes_down_is_lost(failure: str) -> None:
    assert "light by 0.322 N, pushed down by 0.000 N" in reason(of("twin", failure, load=-0.02))
    assert reason(of("twin", failure, load=0.01)) == ""  # heavy, it sinks by itself


def test_ballast_that_is_lost_counts_though_it_is_still_there() -> None:
    assert of("twin", "ballast-lost").heavy_n < 0.0 < of("twin", "none").heavy_n


def test_a_bridge_that_sleeps_stops_what_is_stuck_and_its_neighbour() -> None:
    """Else both, full ahead, would push up at every angle that pushes down."""
    found = of("twin", "mains-full")
    assert found.down_n > 1.0
    assert of("twin", "mains-dead").down_n == pytest.approx(0.0, abs=1e-9)


def test_a_wind_that_nothing_pushes_against_carries_a_ship_off_before_it_is_down() -> None:
    hard = Bounds(
        down_n=0.001, up_n=0.0, aside_n=0.0, heavy_n=0.0, wind_n=0.05, wind_mps=0.5, grip_n=1.0,
        height_m=10.0, heave=(0.01, 0.0), surge=(0.01, 0.1),
    )  # fmt: skip
    assert "50 m off after 300 s" in reason(hard)


def test_a_ship_too_heavy_to_brake_touches_down_hard() -> None:
    heavy = Bounds(
        down_n=0.0, up_n=0.1, aside_n=1.0, heavy_n=0.5, wind_n=0.0, wind_mps=0.0, grip_n=1.0,
        height_m=2.0, heave=(0.0, 0.4), surge=(0.01, 0.1),
    )  # fmt: skip
    assert "it sinks at 1.00 m/s" in reason(heavy)
