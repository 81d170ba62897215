"""What the failsafe decides is carried out, on a ship that is carried in the air."""

from collections.abc import Callable
from math import nan
from typing import Any

import msgspec
import pytest

from blimp.control.failsafe import Failsafe, Flags
from blimp.control.landing import LandingPhase
from blimp.control.modes.descend import Descend
from blimp.control.modes.hold import Hold
from blimp.control.modes.land import Land
from blimp.control.modes.loiter import Loiter
from blimp.control.modes.manual import Order
from blimp.control.modes.sticks import Sticks
from blimp.control.pilot import Pilot
from blimp.control.supervisor import Supervisor
from blimp.control.weight import a_weight
from blimp.geofence import Geofence
from blimp.types import ActuatorCommand, Mode, OutcomeState, Setpoint, VehicleState
from tests.control.parts import Bench, a_ship, at, twin

LEG = {"north_m": 5.0, "east_m": 0.0, "altitude_m": 3.0}
WAITING: dict[str, dict[str, Any]] = {
    "takeoff": {"altitude_m": 4.0},
    "goto": LEG,
    "velocity": {"north_mps": 0.2, "east_mps": 0.0, "up_mps": 0.0, "seconds": 5.0},
    "mode": {"name": "ALTHOLD"},
}


def on_a_leg() -> tuple[Bench, str]:
    """In the air on the way to 10 m north; it is held at the pad."""
    ship = Bench()
    ship.tell("arm")
    ship.lift(3.0)
    return ship, ship.tell("goto", north_m=10.0, east_m=0.0, altitude_m=3.0).id


def made(
    *,
    bench: bool = False,
    killed_s: float | None = None,
    on_landed: Callable[[], None] = lambda: None,
    **ship: Any,
) -> tuple[Supervisor, Pilot]:
    """A supervisor alone, and the pilot that it has."""
    pilot = Pilot(ship=a_ship(**ship))
    supervisor = Supervisor(
        pilot=pilot,
        failsafe=Failsafe(airframe=twin()),
        bench=bench,
        on_landed=on_landed,
        killed_s=killed_s,
    )
    return supervisor, pilot


UP = at(altitude_m=8.0)
STILL = ActuatorCommand(motors=(0.0,) * 3, servos=(0.0,) * 3)


def decided(supervisor: Supervisor, state: VehicleState = UP, now_s: float = 1.0) -> Setpoint:
    return supervisor.decide(state, Flags(), now_s=now_s, dt_s=0.02)


def test_a_kill_outlasts_a_restart_and_all_but_an_arm() -> None:
    supervisor, pilot = made(killed_s=3.0)
    assert (supervisor.killed, supervisor.killed_s) == (True, 3.0)
    assert supervisor.refusal() == "killed: send arm first"
    supervisor.arm(UP)
    supervisor.recovering = True
    pilot.enter(Hold(UP), reason="flying")
    supervisor.kill(UP, now_s=4.0, reason="first")
    supervisor.kill(UP, now_s=5.0, reason="second")
    assert (supervisor.killed, supervisor.armed, supervisor.recovering) == (True, False, False)
    assert supervisor.killed_s == 5.0
    assert list(supervisor.messages) == ["armed", "killed: first"]
    supervisor.armed = True  # nothing sets it so; the latch holds all the same
    pilot.enter(Hold(UP), reason="flying")
    assert decided(supervisor).idle
    supervisor.arm(UP)
    assert not supervisor.killed


def test_an_arm_begins_a_flight_with_nothing_of_the_one_before() -> None:
    supervisor, pilot = made(bench=True)
    order = Order(value=0.5, started_s=0.0, until_s=99.0, command_id="a")
    supervisor.arm(UP)
    pilot.manual.order("left", order)
    pilot.payload.turn("rudder", 0.3)
    supervisor.decide(UP, Flags(unattended=True), now_s=1.0, dt_s=0.02)
    assert "MANUAL" in supervisor.refusal()
    supervisor.recovering = True
    supervisor.arm(UP)
    decided(supervisor)
    assert supervisor.refusal() == ""
    assert not pilot.manual.active(1.0)
    assert pilot.payload.onto(STILL) is STILL


