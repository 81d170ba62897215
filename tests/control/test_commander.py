"""Commands through a whole flight loop; the ship stands, or is carried in the air."""

from math import inf, nan, pi
from typing import Any

import msgspec
import pytest

from blimp.control.failsafe import Flags
from blimp.control.modes.land import Land
from blimp.types import Command, Outcome, OutcomeState
from tests.control.parts import DOWN, Alone, Bench, a_ship, at, twin

DONE, REFUSED, RUNNING = OutcomeState.DONE, OutcomeState.REFUSED, OutcomeState.IN_PROGRESS


def flying(*, altitude_m: float = 3.0) -> Bench:
    """Armed, and lifted off the ground by hand."""
    ship = Bench()
    assert ship.tell("arm").state is DONE
    ship.lift(altitude_m)
    assert not ship.loop.state.on_ground
    return ship


def refused(outcome: Outcome) -> str:
    assert outcome.state is REFUSED, outcome
    return outcome.reason


# --- the table -----------------------------------------------------------------------------------


def test_sensor_tells_its_status_and_refuses_a_name_it_does_not_have() -> None:
    ship = Bench()
    assert ship.tell("sensor", name="baro").result["healthy"] is True
    reason = refused(ship.tell("sensor", name="nose"))
    assert reason == "sensor: name: no sensor 'nose'; sensors are baro, imu, power, ranger, tag"


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("takeoff", {}, ["takeoff", "altitude_m"]),
        ("takeoff", {"altitude_m": "3"}, ["takeoff", "altitude_m"]),
        ("takeoff", {"altitude_m": nan}, ["altitude_m", "nan", "finite"]),
        ("takeoff", {"altitude_m": inf}, ["altitude_m", "inf", "finite"]),
        ("takeoff", {"altitude_m": 0.1}, ["altitude_m is 0.1", "0.5 to 30 m"]),
        ("takeoff", {"altitude_m": 31.0}, ["altitude_m is 31", "0.5 to 30 m"]),
        ("takeoff", {"altitude_m": 3.0, "speed": 9}, ["takeoff", "speed"]),
        ("goto", {"north_m": 1.0, "east_m": 1.0}, ["goto", "altitude_m"]),
        ("goto", {"north_m": nan, "east_m": 0.0, "altitude_m": 3.0}, ["north_m", "finite"]),
        (
            "goto",
            {"north_m": 80.0, "east_m": 80.0, "altitude_m": 3.0},
            ["distance from the pad is 113", "limit is 100 m"],
        ),
        (
            "goto",
            {"north_m": 1.0, "east_m": 1.0, "altitude_m": 3.0, "yaw_deg": 400.0},
            ["yaw_deg is 400"],
        ),
        (
            "velocity",
            {"north_mps": 0.6, "east_mps": 0.6, "up_mps": 0.0, "seconds": 1.0},
            ["horizontal speed is 0.848", "0 to 0.7 m/s"],
        ),
        (
            "velocity",
            {"north_mps": 0.0, "east_mps": 0.0, "up_mps": 0.5, "seconds": 1.0},
            ["up_mps is 0.5", "-0.3 to 0.4"],
        ),
        (
            "velocity",
            {"north_mps": 0.0, "east_mps": 0.0, "up_mps": 0.0, "seconds": 61.0},
            ["seconds is 61"],
        ),
        ("mode", {"name": "ACRO"}, ["no mode 'ACRO'", "LAND, MANUAL"]),
        ("mode", {}, ["mode", "name"]),
        ("motor", {"name": "up", "percent": 1, "seconds": 1}, ["no motor 'up'", "left, right"]),
        (
            "motor",
            {"name": "left", "percent": 101, "seconds": 1},
            ["percent is 101", "-100 to 100"],
        ),
        ("motor", {"name": "left", "percent": 1, "seconds": 31}, ["seconds is 31", "0 to 30"]),
        ("servo", {"name": "left", "deg": 1}, ["no servo 'left'", "tilt, elevator, rudder"]),
        ("servo", {"name": "rudder", "deg": 45}, ["deg is 45", "-34.3775 to 34.3775"]),
        ("ping", {"loud": True}, ["ping", "loud"]),
        ("arm", {"force": "yes"}, ["arm", "force"]),
    ],
)
def test_a_bad_argument_is_refused_naming_it_its_value_and_the_limit(
    name: str, arguments: dict[str, Any], words: list[str]
) -> None:
    ship = Alone()
    mode = ship.pilot.mode
    reason = refused(ship.tell(name, **arguments))
    for word in words:
        assert word in reason
    assert ship.pilot.mode is mode


