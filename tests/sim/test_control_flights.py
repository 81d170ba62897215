"""Closed-loop flights of control on the physics, with synthetic samples: see rig.py.

What the chips and drivers add is flown in the Lockstep tests, the default mission among them; here
are the failures.
"""

from math import hypot

import pytest

from blimp.types import OutcomeState
from tests.sim.branch import branching
from tests.sim.rig import Rig
from tests.sim.ships import gtmab, twin, weighing

pytestmark = pytest.mark.long  # seconds of computing each


def airborne(*, seed: int = 1, wind_mps: float = 0.3, heaviness_kg: float = 0.005) -> Rig:
    rig = Rig(airframe=weighing(twin(), heaviness_kg), seed=seed, wind_mps=wind_mps)
    assert rig.command("arm").state is OutcomeState.DONE
    assert rig.complete("takeoff", within_s=60.0, altitude_m=3.0).state is OutcomeState.DONE
    return rig


@pytest.fixture(scope="module", name="rig")
def hovering() -> Rig:
    """A ship in the air, for tests that fly on in a branch of their own."""
    return airborne()


def until_disarmed(rig: Rig, *, within_s: float) -> None:
    end_s = rig.now_s + within_s
    while rig.loop.armed and rig.now_s < end_s:
        rig.step(0.5)
    assert not rig.loop.armed, rig.loop.snapshot(rig.now_s)


class CrossTrack:
    """The greatest distance from the leg being flown."""

    def __init__(self, rig: Rig) -> None:
        self.worst_m = 0.0
        self.start, self.end = (0.0, 0.0), (10.0, 0.0)
        rig.on_step = self.look

    def look(self, rig: Rig) -> None:
        north, east, _ = rig.physics.state.position_ned_m
        (a, b), (c, d) = self.start, self.end
        across = (north - a) * (d - b) - (east - b) * (c - a)
        self.worst_m = max(self.worst_m, abs(across) / hypot(c - a, d - b))


def test_a_place_that_moves_is_followed_at_its_speed() -> None:
    """Each goto goes on with the leg that it replaces: begun again from rest, none gets far."""
    rig = airborne(wind_mps=0.1)
    begin = rig.physics.state.position_ned_m
    for tenth in range(200):
        rig.command("goto", north_m=begin[0] + 0.03 * tenth, east_m=begin[1], altitude_m=3.0)
        rig.step(0.1)
    north, east, _ = rig.physics.state.position_ned_m
    assert north - begin[0] == pytest.approx(6.0, abs=1.0)
    assert east == pytest.approx(begin[1], abs=0.4)


def test_a_velocity_is_flown_and_ends_in_a_loiter() -> None:
    rig = airborne(wind_mps=0.0)
    outcome = rig.command("velocity", north_mps=0.4, east_mps=0.0, up_mps=0.0, seconds=15.0)
    rig.step(12.0)
    assert rig.physics.state.velocity_ned_mps[0] == pytest.approx(0.4, abs=0.07)
    rig.step(10.0)
    assert rig.inbox.of(outcome.id)[-1].state is OutcomeState.DONE
    assert hypot(*rig.physics.state.velocity_ned_mps) < 0.15
    assert rig.loop.snapshot(rig.now_s).mode == "LOITER"


@branching
def test_hold_stays_and_return_comes_home(rig: Rig) -> None:
    rig.command("goto", north_m=10.0, east_m=5.0, altitude_m=3.0)
    rig.step(15.0)
    rig.command("hold")
    rig.step(15.0)
    before = rig.physics.state.position_ned_m
    rig.step(20.0)
    assert rig.physics.state.position_ned_m == pytest.approx(before, abs=1.0)
    shown = rig.loop.snapshot(rig.now_s)
    assert shown.wind_age_s == pytest.approx(0.0, abs=0.02)
    # The truth has gusts of some seconds on it, which the estimate smooths.
    assert shown.wind_ned_mps == pytest.approx(rig.physics.wind_ned_mps, abs=0.2)
    assert rig.complete("return", within_s=90.0).state is OutcomeState.DONE
    assert hypot(*rig.physics.state.position_ned_m[:2]) < 0.6


# --- failures ------------------------------------------------------------------------------------


@branching
def test_a_lost_tag_is_taken_over_by_gps_in_mid_leg(rig: Rig) -> None:
    track = CrossTrack(rig)
    leg = rig.command("goto", north_m=10.0, east_m=0.0, altitude_m=3.0)
    rig.step(8.0)
    rig.sensors.cut = {"tag"}
    rig.step(50.0)
    assert rig.inbox.of(leg.id)[-1].state is OutcomeState.DONE
    assert track.worst_m <= 1.5


@branching
def test_with_no_position_at_all_it_holds_and_comes_down_gently(rig: Rig) -> None:
    rig.step(20.0)
    rig.sensors.cut = {"tag", "gps"}
    rig.step(5.0)
    shown = rig.loop.snapshot(rig.now_s)
    assert (shown.mode, shown.failsafe) == ("HOLD", "position lost: holding height and heading")
    assert shown.wind_age_s is not None
    assert 2.0 < shown.wind_age_s <= 5.0, "nothing tells of the wind without a position"
    until_disarmed(rig, within_s=100.0)
    assert rig.physics.state.on_ground
    assert rig.physics.touchdown_speed_mps <= 0.5


