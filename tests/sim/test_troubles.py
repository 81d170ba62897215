"""Troubles of a flight from its processes: each test says first what is expected.

docs/faults.md has what came of it, and the troubles of its broker in `test_troubles_broker.py`.
"""

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from blimp.clock import SystemClock
from blimp.errors import NotAuthorised
from blimp.tasks.client import VehicleClient
from ground_station.control import Control
from ground_station.discover import ShipAddress
from tests.http_client import asked, token_of
from tests.sim.running import DEADLINE_S, RunningStack

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

FAR = """
name = "far"
leg = [
  { do = "arm" },
  { do = "takeoff", altitude_m = 0.8 },
  { do = "goto", north_m = 9.0, east_m = 0.0, altitude_m = 0.8 },
  { do = "land" },
]
"""
CHANGES = 30  # of control, by each of two pilots
COMMANDS = 4  # of each pilot in each of them


@pytest.fixture
def stack() -> Iterator[RunningStack]:
    with RunningStack("--seed", "3", "--bench") as running:
        yield running


@pytest.fixture
def client(stack: RunningStack) -> Iterator[VehicleClient]:
    with VehicleClient(stack.ready["broker"], "twin") as client:
        yield client


def shown_by_page(url: str) -> dict[str, Any]:
    return dict(asked(url, "/api/state", token=token_of(url))[1])


def command_by_page(url: str, name: str, arguments: dict[str, Any]) -> str:
    """Run a command; return the state that it ended with, and the reason if there is one."""
    _, answer = asked(url, f"/api/command/{name}", arguments, token=token_of(url))
    return str(answer["state"]) + (f": {answer['reason']}" if answer.get("reason") else "")


def test_a_ground_that_dies_in_a_leg_is_missed_and_another_flies_on(
    stack: RunningStack, tmp_path: Path
) -> None:
    """Expected: the ship holds within seconds; status, page and watch say "link lost".

    Another ground takes the ship over at once, and the failsafe is over.
    """
    page = stack.start_ground("--json", "page", "--port", "0")
    assert page.stdout is not None
    url = json.loads(page.stdout.readline())["url"]
    far = tmp_path / "far.toml"
    far.write_text(FAR)
    mission = stack.start_ground("--json", "mission", "run", str(far))
    with stack.world() as world:
        stack.wait_until(lambda: world.truth().position_ned_m[0] > 1.0, within_s=DEADLINE_S)
        mission.kill()
        stack.wait_until(lambda: stack.status()["failsafe"], within_s=DEADLINE_S)
        status = stack.status()
        assert (status["failsafe"], status["mode"]) == ("link lost: holding", "HOLD")
        assert not world.report().outputs_safe
        shown = shown_by_page(url)
        assert shown["failsafe"] == "link lost: holding"
        assert shown["pilot_age_s"] >= 3.0
        watch = stack.start_ground("--timeout", "1", "watch", "--look-only")
        assert "FAILSAFE link lost: holding" in stack.finish(watch).stdout
        assert stack.ground("hold").status == 0
        stack.wait_until(lambda: stack.status()["failsafe"] == "", within_s=DEADLINE_S)
        assert stack.status()["armed"]


def test_a_page_that_commanded_is_missed_when_it_dies_and_not_when_it_ends(
    stack: RunningStack,
) -> None:
    """Expected: nobody is missed before its first command; killed in flight, the ship holds."""

    def open_page() -> tuple[subprocess.Popen[str], str]:
        page = stack.start_ground("--json", "page", "--port", "0")
        assert page.stdout is not None
        return page, json.loads(page.stdout.readline())["url"]

    page, url = open_page()
    assert shown_by_page(url)["pilot_age_s"] is None
    assert command_by_page(url, "arm", {}) == "SUCCESS"
    assert command_by_page(url, "takeoff", {"altitude_m": 0.8}) == "SUCCESS"
    age_s = shown_by_page(url)["pilot_age_s"]
    assert age_s is not None
    assert age_s < 3.0
    page.terminate()
    page.communicate(timeout=DEADLINE_S)
    page, url = open_page()
    stack.wait_until(lambda: shown_by_page(url)["pilot_age_s"] is None, within_s=DEADLINE_S)
    assert stack.status()["failsafe"] == ""
    assert command_by_page(url, "hold", {}) == "SUCCESS"
    page.kill()
    page.communicate(timeout=DEADLINE_S)
    stack.wait_until(lambda: stack.status()["failsafe"], within_s=DEADLINE_S)
    assert stack.status()["failsafe"] == "link lost: holding"


