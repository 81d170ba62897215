import pytest

from blimp.control.failsafe import Flags
from blimp.types import ActuatorCommand, Command, Heartbeat, Outcome, OutcomeState
from tests.control.parts import Bench


def taking_off() -> Bench:
    ship = Bench()
    ship.tell("arm")
    ship.tell("takeoff", altitude_m=3.0)
    ship.run(0.5)
    return ship


def test_disarmed_the_outputs_are_made_safe_again_and_again() -> None:
    ship = Bench()
    ship.outputs.calls.clear()
    ship.run(2.0)
    assert set(ship.outputs.calls) == {"safe"}
    assert len(ship.outputs.calls) == 8  # four times a second


def test_armed_on_the_ground_it_drives_neutral() -> None:
    ship = Bench()
    ship.tell("arm")
    ship.run(0.1)
    assert ship.outputs.command is not None
    assert ship.outputs.command.motors == (0.0, 0.0, 0.0)
    assert ship.outputs.calls.count("enable") == 1
    assert not ship.loop._powered, "idle, it may be at rest"
    ship.tell("disarm")
    assert ship.outputs.calls[-2:] == ["safe", "disable"]


def test_the_failsafe_hears_what_each_source_says() -> None:
    ship = Bench()
    ship.tell("arm")
    ship.lift(3.0)

    def flags() -> Flags:
        ship.run(0.02)
        assert ship.loop._flags_seen is not None
        return ship.loop._flags_seen

    ship.sensors.unhealthy, ship.inbox.why_deaf, ship.inbox.link_age = ("ranger",), "why", 2.5
    seen = flags()
    assert (seen.unhealthy, seen.deaf, seen.link_age_s) == (("ranger",), "why", 2.5)
    assert seen.battery_v == pytest.approx(8.2)
    assert seen.power_age_s == 0.0
    ship.inbox.beats = [Heartbeat(session="view", authority=1, sequence=1)]
    ship.inbox.link_age = 0.0
    ship.sensors.cut = {"power"}
    ship.run(6.0)
    seen = flags()
    assert seen.link_age_s == pytest.approx(6.0, abs=0.05)
    assert seen.battery_v is None
    assert seen.power_age_s == pytest.approx(1.0, abs=0.05)


def test_what_a_ship_weighs_is_forgotten_at_an_arm() -> None:
    """Ballast changed between two flights counted as weighed: a light ship was let go untried."""
    ship = Bench()
    ship.tell("arm")
    ship.lift(3.0)
    ship.tell("hold")
    ship.run(20.0)
    assert ship.snapshot().heaviness_kg is not None
    ship.lift(0.0)
    ship.tell("disarm")
    ship.run(1.0)
    assert ship.snapshot().heaviness_kg is not None  # to be read after a flight
    ship.tell("arm")
    ship.run(0.1)
    assert ship.snapshot().heaviness_kg is None


def test_an_exception_leaves_the_outputs_safe_and_passes_through() -> None:
    ship = taking_off()
    ship.sensors.raises = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        ship.run(0.01)
    assert ship.outputs.command is None
    assert ship.outputs.calls[-2:] == ["safe", "disable"]


def test_a_dead_output_device_is_reported_and_does_not_end_the_flight() -> None:
    ship = taking_off()
    ship.outputs.dead = True
    ship.run(0.5)
    assert "outputs: pca9685 at i2c-1 0x40: no answer" in ship.snapshot().messages
    assert ship.snapshot().armed
    ship.outputs.dead = False
    ship.run(0.5)
    assert ship.motors_driven()


def test_a_value_that_is_no_number_makes_the_outputs_safe_and_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ship = taking_off()
    broken = ActuatorCommand(motors=(float("nan"), 0.0, 0.0), servos=(0.0, 0.0, 0.0))
    monkeypatch.setattr(ship.loop._actuation._mixer, "allocate", lambda *_, **__: broken)
    ship.run(0.02)
    assert ship.outputs.command is None
    assert "outputs safe: an actuator value is not finite" in ship.snapshot().messages
    monkeypatch.undo()
    ship.run(0.1)
    assert ship.motors_driven()


def test_after_a_stall_the_drivers_are_woken_again_and_arming_waits() -> None:
    """The watchdog has put them to sleep meanwhile."""
    ship = taking_off()
    ship.outputs.calls.clear()
    ship.now_s += 0.6
    ship.run(0.02)
    assert ship.outputs.calls == ["enable", "drive", "drive"]
    assert "loop stalled for 0.61 s" in ship.snapshot().messages
    ship.tell("estop")
    assert "loop: has just stalled" in ship.tell("arm").reason


def test_drivers_put_to_sleep_by_another_thread_are_woken_again() -> None:
    """The watchdog's count and the loop's can differ by a cycle: no stall here, but one there."""
    ship = taking_off()
    ship.outputs.safe()
    ship.outputs.calls.clear()
    ship.run(0.02)
    assert ship.outputs.calls == ["enable", "drive", "drive"]
    assert "loop stalled for 0.01 s" in ship.snapshot().messages


