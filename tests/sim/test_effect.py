"""The output-effect check on a ship that is well: it must stay silent."""

import re
from collections.abc import Sequence
from math import atan2, degrees, hypot, nan, pi

import pytest

from benchmarks.missions import fly
from blimp.constants import AIR_DENSITY_KGM3
from blimp.control.effect import EffectCheck, Fault
from blimp.rotation import from_euler, rotate
from blimp.ship.lockstep import Lockstep
from blimp.types import ActuatorCommand, OutcomeState
from blimp.wires.wrong import Wrong
from ground_station.mission_file import load_mission
from tests.control.parts import at
from tests.sim.rig import Rig
from tests.sim.ships import twin

pytestmark = pytest.mark.long


def named(messages: Sequence[str]) -> list[str]:
    words = ("whatever is commanded", "runs by itself", "does nothing")
    return [message for message in messages if any(word in message for word in words)]


def broken(rig: Rig) -> list[str]:
    return named(rig.loop.snapshot(rig.now_s).messages)


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


def test_the_driver_of_a_motor_that_runs_by_itself_sleeps_and_the_others_land_the_ship() -> None:
    """Before, all motors slept, and the ship sank with the wind, also if a dead one was accused."""
    with Lockstep("gtmab", seed=11001, wind_mps=0.1) as ship:
        ship.command("arm")
        ship.complete("takeoff", altitude_m=2.0, within_s=60.0)
        ship.command("goto", north_m=2.0, east_m=-2.0, altitude_m=2.0, yaw_deg=150.0)
        ship.step(5.0)
        ship.fault("motors_x", "stuck", channel="left", value=1.0)
        until_s = ship.now_s + 20.0
        while not named(ship.messages) and ship.now_s < until_s:
            ship.step(0.5)
        assert named(ship.messages) == ["left: runs by itself, so its driver sleeps"]
        ship.step(2.0)
        assert ship.snapshot().mode == "LAND"
        left_n, right_n, *others_n = ship.world.physics.thrusts_n
        assert abs(left_n) + abs(right_n) < 1e-3
        assert any(abs(thrust_n) > 1e-3 for thrust_n in others_n)
        ship.step(40.0)
        assert not ship.armed
        assert ship.world.physics.height_above_ground_m < 0.05
        assert ship.world.physics.touchdown_speed_mps < 0.5
        assert hypot(*ship.truth.position_ned_m[:2]) < 6.0


class Body:
    """A level ship in still air, moved by exactly what it is given."""

    def __init__(self, check: EffectCheck) -> None:
        self._check, ship = check, twin()
        air_kg = AIR_DENSITY_KGM3 * ship.hull.volume_m3
        self._x_kg, self._y_kg, self._z_kg = (air_kg + kg for kg in ship.aero.added_mass_kg)
        self._inertia = ship.mass.inertia_kg_m2[2] + ship.aero.added_inertia_kg_m2[2]
        self._aero = ship.aero
        self.surge = self.sway = self.heave = self.yaw = 0.0

    def steer(self, step: int) -> tuple[float, float, float]:
        """Return thrusts (N) that make it gather way and stop every two seconds, nose ahead."""
        push_n = 0.5 * ((0.5 if step % 400 < 200 else 0.0) - self.surge)
        return push_n, push_n, max(-0.2, min(0.2, self.yaw))

    def move(self, wrench: Sequence[float]) -> None:
        """Let it move for 10 ms."""
        (fx, fy, fz, mz), drag, aero = wrench, self._check.drag, self._aero
        u, v, w, r = self.surge, self.sway, self.heave, self.yaw
        fins = aero.fin_lift_per_rad * abs(u) * (v + r * aero.fin_position_m)
        munk = (self._x_kg - self._y_kg) * u * v
        self.surge += 0.01 * (fx - drag(0, u) + self._y_kg * r * v) / self._x_kg
        self.sway += 0.01 * (fy - drag(1, v) - fins - self._x_kg * r * u) / self._y_kg
        self.heave += 0.01 * (fz - drag(2, w)) / self._z_kg
        self.yaw += 0.01 * (mz - drag(5, r) + munk - aero.fin_position_m * fins) / self._inertia


