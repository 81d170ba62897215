"""From a command on the ground to a simulated motor and back, in real time, and kill -9."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from blimp.sim.remote import RemoteWorld
from tests.forked import ran
from tests.signals import stop_process
from tests.sim.running import RunningStack
from tests.stopwatch import Stopwatch

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

THERE = """
name = "there"
leg = [
  { do = "arm" },
  { do = "takeoff", altitude_m = 1.0 },
  { do = "goto", north_m = 3.0, east_m = 0.0, altitude_m = 1.0 },
  { do = "land" },
]
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[RunningStack]:
    # A ship that a restart finds in the air would fly on, armed, to land: how soon its sensors
    # see it there is no matter of these tests.
    airframe = tmp_path / "twin.toml"
    twin = (resources.files("blimp.airframes") / "twin.toml").read_text("utf-8")
    airframe.write_text('resume_after_crash = "never"\n' + twin)
    with RunningStack("--wind", "0.3", "--seed", "3", "--airframe", str(airframe)) as running:
        yield running


def motors_at_rest(stack: RunningStack) -> bool:
    with stack.world() as world:
        outputs = world.outputs()
        return all(outputs[name] == 0.0 for name in ("left", "right", "tail"))


def test_the_command_line_a_mission_whose_worker_is_killed_and_a_clean_end(
    stack: RunningStack, tmp_path: Path
) -> None:
    assert list(stack.ready) == ["event", "vehicle", "broker", "pids"]
    assert list(stack.pids) == ["broker", "world", "flight", "worker"]

    # The flight process waits for the world: what starves one stalls both.
    assert len({os.sched_getscheduler(stack.pids[name]) for name in ("world", "flight")}) == 1

    status = stack.status()
    assert {"imu", "baro", "ranger", "tag", "power"} <= set(status["sensors"])
    assert (status["armed"], status["killed"]) == (False, False)
    stack.wait_until(lambda: stack.status()["age_s"] < 1.0, within_s=60.0)

    # Two ships of one machine must be distinguished.
    same = [*stack.process.args]  # type: ignore[misc]
    second = ran(same, env=stack.environment, timeout=120)
    assert second.returncode == 1
    assert "another ship runs there" in second.stderr
    same_name = ran(
        [sys.executable, "-m", "blimp", "up", "--sim"], env=stack.environment, timeout=120
    )
    assert same_name.returncode == 1
    assert "a ship named 'twin' runs on this machine already" in same_name.stderr
    assert stack.ground("ping").status == 0

    # A leg to be killed in, and one more: this is real time, and squares are flown in lockstep.
    there = tmp_path / "there.toml"
    there.write_text(THERE)
    mission = stack.start_ground("--json", "mission", "run", str(there))
    with stack.world() as world:
        stack.wait_until(lambda: world.truth().position_ned_m[0] > 1.0, within_s=120.0)
        before, watch = world.truth(), Stopwatch()
        stack.kill("worker")
        restarted = stack.wait_for_event(lambda e: e.get("process") == "worker")
        after = world.truth()
        assert restarted["down_s"] - watch.disturbed_s() < 3.0, stack.log()
        assert abs(after.altitude_m - before.altitude_m) < 0.5
        assert abs(after.position_ned_m[1] - before.position_ned_m[1]) < 1.0  # on its leg
    flown = stack.finish(mission)
    assert flown.status == 0, flown.stdout + flown.stderr
    result = flown.json["result"]
    assert result["completed"] == result["legs"] == 4
    assert stack.end() == 0
    assert stack.left_behind() == []


def climb(stack: RunningStack, world: RemoteWorld) -> subprocess.Popen[str]:
    """Arm and take off; again if a flight process that was starved has been replaced between."""
    while True:
        stack.wait_until(lambda: stack.ground("--timeout", "5", "arm").status == 0, within_s=60.0)
        takeoff = stack.start_ground("--json", "takeoff", "3")
        stack.wait_until(
            lambda: (
                takeoff.poll() is not None  # noqa: B023  called in this turn only
                or (world.truth().altitude_m > 0.5 and not world.report().outputs_safe)
            ),
            within_s=60.0,
        )
        if takeoff.poll() is None:
            return takeoff


