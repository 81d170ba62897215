"""A ship whose only position is its camera's, with the errors that rendered pictures showed."""

from math import dist

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