# --- once and only once --------------------------------------------------------------------------


def test_a_redelivered_command_gets_its_first_outcome_and_moves_nothing() -> None:
    ship = flying()
    first = Command(id="leg", name="goto",
                    arguments={"north_m": 5.0, "east_m": 0.0, "altitude_m": 3.0})  # fmt: skip
    assert ship.send(first).state is RUNNING
    hold = ship.tell("hold")
    assert hold.state is DONE
    again = ship.send(Command(id="leg", name="goto", arguments=first.arguments, fence=2))
    assert refused(again) == f"superseded by hold {hold.id}"
    assert ship.snapshot().mode == "HOLD"


def test_a_redelivered_arm_does_not_arm_again() -> None:
    ship = Bench()
    arm = Command(id="arm-1", name="arm")
    assert ship.send(arm).state is DONE
    assert ship.tell("disarm").state is DONE
    assert ship.send(Command(id="arm-1", name="arm", fence=2)).state is DONE
    assert not ship.snapshot().armed


def test_an_id_that_was_answered_hides_no_emergency_stop() -> None:
    ship = flying()
    assert ship.send(Command(id="x", name="ping", fence=9)).state is DONE
    assert ship.send(Command(id="x", name="estop", fence=1)).result == {"killed": True}
    assert ship.snapshot().killed


def test_an_emergency_stop_that_comes_again_is_answered_whatever_its_fence() -> None:
    """From memory: after a fresh arm, a late repetition must not stop the motors again."""
    ship = flying()
    first = ship.send(Command(id="x", name="estop", fence=5))
    ship.tell("arm")
    assert ship.send(Command(id="x", name="estop", fence=1)) == first
    assert ship.snapshot().armed


def test_an_id_that_was_that_of_another_command_is_refused() -> None:
    ship = flying()
    ship.send(Command(id="x", name="ping"))
    outcome = ship.send(Command(id="x", name="hold"))
    assert (outcome.state, outcome.reason) == (REFUSED, "id x was that of a ping: use a new one")


def test_an_older_fence_is_refused_and_the_outcome_kept() -> None:
    ship = Bench()
    assert ship.send(Command(id="a", name="ping", fence=3)).state is DONE
    reason = refused(ship.send(Command(id="a", name="ping", fence=2)))
    assert reason == "fence 2 is older than 3, the newest seen"
    assert ship.send(Command(id="a", name="ping", fence=3)).state is DONE
    assert ship.send(Command(id="a", name="ping", fence=7)).state is DONE
    assert "older than 7" in refused(ship.send(Command(id="a", name="ping", fence=6)))


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            Command(id="a", name="arm", age_s=7.21, ttl_s=5.0),
            "stale: 7.2 s old, limit 5 s",
        ),
        (
            Command(id="a", name="arm", boot_id="boot-0"),
            "the flight process was restarted since it was sent (boot boot-0, now boot-1): "
            "send it again",
        ),
        (
            Command(id="a", name="arm", age_s=nan, ttl_s=5.0),
            "age_s is nan, must be a finite number",
        ),
        (
            Command(id="a", name="arm", age_s=0.5, ttl_s=5.0, waited_s=6.0),
            "stale: 6.5 s old, limit 5 s",
        ),
        (
            Command(id="a", name="arm", age_s=0.5, ttl_s=5.0, waited_s=inf),
            "sent_s is missing, a time to come or before this flight process began: "
            "its age is not known",
        ),
        (Command(id="a", name="arm", age_s=1.0, ttl_s=nan), "stale: 1.0 s old, limit nan s"),
        (
            Command(id="a", name="arm", age_s=-3600.0, ttl_s=5.0),
            "issued 3600.0 s in the future, limit 1 s",
        ),
    ],
)
def test_what_must_not_act_any_more_is_refused(command: Command, reason: str) -> None:
    ship = Alone(DOWN, armed=False)
    assert refused(ship.send(command)) == reason
    assert not ship.supervisor.armed
    again = Command(id="a", name="arm", age_s=0.1, ttl_s=5.0, fence=2)
    assert ship.send(again).state is REFUSED  # its first outcome again


# --- arming and killing --------------------------------------------------------------------------