def test_the_fence_of_a_flight_ends_with_it() -> None:
    supervisor, pilot = made()
    supervisor.arm(UP)
    pilot.ship.area.fence = Geofence(ceiling_m=3.0)
    supervisor.disarm(UP, reason="by a pilot")
    assert pilot.ship.area.fence == Geofence()


def test_what_is_disarmed_drives_nothing_but_motors_on_the_bench() -> None:
    for bench in (False, True):
        supervisor, pilot = made(bench=bench)
        pilot.enter(Hold(UP), reason="flying")
        assert decided(supervisor).idle
        assert supervisor.gate(STILL, now_s=1.0) == "not armed"
        order = Order(value=0.5, started_s=0.0, until_s=2.0, command_id="a")
        pilot.manual.order("left", order)
        setpoint = decided(supervisor, at(t_s=1.0))
        assert (setpoint.actuators is not None) is bench
        assert supervisor.gate(STILL, now_s=1.0) == ("" if bench else "not armed")
        assert supervisor.gate(STILL, now_s=2.0) == "not armed"
        supervisor.kill(UP, now_s=1.0, reason="a stop")
        pilot.manual.order("left", order)
        assert decided(supervisor).idle
        assert supervisor.gate(STILL, now_s=1.0) == "killed"


def test_a_ship_that_does_not_lift_is_let_go_after_20_s() -> None:
    supervisor, pilot = made()
    down = at(on_ground=True)
    supervisor.arm(down)
    target = (0.0, 0.0, -3.0)
    pilot.enter(Loiter(down, ship=pilot.ship, target_ned_m=target), reason="takeoff")
    for k in range(1000):
        assert not supervisor.decide(down, Flags(), now_s=0.02 * k, dt_s=0.02).idle
    for k in range(1000, 1010):
        supervisor.decide(down, Flags(), now_s=0.02 * k, dt_s=0.02)
    assert pilot.resting
    assert "does not lift in 20 s" in supervisor.messages[-1]


def test_a_ship_that_has_landed_is_disarmed_and_its_height_is_that_of_the_pad() -> None:
    landings: list[bool] = []
    supervisor, pilot = made(on_landed=lambda: landings.append(True))
    supervisor.arm(UP)
    pilot.enter(land := Land(UP, ship=pilot.ship), reason="landing")
    assert not decided(supervisor).idle
    assert supervisor.armed
    land.phase = LandingPhase.LANDED
    assert decided(supervisor).idle
    assert (supervisor.armed, landings) == (False, [True])


def test_a_blind_descent_goes_on_while_a_sensor_says_that_it_is_not_down() -> None:
    for against in ((("baro", 3.0),), ()):
        supervisor, pilot = made()
        down = at(attitude_valid=False, on_ground=True, against=against)
        supervisor.armed = True
        pilot.enter(Descend(down, ship=pilot.ship), reason="attitude lost")
        for k in range(200):
            supervisor.decide(down, Flags(), now_s=0.02 * k, dt_s=0.02)
        assert isinstance(pilot.flying, Descend) is bool(against)


def test_what_recovers_after_a_crash_lands_and_nothing_else() -> None:
    supervisor, pilot = made()
    supervisor.recover(UP)
    assert supervisor.armed
    assert isinstance(pilot.flying, Land)
    assert supervisor.refusal() == "landing after a crash of the flight process: send arm first"


def test_link_loss_goes_through_its_stages_and_a_leg_is_resumed_after_the_first() -> None:
    ship, leg = on_a_leg()
    ship.inbox.link_age = 2.5
    ship.run(1.0)
    assert (ship.snapshot().mode, ship.snapshot().failsafe) == ("LOITER", "")
    ship.inbox.link_age = 4.0
    ship.run(1.0)
    assert (ship.snapshot().mode, ship.snapshot().failsafe) == ("HOLD", "link lost: holding")
    waits = ship.inbox.of(leg)[-1]
    assert (waits.state, waits.reason) == (OutcomeState.IN_PROGRESS, "waits: link lost: holding")
    ship.inbox.link_age = 0.0
    ship.run(0.3)
    assert ship.inbox.of(leg)[-1].reason == ""
    assert (ship.snapshot().mode, ship.snapshot().failsafe) == ("LOITER", "")
    assert ship.inbox.of(leg)[-1].state is OutcomeState.IN_PROGRESS
    ship.inbox.link_age = 31.0
    ship.run(0.1)
    assert (ship.snapshot().mode, ship.snapshot().failsafe) == ("RTL", "link lost: returning")
    assert ship.inbox.of(leg)[-1].state is OutcomeState.REFUSED
    assert ship.inbox.of(leg)[-1].reason == "link lost: returning"
    ship.inbox.link_age = 61.0
    ship.run(0.1)
    assert (ship.snapshot().mode, ship.snapshot().failsafe) == ("LAND", "link lost: landing")
    assert ship.snapshot().armed