def test_a_worker_killed_in_arm_and_takeoff_ends_each_once_and_the_ship_goes_on(
    stack: RunningStack, client: VehicleClient
) -> None:
    """Expected: an arm whose worker is killed ends once, done or INTERRUPTED, and is not repeated.

    A takeoff is followed on by the next worker to its end, and the ship rises all the while.
    """
    since = len(stack.events)
    stack.kill("worker", signal.SIGSTOP)
    arm = client.send("arm", ttl_s=30.0)
    stack.kill("worker", signal.SIGCONT)
    for step in arm.events(timeout_s=DEADLINE_S):
        if step.stage != "queued":
            break
    stack.kill("worker")
    stack.wait_for_event(lambda e: e.get("process") == "worker", since=since)
    ended = arm.wait(DEADLINE_S)
    assert ended.state in ("SUCCESS", "INTERRUPTED")
    assert client.send("arm").wait(DEADLINE_S).state == "SUCCESS"
    assert client.result(arm.id).state == ended.state  # no second end
    flight = stack.pid("flight")
    with stack.world() as world:
        takeoff = client.send("takeoff", {"altitude_m": 1.5}, ttl_s=30.0)
        stack.wait_until(lambda: world.truth().altitude_m > 0.2, within_s=DEADLINE_S)
        low_m = world.truth().altitude_m
        since = len(stack.events)
        stack.kill("worker")
        stack.wait_for_event(lambda e: e.get("process") == "worker", since=since)
        assert world.truth().altitude_m > low_m
        assert not world.report().outputs_safe
        assert takeoff.wait(DEADLINE_S).state == "SUCCESS"
    assert stack.pid("flight") == flight


def test_a_ship_whose_runtime_directory_was_emptied_hears_commands_and_stops_again(
    stack: RunningStack, client: VehicleClient
) -> None:
    """Expected: it flies on, its sockets are back within seconds, and what was lost is said.

    What the simulation alone has there stays: without its world no simulated ship flies.
    """
    paths = stack.paths
    kept = {paths.broker, paths.notify, paths.world}
    assert client.send("arm").wait(DEADLINE_S).state == "SUCCESS"
    assert client.send("mode", {"name": "MANUAL"}).wait(DEADLINE_S).state == "SUCCESS"
    motor = client.send("motor", {"name": "tail", "percent": -40.0, "seconds": 30.0})
    with stack.world() as world:
        stack.wait_until(lambda: world.outputs()["tail"] < -0.3, within_s=DEADLINE_S)
        flight, worker = stack.pid("flight"), stack.pid("worker")
        for path in paths.directory.iterdir():
            if path not in kept:
                path.unlink()
        assert client.send("ping", ttl_s=30.0).wait(DEADLINE_S).state == "SUCCESS"
        assert not world.report().outputs_safe
        assert client.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
        assert world.report().outputs_safe
    assert motor.wait(DEADLINE_S).state != "SUCCESS"
    assert (stack.pid("flight"), stack.pid("worker")) == (flight, worker)
    assert "its files were gone: put back" in stack.log()
    assert paths.vehicle.read_text() == "twin"
    assert paths.airframe.exists()
    assert paths.record.exists()


def test_of_two_pilots_who_take_control_from_each_other_one_acts_at_a_time(
    stack: RunningStack, tmp_path: Path
) -> None:
    """Expected: what the ship carries out is ordered by control; the loser is refused, by name.

    No command of the loser acts after the change, and none acts twice.
    """
    rounds = iter(range(2 * CHANGES))
    fight(stack, tmp_path, is_over=lambda: next(rounds, None) is None)


def fight(stack: RunningStack, state: Path, *, is_over: Callable[[], bool]) -> int:
    """Let two pilots take control from each other, and command; return how often it changed."""
    url = stack.ready["broker"]
    acted: list[tuple[float, int, str]] = []
    refused: list[str] = []
    lock = threading.Lock()

    def command(name: str) -> None:
        ship = ShipAddress(vehicle="twin", broker=url)
        with (
            Control(
                ship=ship, state=state / name, clock=SystemClock(), say=lambda _: None
            ) as control,
            VehicleClient(url, "twin", source=name) as client,
        ):
            while not is_over():
                try:
                    if not control.is_mine(control.who()):
                        control.take_away()
                    grant = control.take(name)
                except NotAuthorised:  # the other was quicker
                    continue
                client.authority = grant.token
                for _ in range(COMMANDS):
                    sent = client.send("servo", {"name": "tilt", "deg": 5.0}, ttl_s=30.0)
                    reply = sent.wait(DEADLINE_S)
                    with lock:
                        if reply.state == "SUCCESS":
                            assert isinstance(reply.result, dict)
                            acted.append((reply.result["accepted_s"], grant.token, sent.id))
                        else:
                            refused.append(reply.kind)

    with ThreadPoolExecutor(2) as threads:
        for pilot in [threads.submit(command, name) for name in ("alice", "bob")]:
            pilot.result()
    # Commands of one cycle of the loop have one time: the ship took them in the order of control.
    tokens = [token for _, token, _ in sorted(acted)]
    assert tokens == sorted(tokens)
    assert len({id for _, _, id in acted}) == len(acted)
    assert len(set(tokens)) > 2, (acted, refused)
    assert set(refused) <= {"NotInControl"}
    return len(set(tokens))