def test_a_clock_that_stands_still_or_jumps_is_survived() -> None:
    ship = Bench()
    ship.tell("arm")
    ship.tell("takeoff", altitude_m=3.0)
    for _ in range(10):
        ship.loop.step(ship.now_s)
    ship.lift(3.0)
    ship.tell("velocity", north_mps=0.1, east_mps=0.0, up_mps=0.0, seconds=9.0)
    ship.now_s += 0.9
    ship.run(0.01)
    assert ship.loop.mode_result["seconds"] < 0.2, "no step of a filter is longer than 0.1 s"
    ship.run(0.5)
    assert ship.snapshot().armed


@pytest.mark.parametrize("late_s", [1.1, 100.0])
def test_a_cycle_more_than_a_second_late_is_a_kill_that_needs_an_arm(late_s: float) -> None:
    """Nobody knows what the ship has done meanwhile, and what came then is old."""
    ship = taking_off()
    ship.outputs.calls.clear()
    ship.now_s += late_s
    ship.inbox.commands += [  # what queued meanwhile
        Command(id="late-arm", name="arm", sent_s=ship.now_s - 0.5, waited_s=0.5),
        Command(id="late-takeoff", name="takeoff", arguments={"altitude_m": 2.0}),
    ]
    ship.run(3.0)
    assert not {"enable", "drive"} & set(ship.outputs.calls)
    assert ship.outputs.calls[:2] == ["safe", "disable"]
    snapshot = ship.snapshot()
    assert (snapshot.armed, snapshot.killed) == (False, True)
    reason = f"killed: the loop stood still for {late_s + 0.01:.1f} s"
    assert any(message.startswith(reason) for message in snapshot.messages)
    assert "sent before the emergency stop" in ship.inbox.of("late-arm")[-1].reason
    assert ship.inbox.of("late-takeoff")[-1].reason == "killed: send arm first"
    assert ship.tell("arm").state is OutcomeState.DONE
    assert not ship.snapshot().killed


def test_a_late_cycle_ends_a_motor_that_ran_disarmed_on_the_bench() -> None:
    ship = Bench(bench=True)
    ship.tell("motor", name="left", percent=50.0, seconds=20.0)
    ship.run(0.5)
    assert ship.motors_driven()
    ship.now_s += 1.5
    ship.run(1.0)
    assert not ship.motors_driven()
    assert ship.snapshot().killed


def test_a_late_cycle_of_a_ship_that_drives_nothing_kills_nothing() -> None:
    ship = Bench()
    ship.now_s += 5.0
    ship.run(3.0)
    assert not ship.snapshot().killed
    assert ship.tell("arm").state is OutcomeState.DONE


def test_snapshots_come_at_twenty_hertz_and_carry_everything() -> None:
    ship = Bench()
    ship.inbox.snapshots.clear()
    ship.run(2.0)
    assert len(ship.inbox.snapshots) == 40
    shown = ship.inbox.snapshots[-1]
    assert (shown.boot_id, shown.vehicle, shown.mode) == ("boot-1", "test", "HOLD")
    assert shown.battery_v == pytest.approx(8.2)
    assert shown.loop.cycles > 0
    assert shown.loop.rate_hz == 100.0
    assert set(shown.sensors) == {"imu", "baro", "ranger", "tag", "power"}
    assert shown.actuators == {"left": 0.0}
    assert not shown.simulated
    ship.tell("arm")
    outcome = ship.tell("takeoff", altitude_m=3.0)
    assert ship.snapshot().active_command == f"takeoff {outcome.id}"


def test_an_emergency_stop_passes_the_other_commands_of_its_cycle() -> None:
    ship = Bench()
    ship.inbox.commands += [
        Command(id="1", name="arm"),
        Command(id="2", name="takeoff", arguments={"altitude_m": 2.0}),
        Command(id="3", name="estop"),
    ]
    ship.run(0.01)
    assert [o.id for o in ship.inbox.outcomes[:3]] == ["3", "1", "2"]
    assert "sent before the emergency stop" in ship.inbox.of("1")[-1].reason
    assert ship.inbox.of("2")[-1].reason == "killed: send arm first"
    assert "enable" not in ship.outputs.calls


def test_the_outputs_are_safe_before_a_stop_is_confirmed_and_any_sensor_read() -> None:
    """A bus that hangs must not come between a person and the motors."""
    ship = taking_off()
    assert ship.motors_driven()
    ship.inbox.commands.append(Command(id="stop", name="estop"))
    ship.sensors.raises = RuntimeError("no sensor is read any more")
    ship.outputs.calls.clear()
    post, safe = ship.inbox.post, list[bool]()

    def posted(outcome: Outcome) -> None:
        safe.append(ship.outputs.command is None)
        post(outcome)

    ship.inbox.post = posted  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        ship.run(0.01)
    assert safe == [True]
    assert ship.inbox.of("stop")[-1].state is OutcomeState.DONE


def test_close_is_idempotent() -> None:
    ship = Bench()
    ship.tell("arm")
    ship.loop.close()
    ship.loop.close()
    assert ship.outputs.calls[-2:] == ["safe", "disable"]
    ship.run(0.01)
    assert ship.outputs.calls[-2:] == ["enable", "drive"]