def test_a_link_that_comes_back_does_not_undo_a_return_by_itself() -> None:
    ship, _ = on_a_leg()
    ship.inbox.link_age = 31.0
    ship.run(0.5)
    ship.inbox.link_age = 0.0
    ship.run(0.5)
    assert (ship.snapshot().mode, ship.snapshot().failsafe) == ("RTL", "")
    assert ship.tell("hold").state is OutcomeState.DONE
    assert ship.snapshot().mode == "HOLD"


def test_while_a_failsafe_returns_nothing_else_may_fly_but_land() -> None:
    ship, _ = on_a_leg()
    ship.inbox.link_age = 31.0
    ship.run(0.5)
    refused = ship.tell("goto", north_m=1.0, east_m=0.0, altitude_m=3.0)
    assert refused.reason == "failsafe in force: link lost: returning"
    assert ship.tell("land").state is OutcomeState.IN_PROGRESS
    ship.run(0.5)
    assert ship.snapshot().mode == "LAND"


def test_attitude_lost_descends_with_the_motors_on() -> None:
    ship, _ = on_a_leg()
    ship.sensors.cut = {"imu"}
    ship.run(2.2)
    assert (ship.snapshot().mode, ship.snapshot().failsafe) == ("LOITER", "")
    ship.run(0.8)
    shown = ship.snapshot()
    assert (shown.mode, shown.failsafe) == ("LAND", "attitude lost: level descent")
    assert shown.armed
    assert ship.outputs.command is not None


def test_on_the_ground_a_lost_link_disarms_and_nothing_takes_off() -> None:
    """A ship whose feet hold nothing: it lies there by its own weight."""
    free = msgspec.structs.replace(twin().ground, hold_n=0.0)
    ship = Bench(airframe=msgspec.structs.replace(twin(), ground=free))
    ship.tell("arm")
    ship.inbox.link_age = 31.0
    ship.run(1.0)
    assert ship.snapshot().armed
    assert not ship.motors_driven()
    ship.inbox.link_age = 61.0
    ship.run(0.1)
    assert not ship.snapshot().armed
    assert "disarmed: on the ground, link lost: landing" in ship.snapshot().messages


def test_no_command_waits_in_silence_for_a_failsafe() -> None:
    ship = Bench()
    ship.tell("arm")
    ship.inbox.link_age = 4.0
    ship.run(0.1)
    order = ship.tell("takeoff", altitude_m=2.0)
    assert (order.state, order.reason) == (OutcomeState.IN_PROGRESS, "waits: link lost: holding")
    ship.inbox.link_age = 0.0  # the pilot's first heartbeat comes after the first command
    ship.run(0.3)
    assert (ship.snapshot().mode, ship.snapshot().failsafe) == ("LOITER", "")
    assert ship.inbox.of(order.id)[-1].reason == ""
    ship.inbox.link_age = 4.0
    ship.run(5.5)
    order = ship.inbox.of(order.id)[-1]
    assert order.state is OutcomeState.REFUSED
    assert order.reason.startswith("link lost: holding: for 5 s: see why")
    assert not ship.motors_driven()
    ship.inbox.link_age = 0.0
    ship.lift(3.0)
    ship.inbox.link_age = 4.0
    ship.run(0.1)
    for name, wish in WAITING.items():
        found = ship.tell(name, **wish)
        said = found.reason or found.result.get("note")
        assert said == "waits: link lost: holding", name
        assert ship.snapshot().mode == "HOLD", name
    land = ship.tell("land")
    assert (land.state, land.reason) == (OutcomeState.IN_PROGRESS, "")


