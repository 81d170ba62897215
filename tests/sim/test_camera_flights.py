"""A ship whose only position is its camera's, with the errors that rendered pictures showed."""

from math import dist, hypot, radians

import pytest

from benchmarks import balloon
from blimp.ship.lockstep import Lockstep


def test_it_takes_off_holds_and_lands_by_its_camera() -> None:
    with Lockstep("gtmab-eye", seed=31, wind_mps=0.1) as ship:
        assert ship.problems() == ()
        ship.command("arm")
        ship.complete("takeoff", within_s=40.0, altitude_m=1.5)
        ship.step(10.0)
        health = ship.state.health
        assert health.position.witnesses == ("camera",)
        assert "camera" in health.height.witnesses
        assert dist(ship.state.position_ned_m, ship.truth.position_ned_m) < 0.06
        ship.command("land")
        ship.step(30.0)
        assert not ship.armed
        assert dist((0.0, 0.0), ship.truth.position_ned_m[:2]) < 0.2


def test_blind_at_the_ground_it_still_comes_down() -> None:
    with Lockstep("gtmab-eye", seed=32) as ship:
        ship.command("arm")
        ship.complete("takeoff", within_s=40.0, altitude_m=1.8)
        ship.fault("camera", "stuck", channel="blind", value=1.0)
        ship.command("land")
        ship.step(45.0)
        assert not ship.armed
        assert ship.snapshot().sensors["camera"].error == "no tag in view"


def test_a_camera_that_sits_otherwise_than_its_row_says_turns_no_ship() -> None:
    """Its yaw, believed, had the ship 19 m from its pad within a minute."""
    with Lockstep("gtmab-eye", seed=311, wind_mps=0.1) as ship:
        ship.fault("camera", "offset", channel="yaw", amount=radians(90.0))
        ship.step(1.0)
        assert "the camera sees the nose" in ship.state.health.heading.doubt
        ship.command("arm")
        ship.complete("takeoff", within_s=60.0, check=False, altitude_m=1.5)
        ship.step(20.0)
        assert hypot(*ship.truth.position_ned_m[:2]) < 1.0


@pytest.mark.long
def test_the_example_catches_a_balloon_and_brings_it_through_the_gate() -> None:
    """Each frame is drawn and looked at."""
    flight = balloon.fly(503)
    assert flight.caught_s is not None
    assert flight.through_s is not None
    assert flight.landed, flight.said