@branching
def test_with_no_height_at_all_it_sinks_gently_and_stays_armed(rig: Rig) -> None:
    rig.sensors.cut = {"baro", "ranger"}
    rig.step(60.0)  # it is down after 19 s
    assert rig.physics.state.on_ground
    assert rig.physics.touchdown_speed_mps <= 0.5
    assert rig.loop.armed  # it cannot know that it is down


@pytest.mark.parametrize("heaviness_kg", [-0.02, -0.005, 0.0, 0.005, 0.02])
def test_landing_knows_heavy_from_light(heaviness_kg: float) -> None:
    rig = airborne(heaviness_kg=heaviness_kg)
    rig.step(10.0)
    landed = rig.complete("land", within_s=60.0)
    assert landed.state is OutcomeState.DONE
    assert landed.result["heaviness_g"] == pytest.approx(1e3 * heaviness_kg, abs=2.5)
    rig.step(20.0)
    assert rig.physics.state.altitude_m < 0.1  # down, and still down
    assert rig.physics.touchdown_speed_mps <= 0.5
    if heaviness_kg < -0.003:
        assert rig.loop.armed
        assert landed.result["held_down"]
        assert "held down by thrust" in landed.reason
        assert rig.command("disarm").state is OutcomeState.DONE  # a person's word is enough
    if heaviness_kg > 0.003:
        assert not rig.loop.armed


def test_a_ship_that_is_lighter_than_its_file_says_is_found_out() -> None:
    rig = Rig(airframe="twin", wind_mps=0.3)
    light = Rig(airframe=weighing(twin(), -0.006), wind_mps=0.3, settle_s=0.01)
    rig.become(light)
    assert rig.command("arm").state is OutcomeState.DONE
    assert rig.complete("takeoff", within_s=60.0, altitude_m=3.0).state is OutcomeState.DONE
    rig.step(25.0)
    landed = rig.complete("land", within_s=60.0)
    assert landed.result["held_down"]
    assert landed.result["heaviness_g"] == pytest.approx(-6.0, abs=2.0)
    assert rig.loop.armed


@pytest.mark.parametrize("heaviness_kg", [-0.006, 0.006])
def test_a_ship_in_manual_that_nobody_drives_lands(heaviness_kg: float) -> None:
    """One of 5 g fell from 2 m to the ground at 0.6 m/s; a light one rose to the fence."""
    rig = Rig(airframe=weighing(gtmab(), heaviness_kg))
    assert rig.command("arm").state is OutcomeState.DONE
    assert rig.complete("takeoff", within_s=60.0, altitude_m=3.0).state is OutcomeState.DONE
    rig.step(12.0)
    assert rig.command("mode", name="MANUAL").state is OutcomeState.DONE
    for _ in range(2):  # somebody drives, with a pause between two orders
        assert rig.command("motor", name="lift", percent=1.0, seconds=0.8).reason == ""
        rig.step(1.0)
        assert rig.loop.snapshot(rig.now_s).mode == "MANUAL"
    rig.step(4.0)
    assert "MANUAL without an order in force: landing" in rig.loop.snapshot(rig.now_s).messages
    rig.step(30.0)
    assert rig.physics.state.on_ground
    assert rig.physics.touchdown_speed_mps <= 0.5
    assert rig.loop.armed is (heaviness_kg < 0.0)  # a light one is held


def test_a_ship_in_manual_that_nobody_drives_for_half_a_minute_lands() -> None:
    """One of 6 g rose from 6 to 10 m, slower than its limits."""
    rig = airborne(heaviness_kg=-0.003, wind_mps=0.0)
    assert rig.command("mode", name="MANUAL").state is OutcomeState.DONE
    rig.step(29.0)
    assert rig.loop.snapshot(rig.now_s).mode == "MANUAL"
    rig.step(2.0)
    assert rig.loop.snapshot(rig.now_s).mode == "LAND"
    assert rig.command("mode", name="MANUAL").state is OutcomeState.DONE  # the pilot is back
    rig.step(1.0)
    assert rig.loop.snapshot(rig.now_s).mode == "MANUAL"


@pytest.mark.parametrize("again", [False, True])
def test_a_ship_in_manual_that_a_person_holds_starts_no_motor(again: bool) -> None:
    """Armed, carried up and lowered again at 0.6 m/s, its motors would start."""
    rig = Rig(airframe=weighing(gtmab(), 0.004))
    assert rig.command("arm").state is OutcomeState.DONE
    assert rig.command("mode", name="MANUAL").state is OutcomeState.DONE

    def carry(up_mps: float, seconds: float) -> None:
        for _ in range(round(100.0 * seconds)):
            north_m, east_m, down_m = rig.physics.state.position_ned_m
            held_m = (north_m, east_m, down_m - 0.01 * up_mps)
            rig.physics.place(position_ned_m=held_m, velocity_ned_mps=(0.0, 0.0, -up_mps))
            rig.step(0.01)

    carry(0.25, 5.0)
    if again:
        assert rig.command("mode", name="MANUAL").state is OutcomeState.DONE
    carry(-0.6, 1.2)
    carry(0.0, 3.0)
    assert rig.loop.snapshot(rig.now_s).mode == "MANUAL"
    assert not any(rig.outputs.command.motors)