def test_feet_that_hold_hide_a_light_ship_so_a_lost_link_only_grounds_it() -> None:
    ship = Bench()
    ship.tell("arm")
    ship.inbox.link_age = 61.0
    ship.run(0.1)
    ship.inbox.link_age = 0.0
    ship.run(1.0)
    assert ship.snapshot().armed
    assert not ship.motors_driven()
    reason = ship.tell("takeoff", altitude_m=2.0).reason
    assert reason == "grounded (link lost: landing): send disarm, then arm"
    assert "not weighed" in ship.tell("land").result["doubt"]
    ship.lift(1.5)  # it comes off them, faster than its thrust could press it
    assert any(": hold the ship" in said for said in ship.snapshot().messages)
    assert ship.snapshot().mode == "HOLD"
    assert ship.motors_driven()
    assert ship.tell("land").state is OutcomeState.IN_PROGRESS


def test_a_landing_on_the_pad_leaves_the_disarm_to_a_person_who_looks() -> None:
    ship = Bench()
    ship.tell("arm")
    landed = ship.tell("land")
    assert landed.state is OutcomeState.DONE
    assert "not weighed" in landed.result["doubt"]
    ship.run(1.0)
    assert ship.snapshot().armed
    assert not ship.motors_driven()
    assert ship.snapshot().messages[-1] == landed.result["doubt"]
    assert ship.tell("disarm").state is OutcomeState.DONE
    assert not ship.snapshot().armed


def test_a_lost_link_in_manual_on_the_ground_ends_manual() -> None:
    ship = Bench()
    ship.tell("arm")
    ship.tell("mode", name="MANUAL")
    ship.tell("motor", name="left", percent=20, seconds=30.0)
    ship.run(0.1)
    assert ship.motors_driven()
    ship.inbox.link_age = 4.0
    ship.run(0.1)
    assert not ship.motors_driven()


def test_a_light_ship_that_lifts_off_while_resting_is_held() -> None:
    ship = Bench()
    ship.tell("arm")
    assert not ship.motors_driven()
    ship.lift(1.5)
    assert ship.snapshot().mode == "HOLD"
    assert ship.outputs.calls[-1] == "drive"
    ship.sensors.position_ned_m = (0.0, 0.0, -2.5)
    ship.run(2.0)
    assert ship.motors_driven()  # it has risen a metre: brought back down


def test_restarted_in_the_air_it_may_be_armed_to_hold_height_and_come_down() -> None:
    """Its heading is unknown there, so nothing may steer by position."""
    ship = Bench(settle_s=0.0)
    ship.sensors.position_ned_m = (4.0, 2.0, -6.0)
    ship.run(4.0)
    assert not ship.snapshot().armed
    assert not ship.loop.state.position_valid
    assert ship.tell("arm").state is OutcomeState.DONE
    ship.run(1.0)
    assert ship.snapshot().failsafe == "position lost: holding height and heading"
    assert ship.tell("goto", north_m=0.0, east_m=0.0, altitude_m=3.0).state is OutcomeState.REFUSED
    ship.run(31.0)
    assert (ship.snapshot().mode, ship.snapshot().failsafe) == ("LAND", "position lost: landing")


def test_messages_are_bounded_and_not_repeated() -> None:
    supervisor, _ = made()
    for k in range(100):
        supervisor.say(f"message {k // 2}")
    assert list(supervisor.messages) == [f"message {k}" for k in range(42, 50)]
    supervisor.say("x" * 999)
    assert len(supervisor.messages[-1]) == 200


@pytest.mark.parametrize(("sink_mps", "idle"), [(0.4, False), (1.0, True)])
def test_motors_that_drive_a_slow_ship_down_idle_in_any_mode(sink_mps: float, idle: bool) -> None:
    supervisor, pilot = made()
    sinking = at(altitude_m=8.0, velocity_ned_mps=(0.0, 0.0, sink_mps))
    supervisor.arm(sinking)
    pilot.enter(Hold(sinking), reason="flying")
    assert decided(supervisor, sinking).idle is idle


@pytest.mark.parametrize(
    ("armed", "killed", "value", "reason"),
    [
        (True, False, 0.5, ""),
        (False, False, 0.5, "not armed"),
        (True, True, 0.5, "killed"),
        (True, False, nan, "an actuator value is not finite"),
        (True, False, float("inf"), "an actuator value is not finite"),
    ],
)
def test_the_gate_is_asked_last(armed: bool, killed: bool, value: float, reason: str) -> None:
    supervisor, _ = made()
    supervisor.armed, supervisor.killed = armed, killed
    for command in (
        ActuatorCommand(motors=(value, 0.0, 0.0), servos=(0.0, 0.0, 0.0)),
        ActuatorCommand(motors=(0.0, 0.0, 0.0), servos=(0.0, value, 0.0)),
    ):
        assert supervisor.gate(command, now_s=0.0) == reason