def test_arm_is_refused_with_every_reason_and_its_cure() -> None:
    ship = Bench()
    ship.sensors.unhealthy = ("ranger",)
    ship.sensors.battery_v = 6.0
    ship.run(20.0)
    reason = refused(ship.tell("arm"))
    assert reason == (
        "not ready to arm: ranger: no answer; check its wiring at i2c-1 0x10 | "
        "battery: 6.00 V, must be above 7.00 V; charge or change it"
    )
    assert ship.loop.problems() == (
        "ranger: no answer; check its wiring at i2c-1 0x10",
        "battery: 6.00 V, must be above 7.00 V; charge or change it",
    )


def test_force_works_on_the_bench_and_nowhere_else() -> None:
    for bench in (False, True):
        ship = Bench(bench=bench)
        ship.sensors.unhealthy = ("tag",)
        ship.run(0.1)
        assert ship.tell("arm").state is REFUSED
        outcome = ship.tell("arm", force=True)
        assert outcome.state is (DONE if bench else REFUSED)
        if not bench:
            assert "force works only on the bench" in outcome.reason


def test_estop_stops_in_the_same_cycle_and_nothing_but_a_fresh_arm_undoes_it() -> None:
    """Two old accidents: a kill undone by the next tick, and a keep-alive that re-armed."""
    ship = flying()
    ship.tell("goto", north_m=8.0, east_m=0.0, altitude_m=3.0)
    ship.run(2.0)
    assert ship.motors_driven()
    ship.inbox.commands.append(Command(id="stop", name="estop"))
    ship.run(0.01)  # one cycle
    assert ship.outputs.command is None
    assert ship.outputs.calls[-2:] == ["safe", "disable"]
    ship.outputs.calls.clear()
    for k in range(300):  # keep-alives, mode changes, motors, another estop
        ship.tell("ping")
        for name, arguments in (
            ("mode", {"name": "MANUAL"}),
            ("hold", {}),
            ("takeoff", {"altitude_m": 3.0}),
            ("motor", {"name": "left", "percent": 50, "seconds": 5}),
            ("land", {}),
            ("disarm", {}),
            ("estop", {}),
        ):
            if k % 50 == 0:
                ship.tell(name, **arguments)
    assert "drive" not in ship.outputs.calls
    assert "enable" not in ship.outputs.calls
    assert (ship.snapshot().killed, ship.snapshot().armed) == (True, False)
    assert ship.tell("arm").state is DONE
    assert (ship.snapshot().killed, ship.snapshot().armed) == (False, True)


def test_an_arm_sent_before_the_stop_does_not_undo_it() -> None:
    """It was longer in the queue than the stop, which passes every queue."""
    ship = Bench()
    ship.tell("arm")
    ship.tell("estop")
    ship.run(1.0)
    late = ship.send(Command(id="late", name="arm", age_s=3.0, ttl_s=10.0))
    assert refused(late) == "arm was sent before the emergency stop: send a new arm"
    for number, waited_s in enumerate((1.2, inf)):  # the ship's own process stood still
        stalled = Command(id=f"late-{number}", name="arm", age_s=-0.5, waited_s=waited_s)
        assert "before the emergency stop" in refused(ship.send(stalled))
    assert ship.snapshot().killed
    assert ship.send(Command(id="fresh", name="arm", age_s=0.2, ttl_s=10.0)).state is DONE


def test_an_arm_sent_before_the_stop_in_a_cycle_that_stood_still_does_not_undo_it() -> None:
    ship = Bench()
    ship.tell("arm")
    began_s = ship.now_s + 0.01
    ship.send(Command(id="stop", name="estop", sent_s=began_s + 0.9))
    ship.now_s = began_s + 1.0
    late = Command(id="late", name="arm", age_s=0.1, waited_s=0.4, ttl_s=10.0)
    assert "before the emergency stop" in refused(ship.send(late))


def test_no_copy_of_an_old_stop_stops_a_ship_that_was_armed_since() -> None:
    ship = Bench()
    order = Command(id="order", name="payload", arguments={"name": "no such"})
    first, presses = ship.send(order), [Command(id=f"s{n}", name="estop") for n in range(3000)]
    ship.inbox.commands += presses
    ship.run(0.01)
    assert ship.snapshot().killed
    assert ship.tell("arm").state is OutcomeState.DONE
    for copy in presses:  # a queue and a stream keep each for 10 s
        assert ship.send(copy).result == {"killed": True}
    assert ship.snapshot().armed
    assert ship.send(order) == first  # nor do stops forget what else was carried out
    ship.tell("estop")
    assert ship.snapshot().killed


