"""The output-effect check on a ship that is well: it must stay silent."""

from math import atan2, degrees, nan

import pytest

from blimp.control.effect import EffectCheck, Fault
from blimp.service.sortie import fly
from blimp.sim.lockstep import Lockstep
from blimp.types import OutcomeState
from ground_station.mission import load_mission
from tests.control.parts import at
from tests.sim.rig import Rig
from tests.sim.ships import twin

pytestmark = pytest.mark.flight


def broken(rig: Rig) -> list[str]:
    words = ("whatever is commanded", "runs by itself", "does nothing")
    said = rig.loop.snapshot(rig.now_s).messages
    return [message for message in said if any(word in message for word in words)]


def test_neither_gusts_nor_a_held_ship_nor_lost_ballast_name_an_actuator() -> None:
    rig = Rig(airframe="twin", seed=2, wind_mps=0.4)
    assert rig.command("arm").state is OutcomeState.DONE
    assert rig.complete("takeoff", within_s=60.0, altitude_m=3.0).state is OutcomeState.DONE
    rig.command("goto", north_m=6.0, east_m=0.0, altitude_m=3.0)
    rig.step(25.0)
    assert broken(rig) == []
    place = rig.physics.state.position_ned_m
    attitude = rig.physics.state.attitude

    def grip(rig: Rig) -> None:
        rig.physics.place(position_ned_m=place, attitude=attitude)

    rig.command("goto", north_m=0.0, east_m=0.0, altitude_m=4.0)  # it pulls
    rig.on_step = grip
    rig.step(12.0)
    assert broken(rig) == []
    rig.on_step = None
    rig.physics.load(-0.03)
    rig.step(15.0)
    assert broken(rig) == []
    assert rig.loop.armed


def test_a_nose_held_across_the_wind_names_no_actuator() -> None:
    """Air from aside turns a hull, and the tail motor at its limit against it looked dead."""
    rig = Rig(airframe="twin", seed=1, wind_mps=0.3)
    north, east, _ = rig.physics.wind.mean_ned_mps
    across_deg = degrees(atan2(east, north)) + 90.0
    assert rig.command("arm").state is OutcomeState.DONE
    assert rig.complete("takeoff", within_s=60.0, altitude_m=3.0).state is OutcomeState.DONE
    for north_m, east_m in ((6.0, 0.0), (6.0, 6.0)):
        there = {"north_m": north_m, "east_m": east_m, "altitude_m": 3.0}
        flown = rig.complete("goto", within_s=60.0, **there, yaw_deg=across_deg)
        assert broken(rig) == []
        assert flown.state is OutcomeState.DONE


@pytest.mark.parametrize("where", ["rate", "speed", "thrust", "tilt", "weight", "wind", "dt"])
def test_what_is_not_a_number_does_not_blind_it(where: str) -> None:
    """Before, one NaN stayed in every sum, and no fault was ever named again."""
    ship = twin()
    check = EffectCheck(airframe=ship)
    surge = heave = yaw = 0.0
    for step in range(900):  # the right motor does nothing from 3 s on
        fx, fz, mz = check.wrench((0.5, 0.5 if step < 300 else 0.0, 0.0), {"tilt": 0.5})
        surge += 0.01 * (fx - check.drag(0, surge)) / 2.16
        heave += 0.01 * (fz - check.drag(2, heave)) / 3.47
        yaw += 0.01 * (mz - check.drag(5, yaw)) / 1.37
        bad = {where: nan} if 100 <= step < 120 else {}
        state = at(
            altitude_m=5.0,
            velocity_ned_mps=(surge, 0.0, bad.get("speed", heave)),
            rates_body_radps=(0.0, 0.0, bad.get("rate", yaw)),
        )
        check.update(
            state,
            (bad.get("thrust", 0.5), 0.5, 0.0),
            {"tilt": bad.get("tilt", 0.5)},
            weight_n=bad.get("weight", 0.0),
            wind_ned_mps=(bad.get("wind", 0.0), 0.0, 0.0),
            dt_s=bad.get("dt", 0.01),
        )
        assert step >= 300 or check.faults == ()
    assert [fault.names for fault in check.faults] == [("right",)]


def test_each_fault_is_named_from_what_it_does_to_the_motion() -> None:
    """A ship that moves exactly as one fault would have it, and as no other."""
    ship = twin()
    cases = [
        ({0: 0.6, 1: 0.6}, {}, Fault(names=("left", "right"), thrusts_n=(0.6, 0.6))),
        ({0: 0.6}, {}, Fault(names=("left",), thrusts_n=(0.6,))),
        ({1: 0.0}, {}, Fault(names=("right",), thrusts_n=(0.0,))),
        ({2: 0.4}, {}, Fault(names=("tail",), thrusts_n=(0.4,))),
        ({}, {"tilt": ship.servo[0].max_rad}, "tilt"),
    ]
    for thrusts, tilts, expected in cases:
        check = EffectCheck(airframe=ship)
        surge = heave = yaw = 0.0
        commanded = (0.5, 0.5, 0.0) if 1 in thrusts and 0 not in thrusts else (0.2, 0.2, 0.0)
        real = [thrusts.get(i, thrust) for i, thrust in enumerate(commanded)]
        fx, fz, mz = check.wrench(real, {"tilt": 0.5, **tilts})
        for _ in range(600):
            surge += 0.01 * (fx - check.drag(0, surge)) / 2.16
            heave += 0.01 * (fz - check.drag(2, heave)) / 3.47
            yaw += 0.01 * (mz - check.drag(5, yaw)) / 1.37
            state = at(
                0.0,
                0.0,
                5.0,
                velocity_ned_mps=(surge, 0.0, heave),
                rates_body_radps=(0.0, 0.0, yaw),
            )
            check.update(state, commanded, {"tilt": 0.5}, weight_n=0.0, dt_s=0.01)
        assert len(check.faults) == 1
        if isinstance(expected, str):
            assert check.faults[0].names == (expected,)
            assert check.stuck_rad == pytest.approx(ship.servo[0].max_rad, abs=0.3)
        else:
            assert check.faults[0] == expected


@pytest.mark.timeout(300)
def test_the_square_is_flown_and_landed_with_the_right_motor_dead() -> None:
    """Before, the ship was 3.6 to 11.8 m off and landed there; nose downwind, 2.5 m off."""

    def dies(ship: Lockstep, leg: int) -> None:
        if leg == 3:
            ship.fault("motors_main", "stuck", channel="right", value=0.0)

    sortie = fly(load_mission("square"), airframe="twin", seed=3, wind_mps=0.3, before_leg=dies)
    assert sortie.failure == ""
    assert sortie.max_cross_track_m <= 2.0
    assert sortie.landing_error_m <= 2.0
    assert sortie.touchdown_mps <= 0.5
    assert not sortie.armed_at_end