def test_a_blind_descent_ends_as_a_landing_in_control_once_the_ship_sees_again() -> None:
    ship, _ = on_a_leg()
    ship.sensors.cut.add("imu")
    ship.run(2.5)
    assert ship.snapshot().failsafe == "attitude lost: level descent"
    assert isinstance(ship.loop._pilot.flying, Descend)
    ship.sensors.cut.clear()
    ship.run(0.5)
    assert isinstance(ship.loop._pilot.flying, Land)
    assert (ship.snapshot().mode, ship.snapshot().armed) == ("LAND", True)
    assert (
        ship.tell("goto", north_m=0.0, east_m=0.0, altitude_m=3.0).state is OutcomeState.IN_PROGRESS
    )


def test_a_landing_for_a_lost_height_ends_as_the_pilot_says_once_it_is_back() -> None:
    ship, _ = on_a_leg()
    ship.sensors.cut = {"baro", "ranger"}
    ship.run(2.5)
    assert ship.snapshot().failsafe == "height lost: blind descent"
    assert ship.tell("hold").state is OutcomeState.REFUSED
    ship.sensors.cut.clear()
    ship.run(0.5)
    assert "landing, until a mode is commanded" in ship.snapshot().messages[-1]
    ship.run(5.0)
    assert ship.snapshot().mode == "LAND"  # nobody said otherwise
    assert ship.tell("hold").state is OutcomeState.DONE
    ship.run(20.0)
    assert ship.snapshot().mode == "HOLD"


def test_a_landing_for_an_output_ends_as_the_pilot_says_once_nothing_is_accused() -> None:
    """It was latched until an arm, and an arm in the air does nothing: only a restart helped."""
    ship, _ = on_a_leg()
    ship.loop._actuation._effect.broken = ("tail",)
    ship.run(1.0)
    text = "an output does not do what is commanded: landing"
    assert ship.snapshot().failsafe == text
    assert text in ship.tell("hold").reason
    ship.loop._actuation._effect.broken = ()  # it was accused wrongly
    ship.run(1.0)
    assert ship.snapshot().failsafe == text  # that alone ends nothing
    assert ship.tell("hold").state is OutcomeState.DONE
    ship.run(1.0)
    assert (ship.snapshot().mode, ship.snapshot().failsafe) == ("HOLD", "")


def test_motors_that_idle_until_an_arm_run_after_an_arm_if_the_cause_is_gone() -> None:
    supervisor, _ = made()
    up = at(altitude_m=8.0)
    supervisor.arm(up)
    astray = Flags(weight=a_weight(0.005, sigma_kg=0.001), astray=True)
    supervisor.decide(up, astray, now_s=1.0, dt_s=0.02)
    why = "failsafe in force: a motor that lifts runs by itself: motors asleep until an arm"
    assert supervisor.refusal() == why
    for flags, armed in ((astray, True), (Flags(), False)):
        assert supervisor.refusal(supervisor.review(up, flags, now_s=2.0, armed=armed))
        assert supervisor.decide(up, flags, now_s=2.0, dt_s=0.02).idle
    supervisor.review(up, Flags(), now_s=3.0, armed=True)
    assert supervisor.refusal() == ""
    assert supervisor.decide(up, Flags(), now_s=3.0, dt_s=0.02).idle  # until a mode is commanded


def test_a_blip_of_the_height_does_not_end_the_push_on_a_light_ship() -> None:
    """It began a new landing, which forgot what the old one knew, and let go."""
    supervisor, pilot = made(heaviness_kg=-0.006)
    supervisor.armed = True
    land = Land(at(), ship=pilot.ship)
    land.phase = LandingPhase.PRESSED
    pilot.enter(land, reason="landing")
    for valid in (False, True):
        for k in range(100):
            now_s = 0.02 * k
            state = at(0.0, 0.0, 0.0, t_s=now_s, height_valid=valid)
            setpoint = supervisor.decide(state, Flags(), now_s=now_s, dt_s=0.02)
            assert pilot.flying is land
            assert not setpoint.idle
            assert setpoint.thrust_body[2] or setpoint.position_ned_m[2]