@pytest.mark.parametrize(
    "command",
    [
        Command(id="e", name="estop", age_s=1e9, ttl_s=1.0),
        Command(id="e", name="estop", boot_id="another"),
        Command(id="e", name="estop", age_s=nan, ttl_s=1.0),
        Command(id="e", name="estop", arguments={"nonsense": 1}),
    ],
)
def test_estop_is_never_refused(command: Command) -> None:
    ship = flying()
    assert ship.send(command).state is DONE
    assert ship.snapshot().killed


def test_disarm_is_for_the_ground() -> None:
    ship = flying()
    reason = refused(ship.tell("disarm"))
    assert reason == "in the air at 3.0 m: send land, or estop to stop the motors at once"
    assert ship.snapshot().armed
    ship.lift(0.0)
    ship.run(2.0)
    assert ship.tell("disarm").state is DONE
    assert ship.tell("disarm").state is DONE  # it is what was asked for already


def test_a_person_may_disarm_a_ship_held_down_whatever_its_height_says() -> None:
    """Asked to secure it, then disarm, the person was refused: "in the air at 1.0 m"."""
    ship = flying()
    pilot = ship.loop._pilot
    land = Land(ship.loop.state, ship=a_ship(heaviness_kg=-0.006), down=True)
    pilot.enter(land, reason="test")
    ship.run(0.1)
    assert land.held
    assert "secure the ship, then disarm" in ship.snapshot().messages[-1]
    assert ship.loop.state.altitude_m > 2.0  # by its height
    assert ship.tell("disarm").state is DONE


# --- flying --------------------------------------------------------------------------------------


def test_each_command_asks_for_what_it_says() -> None:
    ship = Alone(at(4.0, 2.0, 3.0))
    ship.tell("goto", north_m=5.0, east_m=2.0, altitude_m=3.5, yaw_deg=90.0)
    assert ship.pilot.mode.target_ned_m == (5.0, 2.0, -3.5)
    assert ship.wish().yaw_rad == pytest.approx(pi / 2.0)
    ship.tell("takeoff", altitude_m=6.0)
    assert ship.pilot.mode.target_ned_m == (4.0, 2.0, -6.0)
    ship.tell("velocity", north_mps=0.3, east_mps=-0.2, up_mps=0.1, seconds=30.0)
    assert ship.wish(20.0).velocity_ned_mps == pytest.approx((0.3, -0.2, -0.1))
    ship.tell("mode", name="STABILIZE")
    stick = {"forward_percent": 50.0, "right_percent": 40.0, "up_percent": 30.0}
    ship.tell("stick", **stick, turn_percent=20.0, seconds=2.0)
    pushed = ship.wish()
    assert pushed.thrust_body == (0.5, 0.4, -0.3)
    assert pushed.yaw_rate_radps == pytest.approx(0.2 * twin().limits.yaw_rate_radps)
    ship.state = at(4.0, 2.0, 3.0, t_s=3.0)
    assert ship.wish().thrust_body == (0.0, 0.0, 0.0), "its time is over"
    ship.tell("mode", name="MANUAL")
    ship.tell("motor", name="right", percent=40.0, seconds=1.0)
    ship.tell("servo", name="rudder", deg=10.0, seconds=1.0)
    ordered = ship.pilot.manual.command(1.5)
    assert ordered.motors == (0.0, 0.4, 0.0)
    assert ordered.servos[2] == pytest.approx(pi / 18.0)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("takeoff", {"altitude_m": 3.0}),
        ("goto", {"north_m": 1.0, "east_m": 0.0, "altitude_m": 3.0}),
        ("velocity", {"north_mps": 0.1, "east_mps": 0.0, "up_mps": 0.0, "seconds": 1.0}),
        ("mode", {"name": "LOITER"}),
        ("hold", {}),
        ("land", {}),
        ("return", {}),
    ],
)
def test_nothing_flies_disarmed(name: str, arguments: dict[str, Any]) -> None:
    assert refused(Alone(DOWN, armed=False).tell(name, **arguments)) == "not armed: send arm first"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("goto", {"north_m": 1.0, "east_m": 0.0, "altitude_m": 3.0}),
        ("velocity", {"north_mps": 0.1, "east_mps": 0.0, "up_mps": 0.0, "seconds": 1.0}),
        ("mode", {"name": "LOITER"}),
        ("return", {}),
    ],
)
def test_from_the_ground_only_takeoff_flies(name: str, arguments: dict[str, Any]) -> None:
    ship = Alone(DOWN)
    assert "on the ground: send takeoff first" in refused(ship.tell(name, **arguments))
    assert ship.pilot.resting
    assert ship.tell("takeoff", altitude_m=2.0).state is RUNNING
    assert not ship.pilot.resting