def test_a_turn_in_wind_leaves_no_force_unexplained() -> None:
    """By the mass of air 0.12 N of surge, and a healthy tilt servo was named for it."""
    check = EffectCheck(airframe=twin())
    body, yaw, wind = Body(check), 0.0, (0.35, 0.0, 0.0)  # the body's speeds are through the air
    body.surge = -0.1
    weight_n = -1.0
    for step in range(3000):
        thrusts = (0.5, 0.5, -0.12 if step % 2000 < 1000 else 0.12)
        fx, fy, fz, mz = check.wrench(thrusts, {"tilt": -pi / 2})
        body.move((fx, fy, fz + weight_n, mz))
        yaw += 0.01 * body.yaw
        attitude = from_euler(0.0, 0.0, yaw)
        over = rotate(attitude, (body.surge, body.sway, body.heave))
        state = at(
            altitude_m=5.0,
            attitude=attitude,
            velocity_ned_mps=(over[0] + wind[0], over[1] + wind[1], over[2] + wind[2]),
            rates_body_radps=(0.0, 0.0, body.yaw),
        )
        check.update(
            state, thrusts, {"tilt": -pi / 2}, weight_n=weight_n, wind_ned_mps=wind, dt_s=0.01
        )
        if step % 1000 > 300 and check._left is not None:  # the tail motor's lag is over
            model, lefts = check._left
            sums = zip(lefts, model.total, check._well.total, strict=True)
            assert max(abs(left + its - none) for left, its, none in sums) < 0.01
    assert abs(body.yaw) > 0.2
    assert check.faults == ()


@pytest.mark.parametrize("where", ["rate", "speed", "thrust", "tilt", "weight", "wind", "dt"])
def test_what_is_not_a_number_does_not_blind_it(where: str) -> None:
    """Before, one NaN stayed in every sum, and no fault was ever named again."""
    ship = twin()
    check = EffectCheck(airframe=ship)
    body = Body(check)
    for step in range(1500):  # the right motor does nothing from 6 s on
        left_n, right_n, tail_n = body.steer(step)
        body.move(check.wrench((left_n, right_n if step < 600 else 0.0, tail_n), {"tilt": 0.5}))
        bad = {where: nan} if 100 <= step < 120 else {}
        state = at(
            altitude_m=5.0,
            velocity_ned_mps=(body.surge, body.sway, bad.get("speed", body.heave)),
            rates_body_radps=(0.0, 0.0, bad.get("rate", body.yaw)),
        )
        check.update(
            state,
            (bad.get("thrust", left_n), right_n, tail_n),
            {"tilt": bad.get("tilt", 0.5)},
            weight_n=bad.get("weight", 0.0),
            wind_ned_mps=(bad.get("wind", 0.0), 0.0, 0.0),
            dt_s=bad.get("dt", 0.01),
        )
        assert step >= 600 or check.faults == ()
    assert [fault.names for fault in check.faults] == [("right",)]


def test_each_fault_is_named_from_what_it_does_to_the_motion() -> None:
    """A ship that moves exactly as one fault would have it, and as no other."""
    ship = twin()
    cases = [
        (
            {0: 0.6, 1: 0.6},
            {},
            Fault(names=("left", "right"), wrong=Wrong.RUNS, thrusts_n=(0.6, 0.6)),
        ),
        ({0: 0.6}, {}, Fault(names=("left",), wrong=Wrong.RUNS, thrusts_n=(0.6,))),
        ({1: 0.0}, {}, Fault(names=("right",), wrong=Wrong.DEAD, thrusts_n=(0.0,))),
        (
            {2: 0.4},
            {},
            Fault(names=("tail",), wrong=Wrong.RUNS, thrusts_n=(0.4,), asleep=("tail",)),
        ),
        ({}, {"tilt": ship.servo[0].max_rad}, "tilt"),
    ]
    for thrusts, tilts, expected in cases:
        check = EffectCheck(airframe=ship)
        body = Body(check)
        for step in range(1200):
            commanded, angles = body.steer(step), {"tilt": 0.5}
            real = [*commanded]
            if step >= 600:  # by then the wind is known
                real = [thrusts.get(i, thrust) for i, thrust in enumerate(commanded)]
                angles |= tilts
            body.move(check.wrench(real, angles))
            state = at(
                0.0,
                0.0,
                5.0,
                velocity_ned_mps=(body.surge, body.sway, body.heave),
                rates_body_radps=(0.0, 0.0, body.yaw),
            )
            check.update(state, commanded, {"tilt": 0.5}, weight_n=0.0, dt_s=0.01)
        assert len(check.faults) == 1
        if isinstance(expected, str):
            assert check.faults[0].names == (expected,)
            assert check.stuck_rad["tilt"] == pytest.approx(ship.servo[0].max_rad, abs=0.3)
        else:
            assert check.faults[0] == expected