@pytest.mark.parametrize(("heaviness_kg", "rests"), [(0.005, True), (-0.006, False)])
@pytest.mark.parametrize("lost_s", [1.0, 31.0, 61.0])
def test_a_failsafe_lets_no_ship_go_on_the_ground_that_weighed_itself_light(
    heaviness_kg: float, lost_s: float, rests: bool
) -> None:
    """Pressed down by its pilot's stick, it would rise again."""
    supervisor, pilot = made(heaviness_kg=heaviness_kg)
    supervisor.armed = True
    down = at(on_ground=True)
    pilot.enter(Sticks(down, ship=pilot.ship, number=Mode.ALTHOLD), reason="by stick")
    setpoint = supervisor.decide(down, Flags(pilot_lost_s=lost_s), now_s=1.0, dt_s=0.02)
    assert (pilot.resting, setpoint.idle) == (rests, rests)
    assert supervisor.armed


def test_a_blip_of_the_height_starts_no_motor_of_a_ship_that_waits_for_a_look() -> None:
    """Its note said "motors idle", and it began a descent and then a landing beside the person."""
    supervisor, pilot = made(weighed=False)
    supervisor.armed = True
    pilot.enter(land := Land(at(), ship=pilot.ship, down=True), reason="landing")
    for k in range(1500):
        now_s = 0.02 * k
        valid = not 600 < k < 900
        state = at(0.0, 0.0, 0.0, t_s=now_s, height_valid=valid, on_ground=True)
        assert supervisor.decide(state, Flags(), now_s=now_s, dt_s=0.02).idle
        assert pilot.flying is land
        assert bool(land.doubt) or k < 600


def test_a_grounded_ship_that_wind_carries_off_is_pressed_down() -> None:
    """Its height said "on the ground" all the way up: 1 m high and 10 m off after a minute."""
    supervisor, _ = made(weighed=False)
    supervisor.armed = True
    idle = []
    for k in range(3000):
        now_s = 0.02 * k
        east_m = 0.2 * max(0.0, now_s - 20.0)
        state = at(0.0, east_m, 0.0, t_s=now_s, attitude_valid=False, on_ground=True)
        idle.append(supervisor.decide(state, Flags(), now_s=now_s, dt_s=0.02).idle)
    assert all(idle[:1200])
    assert not idle[-1]
    assert supervisor.armed


@pytest.mark.parametrize(("rises", "held"), [(True, True), (False, False)])
def test_down_without_an_attitude_a_ship_is_tried_like_any_other(rises: bool, held: bool) -> None:
    """It was disarmed by what its airframe says it weighs: 6 g light, it was lost."""
    supervisor, pilot = made(heaviness_kg=0.005, weighed=False)
    supervisor.armed = True
    pilot.enter(Descend(at(altitude_m=1.0), ship=pilot.ship), reason="attitude lost")
    idle = []
    for k in range(800):
        now_s = 0.02 * k
        altitude_m = max(0.0, 0.1 * (now_s - 5.0)) if rises else 0.0
        state = at(altitude_m=altitude_m, t_s=now_s, attitude_valid=False, on_ground=now_s < 7.0)
        idle.append(supervisor.decide(state, Flags(), now_s=now_s, dt_s=0.02).idle)
    assert not idle[100]
    assert idle[200]  # on trial, and no failsafe takes that from it
    assert supervisor.armed  # its feet would hold a light one
    assert idle[-1] is not held
    assert isinstance(pilot.flying, Land)
    assert (pilot.flying.held, bool(pilot.flying.doubt)) == (held, not held)


def test_a_ship_that_leaves_its_pad_with_idle_motors_says_so_at_once() -> None:
    """Two light ships rose off their pads, feet torn off by a gust, and said nothing."""
    supervisor, pilot = made()
    supervisor.arm(at(on_ground=True))
    said = "left the ground with its motors idle: it is light, or somebody lifts it; hold it"
    for k in range(3):
        state = at(altitude_m=0.2 * k, t_s=0.1 * k, on_ground=k < 2)
        supervisor.decide(state, Flags(), now_s=0.1 * k, dt_s=0.1)
        assert (said in supervisor.messages) is (k == 2)
    assert not pilot.resting