@pytest.mark.parametrize("name", ["takeoff", "goto", "velocity", "return", "mode"])
def test_without_a_position_what_needs_one_is_refused(name: str) -> None:
    ship = Alone(at(altitude_m=3.0, position_valid=False, position_age_s=3.0))
    all_arguments: dict[str, dict[str, Any]] = {
        "takeoff": {"altitude_m": 3.0},
        "goto": {"north_m": 1.0, "east_m": 0.0, "altitude_m": 3.0},
        "velocity": {"north_mps": 0.1, "east_mps": 0.0, "up_mps": 0.0, "seconds": 1.0},
        "return": {},
        "mode": {"name": "LOITER"},
    }
    reason = refused(ship.tell(name, **all_arguments[name]))
    assert "position lost" in reason
    assert "hold and land work without one" in reason
    assert ship.tell("hold").state is DONE
    assert ship.tell("land").state is RUNNING


def test_progress_is_reported_at_five_hertz_and_the_end_once() -> None:
    ship = flying()
    outcome = ship.tell("velocity", north_mps=0.0, east_mps=0.0, up_mps=0.0, seconds=2.0)
    ship.run(4.0)
    reported = ship.inbox.of(outcome.id)
    running = [o for o in reported if o.state is RUNNING]
    assert 9 <= len(running) <= 11
    fractions = [o.fraction for o in running]
    assert fractions == sorted(fractions)
    assert [o.state for o in reported if o.state is not RUNNING] == [DONE]
    assert reported[-1].accepted_s == reported[0].accepted_s


# --- motors and servos ---------------------------------------------------------------------------


def test_a_motor_runs_in_manual_for_its_time_and_no_longer() -> None:
    ship = Bench()
    ship.tell("arm")
    reason = refused(ship.tell("motor", name="left", percent=-40, seconds=1.0))
    assert reason == "motor: works only in MANUAL or on the bench; the mode is HOLD"
    assert ship.tell("mode", name="MANUAL").state is DONE
    outcome = ship.tell("motor", name="left", percent=-40, seconds=1.0)
    assert outcome.state is RUNNING
    ship.run(0.5)
    assert ship.outputs.command is not None
    assert ship.outputs.command.motors == (-0.4, 0.0, 0.0)
    ship.run(0.6)
    assert ship.outputs.command.motors == (0.0, 0.0, 0.0)
    assert ship.inbox.of(outcome.id)[-1].state is DONE


def test_a_newer_order_for_the_same_motor_supersedes_the_older_alone() -> None:
    ship = Bench(bench=True)
    left = ship.tell("motor", name="left", percent=10, seconds=5.0)
    tail = ship.tell("motor", name="tail", percent=10, seconds=5.0)
    newer = ship.tell("motor", name="left", percent=20, seconds=5.0)
    assert refused(ship.inbox.of(left.id)[-1]) == f"superseded by motor {newer.id}"
    assert ship.inbox.of(tail.id)[-1].state is RUNNING


def test_on_the_bench_it_works_disarmed_and_not_elsewhere() -> None:
    assert "not armed: arm and enter MANUAL" in refused(
        Bench().tell("motor", name="left", percent=10, seconds=1.0)
    )
    ship = Bench(bench=True)
    ship.outputs.calls.clear()
    ship.tell("motor", name="left", percent=10, seconds=0.5)
    ship.run(0.2)
    assert ship.outputs.calls[0] == "enable"
    assert ship.motors_driven()
    ship.run(0.5)
    assert ship.outputs.command is None
    assert ship.outputs.calls.count("safe") >= 1
    assert not ship.snapshot().armed