def push(stack: RunningStack, world: RemoteWorld) -> subprocess.Popen[str]:
    """Have the tail motor turn; again if a starved flight process has been replaced between."""
    while True:
        stack.wait_until(lambda: stack.ground("--timeout", "5", "arm").status == 0, within_s=60.0)
        stack.ground("mode", "MANUAL")
        motor = stack.start_ground("--json", "motor", "tail", "-40", "--seconds", "20")
        stack.wait_until(
            lambda: motor.poll() is not None or world.outputs()["tail"] < -0.3,  # noqa: B023
            within_s=60.0,
        )
        if motor.poll() is None:
            return motor


def test_a_parameter_set_on_the_ground_flies_at_once_and_after_a_crash_and_never_while_armed(
    stack: RunningStack,
) -> None:
    assert stack.ground("param", "limits.max_altitude_m", "4").status == 0
    assert stack.wait_for_event(lambda e: e["event"] == "ready")["pids"] == stack.pids
    # No process ended for it; one that a loaded machine starves is killed, and said to be hung.
    ends = [e["event"] for e in stack.events if e["event"] in ("hung", "restarted")]
    assert ends.count("restarted") <= ends.count("hung"), stack.events
    refused = stack.ground("param", "limits.descent_mps", "50")
    assert (refused.status, refused.json["state"]) == (5, "REFUSED")
    assert "cannot fly" in refused.json["reason"]

    def asked_of_the_ship(value: float) -> bool:
        found = stack.ground("param", "limits.max_altitude_m")
        return found.status == 0 and found.json["result"]["parameters"][0]["value"] == value

    def armed() -> bool:
        return stack.ground("--timeout", "5", "arm").status == 0

    assert asked_of_the_ship(4.0)
    stack.wait_until(armed, within_s=60.0)  # its gyroscopes are measured again
    too_high = stack.ground("takeoff", "5")
    assert "altitude_m is 5, must be within 0.5 to 4 m" in too_high.json["reason"]
    refused = stack.ground("param", "limits.max_altitude_m", "3")
    assert (refused.status, refused.json["state"]) == (5, "REFUSED")
    assert "disarmed" in refused.json["reason"]
    stack.kill("flight")
    stack.wait_for_event(lambda e: e["event"] == "restarted")
    stack.wait_until(lambda: asked_of_the_ship(4.0), within_s=60.0)
    assert stack.end() == 0
    assert stack.left_behind() == []


def test_a_ship_is_safe_after_an_estop_and_a_killed_and_a_stopped_flight_process(
    stack: RunningStack,
) -> None:
    """On one stack, whose start costs as much as a flight of seventeen seconds."""
    # Manual mode drives one motor, and an emergency stop ends it for good.
    with stack.world() as world:
        motor = push(stack, world)
        estop = stack.ground("--timeout", "30", "estop")
        assert (estop.status, estop.json["state"]) == (0, "SUCCESS")
        stack.wait_until(lambda: world.outputs()["tail"] == 0.0, within_s=60.0)
    stack.finish(motor)
    # What is shown is up to a telemetry period older than the answer to a command.
    stack.wait_until(lambda: stack.status()["killed"], within_s=60.0)
    assert stack.status()["armed"] is False
    assert stack.ground("motor", "tail", "10", "--seconds", "1").status == 5
    assert stack.status()["killed"] is True
    stack.kill("flight")  # the next flight process knows of the stop
    stack.wait_for_event(lambda e: e["event"] == "restarted")

    def says_killed() -> bool:
        refused = stack.ground("motor", "tail", "10", "--seconds", "1")
        return (refused.status, refused.json.get("reason")) == (5, "killed: send arm first")

    stack.wait_until(says_killed, within_s=60.0)
    # A fresh, explicit arm is the one way back; the gyroscopes are measured before it.
    stack.wait_until(lambda: stack.ground("arm").status == 0, within_s=60.0)
    stack.wait_until(lambda: not stack.status()["killed"], within_s=60.0)

    # Again, and the worker does nothing: an emergency stop does not need it.
    with stack.world() as world:
        motor = push(stack, world)
        stop_process(stack.pids["worker"])
        estop = stack.ground("--timeout", "30", "estop")
        assert (estop.status, estop.json["state"]) == (0, "SUCCESS")
        assert world.report().outputs_safe
        os.kill(stack.pids["worker"], signal.SIGCONT)
    stack.finish(motor)
    stack.wait_until(lambda: stack.status()["killed"], within_s=60.0)

    # A killed flight process is safe at once, and back disarmed.
    with stack.world() as world:
        takeoff = climb(stack, world)
        watch = Stopwatch()
        first = stack.kill("flight")
        stack.wait_until(lambda: motors_at_rest(stack), within_s=60.0)
        assert watch.undisturbed_s() <= 0.5
    stack.wait_for_event(lambda e: e["event"] == "safe")
    stack.wait_until(lambda: stack.pid("flight") != first, within_s=60.0)
    lost = stack.finish(takeoff)
    assert lost.json["state"] in ("REFUSED", "FAILURE", "INTERRUPTED")
    # The last word of the killed one may still be the newest for a moment.
    stack.wait_until(lambda: not stack.status()["armed"], within_s=60.0)
    status = stack.status()
    assert (status["armed"], status["killed"]) == (False, False)
    stack.wait_until(lambda: stack.status()["age_s"] < 1.0, within_s=60.0)
    assert motors_at_rest(stack)

    # A stopped one within a second: SIGSTOP, like a held interpreter or a page fault, stops its
    # own watchdog as well.
    with stack.world() as world:
        takeoff = climb(stack, world)
        watch, known = Stopwatch(), len(stack.events)
        second = stack.kill("flight", signal.SIGSTOP)
        stack.wait_until(lambda: world.report().outputs_safe, within_s=60.0)
        assert watch.undisturbed_s() <= 1.0
    hung = stack.wait_for_event(lambda e: e["event"] == "hung", since=known)
    assert list(hung) == ["event", "process", "silent_s"]
    assert hung["process"] == "flight"
    safe = stack.wait_for_event(lambda e: e["event"] == "safe", since=known)
    assert list(safe) == ["event", "after_s"]
    assert hung["silent_s"] <= safe["after_s"] <= 1.0 + watch.disturbed_s()
    stack.wait_until(lambda: stack.pid("flight") != second, within_s=60.0)
    stack.finish(takeoff)
    stack.wait_until(lambda: not stack.status()["armed"], within_s=60.0)
    assert motors_at_rest(stack)