def test_a_motor_that_is_driven_and_works_again_is_taken_back() -> None:
    """A loose wire: what was named stays driven as the last of its axis, and follows again."""
    check = EffectCheck(airframe=twin())
    body = Body(check)
    said: list[tuple[int, tuple[str, ...]]] = []
    for step in range(6000):
        left_n, right_n, tail_n = body.steer(step)
        tail_n += 0.1 if step % 300 < 150 else -0.1  # it is needed, whatever the nose does
        works = step < 600 or said != []
        body.move(check.wrench((left_n, right_n, tail_n if works else 0.0), {"tilt": 0.0}))
        state = at(
            altitude_m=5.0,
            velocity_ned_mps=(body.surge, body.sway, body.heave),
            rates_body_radps=(0.0, 0.0, body.yaw),
        )
        thrusts_n = (left_n, right_n, tail_n)
        check.update(state, thrusts_n, {"tilt": 0.0}, weight_n=0.0, dt_s=0.01)
        if check.broken != (said[-1][1] if said else ()):
            said.append((step, check.broken))
    assert [broken for _, broken in said] == [("tail",), ()]


def test_a_stop_takes_nothing_back_that_was_named() -> None:
    """A new flight forgets what was named; a ship that is stopped must not call it mended."""
    with Lockstep(twin(), seed=1) as ship:
        ship.command("arm")
        ship.complete("takeoff", within_s=60.0, altitude_m=3.0)
        ship.fault("motors_main", "stuck", channel="left", value=1.0)
        for _ in range(60):
            ship.step(0.5)
            if ship.accused:
                break
        assert ship.accused
        ship.command("estop")
        ship.step(1.0)
        assert not ship.armed
        assert not any("follows its commands" in message for message in ship.messages)


@pytest.mark.timeout(300)
def test_the_square_is_flown_and_landed_with_the_right_motor_dead() -> None:
    """Before, the ship was 3.6 to 11.8 m off and landed there; nose downwind, 2.5 m off."""

    def dies(ship: Lockstep, leg: int) -> None:
        if leg == 3:
            ship.fault("motors_main", "stuck", channel="right", value=0.0)

    sortie = fly(load_mission("square"), airframe="twin", seed=4, wind_mps=0.3, on_leg=dies)
    assert sortie.failure == ""
    assert sortie.max_cross_track_m <= 2.0
    assert sortie.landing_error_m <= 2.0
    assert sortie.touchdown_mps <= 0.5
    assert not sortie.armed_at_end


@pytest.mark.parametrize(
    ("airframe", "load"), [("twin", -0.03), ("twin", 0.02), ("gtmab", -0.05), ("gtmab", 0.05)]
)
def test_a_ship_that_weighs_not_what_its_file_says_has_no_dead_motor(
    airframe: str, load: float
) -> None:
    """Before, its motors were named one after the other in the take-off; a light one flew off."""
    with Lockstep(airframe, seed=20, wind_mps=0.3, held=True) as ship:
        physics = ship.world.physics
        physics.load(load * physics.displaced_kg)
        ship.step(12.0)
        ship.hold(False)
        ship.command("arm", check=False)
        ship.command("takeoff", check=False, altitude_m=2.0)
        ship.step(25.0)
        assert named(ship.messages) == []
        assert ship.truth.altitude_m == pytest.approx(2.0, abs=0.3)


def test_a_tilt_servo_that_sticks_in_the_take_off_is_still_named() -> None:
    """Not weighed yet: a felt weight that followed the motion took the fault for a light ship."""
    with Lockstep("twin", seed=5, wind_mps=0.3) as ship:
        physics = ship.world.physics
        physics.load(-0.006 * physics.displaced_kg)
        ship.command("arm", check=False)
        ship.command("takeoff", check=False, altitude_m=2.0)
        ship.step(5.0)
        ship.fault("servos", "stuck", channel="tilt", value=1.57)
        ship.step(10.0)
        assert [name.split(":")[0] for name in named(ship.messages)] == ["tilt"]
        assert ship.truth.altitude_m < 4.5


def test_what_the_ground_holds_down_is_not_said_to_do_nothing() -> None:
    """Pressed on the ground, a light ship does not move, whatever its estimate makes of it.

    Before, a healthy lift motor was named as soon as the estimate sank into the ground, the mixer
    left it out, and the ship was let go while its message said that thrust held it.
    """
    with Lockstep("gtmab", seed=1) as ship:
        physics = ship.world.physics
        physics.load(-0.01 * physics.displaced_kg)
        ship.command("arm", check=False)
        ship.complete("takeoff", check=False, within_s=60.0, altitude_m=2.0)
        ship.step(15.0)
        ship.fault("baro", "no_answer")
        ship.step(11.0)
        ship.command("land", check=False)
        ship.step(20.0)
        assert ship.messages[-1].endswith("secure the ship, then disarm")
        assert named(ship.messages) == []
        assert physics.thrusts_n[-1] < -0.02
        ship.step(60.0)  # its ranger is blind on the ground: nothing measures height
        assert named(ship.messages) == []
        assert abs(ship.snapshot().altitude_m) <= 0.1
        assert ship.truth.altitude_m < 0.05
        assert -0.08 < physics.thrusts_n[-1] < -0.06  # its lift of 0.007 N, and the margin
        held = re.search("held down by thrust of 0.067 N for about ([0-9]+) min", ship.messages[-1])
        assert held is not None
        assert 75 <= int(held[1]) <= 100  # 0.5 Ah, and 0.33 to 0.36 A
        assert "height lost: on the ground, it stays there" in ship.messages