def test_a_servo_without_a_time_answers_at_once_and_goes_back_after_ten_seconds() -> None:
    ship = Bench(bench=True)
    outcome = ship.tell("servo", name="rudder", deg=10)
    assert outcome.state is DONE
    ship.run(9.0)
    assert ship.outputs.command is not None
    assert ship.outputs.command.servos[2] == pytest.approx(0.17453, abs=1e-4)
    ship.run(1.5)
    assert ship.outputs.command is None


def test_leaving_manual_ends_what_was_ordered() -> None:
    ship = flying()
    ship.tell("mode", name="MANUAL")
    order = ship.tell("motor", name="left", percent=30, seconds=20.0)
    ship.run(0.5)
    hold = ship.tell("hold")
    assert refused(ship.inbox.of(order.id)[-1]) == f"superseded by hold {hold.id}"
    ship.tell("mode", name="MANUAL")
    ship.run(0.1)
    assert not ship.motors_driven()


def test_a_stick_works_in_stabilize_and_althold_only() -> None:
    ship = flying()
    push = {"forward_percent": 50.0, "up_percent": 20.0, "seconds": 1.0}
    reason = refused(ship.tell("stick", **push))
    assert reason == "stick: works only in STABILIZE and ALTHOLD; the mode is HOLD"
    assert "forward_percent is nan" in refused(ship.tell("stick", forward_percent=nan, seconds=1.0))
    assert "up_percent is 101" in refused(ship.tell("stick", up_percent=101.0, seconds=1.0))
    for name in ("STABILIZE", "ALTHOLD"):
        assert ship.tell("mode", name=name).state is DONE
        ship.run(0.5)
        assert ship.snapshot().mode == name
        assert ship.tell("stick", **push).result == {"mode": name, "seconds": 1.0}
        ship.run(0.3)
        assert ship.motors_driven()


# --- parameters ----------------------------------------------------------------------------------


def test_a_parameter_is_taken_over_by_a_disarmed_ship_which_arms_no_more() -> None:
    ship = Bench()
    assert ship.tell("param", name="limits.speed_mps", value=0.7).state is DONE
    assert ship.taken_over == []  # it is so already
    assert ship.tell("param", name="limits.speed_mps", value=0.5).state is DONE
    assert [one.limits.speed_mps for one in ship.taken_over] == [0.5]
    assert "is being set" in refused(ship.tell("arm"))
    assert "another parameter" in refused(ship.tell("param", name="limits.speed_mps", value=0.6))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("limits.speed_mps", -1.0, "limits.speed_mps is -1 m/s, must be above 0 m/s"),
        ("limits.speed_mps", nan, "limits.speed_mps is"),
        ("limits.sped_mps", 1.0, "did you mean 'limits.speed_mps'"),
        ("mass.heaviness_kg", 1.0, "no parameter"),
        ("limits.speed_mps", "fast", "Expected `float`"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused_with_its_limit(
    name: str, value: object, words: str
) -> None:
    ship = Bench()
    assert words in refused(ship.tell("param", name=name, value=value))
    assert ship.taken_over == []


def test_no_parameter_changes_while_armed_or_killed() -> None:
    ship = flying()
    asked: dict[str, Any] = {"name": "limits.speed_mps", "value": 0.5}
    assert "disarmed" in refused(ship.tell("param", **asked))
    ship.tell("estop")
    assert "killed" in refused(ship.tell("param", **asked))
    assert ship.taken_over == []
    assert "killed" in refused(ship.tell("takeoff", altitude_m=3.0))  # and is still


@pytest.mark.parametrize(
    ("mode", "lost", "says"),
    [
        ("STABILIZE", ("attitude",), "attitude not known: land works without one"),
        ("ALTHOLD", ("height",), "height not known: land works without one"),
        ("LOITER", ("position",), "position lost for 2.5 s: hold and land work without one"),
        ("LOITER", ("position", "heading"), "heading not known: hold and land work without one"),
    ],
)
def test_what_needs_a_quantity_that_is_not_known_says_what_works_without_it(
    mode: str, lost: tuple[str, ...], says: str
) -> None:
    ship = flying()
    known = {f"{name}_valid": False for name in lost}
    state = msgspec.structs.replace(ship.loop.state, position_age_s=2.5, **known)
    flags = Flags()
    command = Command(id="1", name="mode", arguments={"name": mode})
    outcome = ship.loop._commander.handle(command, now_s=ship.now_s, state=state, flags=flags)
    assert (outcome.state, outcome.reason) == (OutcomeState.REFUSED, f"{mode}: {says}")