def test_a_light_ship_whose_flight_process_dies_in_the_air_is_landed_by_the_next(
    tmp_path: Path,
) -> None:
    """Disarmed it would fly away."""
    text = (resources.files("blimp.airframes") / "twin.toml").read_text("utf-8")
    airframe = tmp_path / "light.toml"
    airframe.write_text(text.replace("heaviness_kg = 0.005", "heaviness_kg = -0.010"))
    with RunningStack("--airframe", str(airframe)) as stack:
        assert stack.ground("arm").status == 0
        assert stack.ground("takeoff", "1").status == 0
        stack.kill("flight")
        stack.wait_for_event(lambda e: e["event"] == "restarted")
        stack.wait_until(lambda: stack.status()["mode"] == "LAND", within_s=60.0)
        assert stack.status()["armed"]
        assert stack.ground("takeoff", "3").status == 5
        with stack.world() as world:
            stack.wait_until(lambda: world.truth().altitude_m < 0.3, within_s=60.0)


def test_a_killed_broker_world_and_guard_come_back_and_a_killed_supervisor_leaves_nothing(
    stack: RunningStack,
) -> None:
    stack.kill("broker")
    stack.wait_for_event(lambda e: e.get("process") == "broker")
    stack.wait_until(lambda: stack.ground("--timeout", "5", "ping").status == 0, within_s=60.0)
    stack.kill("world")
    stack.wait_for_event(lambda e: e.get("process") == "world")
    stack.wait_for_event(lambda e: e.get("process") == "flight")
    stack.wait_until(lambda: stack.ground("--timeout", "5", "arm").status == 0, within_s=30.0)
    before = stack.guard_pid()
    os.kill(before, signal.SIGKILL)
    stack.wait_until(lambda: stack.guard_pid() not in (0, before), within_s=60.0)
    stack.wait_until(lambda: stack.ground("ping").status == 0, within_s=60.0)
    # The new guard cleans up after a ship in the air.
    with stack.world() as world:
        takeoff = climb(stack, world)
    stack.end(signal.SIGKILL)
    stack.wait_until(lambda: '"event": "cleaned"' in stack.log(), within_s=60.0)
    assert stack.left_behind() == []
    assert '"outputs_safe": true' in stack.log()
    assert '"forced": []' in stack.log()
    takeoff.kill()
    takeoff.communicate()