def test_a_ship_held_down_names_nothing_when_its_height_drifts_up() -> None:
    """The estimate flies off, the ship lies there: a full push down moves nothing."""
    with Lockstep("gtmab", seed=1) as ship:
        physics = ship.world.physics
        physics.load(-0.01 * physics.displaced_kg)
        ship.command("arm", check=False)
        ship.complete("takeoff", check=False, within_s=60.0, altitude_m=2.0)
        ship.step(12.0)
        ship.complete("land", check=False, within_s=60.0)
        ship.fault("ranger", "no_answer")
        ship.fault("baro", "drift", rate=-5.0)  # 0.4 m/s up
        ship.step(45.0)  # for half a minute the accelerometer outvotes it
        assert -ship.snapshot().position_ned_m[2] > 3.0
        assert ship.truth.altitude_m < 0.1
        assert named(ship.messages) == []
        assert physics.thrusts_n[-1] < -0.02


@pytest.mark.parametrize("load", [-0.006, 0.006])
def test_a_lift_motor_that_runs_in_a_landing_sleeps_before_it_has_lifted_the_ship(
    load: float,
) -> None:
    """Before, a light ship was at 15 m: its driver slept only if the ship was known to be heavy.

    It sleeps within .1 m; what is left rises by itself, and says that it must be held.
    """
    with Lockstep("gtmab", seed=2, wind_mps=0.1) as ship:
        physics = ship.world.physics
        physics.load(load * physics.displaced_kg)
        ship.command("arm", check=False)
        ship.complete("takeoff", check=False, altitude_m=2.0, within_s=60.0)
        ship.step(10.0)
        ship.command("land", check=False)
        while physics.height_above_ground_m > 0.5:
            ship.step(0.02)
        ship.fault("motors_z", "stuck", channel="lift", value=1.0)
        high_m, said = 0.0, {*ship.messages}
        for _ in range(100):
            ship.step(0.1)
            high_m = max(high_m, physics.height_above_ground_m)
            said |= {*ship.messages}  # once it is down it is disarmed, and forgets the fault
        assert any(message.startswith("lift: runs by itself") for message in said)
        assert abs(physics.thrusts_n[-1]) < 1e-3
        assert high_m < 2.3


@pytest.mark.parametrize(
    ("wrong", "names", "said"),
    [
        (Wrong.SWAPPED, ("left", "right"), "left and right seem swapped: exchange their plugs"),
        (Wrong.REVERSED, ("tail",), "tail seems reversed: exchange the two wires of its motor"),
    ],
)
def test_what_is_miswired_is_named_with_its_cure_and_flown_with_its_commands_exchanged(
    wrong: Wrong, names: tuple[str, ...], said: str
) -> None:
    check = EffectCheck(airframe=twin())
    body = Body(check)
    for step in range(3000):
        left_n, right_n, tail_n = body.steer(step)
        turn_n = 0.1 if step % 300 < 150 else -0.1
        sent = left_n + turn_n, right_n - turn_n, 0.5 * (tail_n + turn_n)
        wired = (sent[1], sent[0], sent[2]) if wrong is Wrong.SWAPPED else (*sent[:2], -sent[2])
        body.move(check.wrench(wired, {"tilt": 0.0}))
        state = at(
            altitude_m=5.0,
            velocity_ned_mps=(body.surge, body.sway, body.heave),
            rates_body_radps=(0.0, 0.0, body.yaw),
        )
        check.update(state, sent, {"tilt": 0.0}, weight_n=0.0, dt_s=0.01)
        if check.faults:
            break
    assert [(fault.wrong, fault.names) for fault in check.faults] == [(wrong, names)]
    assert check.faults[0].message.startswith(said)
    command = ActuatorCommand(motors=(0.1, 0.2, 0.3), servos=(0.0, 0.0, 0.0))
    motors = (0.2, 0.1, 0.3) if wrong is Wrong.SWAPPED else (0.1, 0.2, -0.3)
    assert check.correct(command).motors == motors
