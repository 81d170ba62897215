"""Troubles of a flight that come from its processes: worker, ground, runtime directory.

Each test says first what is expected. docs/faults.md has what came of it.
"""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blimp.tasks.client import VehicleClient
from tests.ground_station.page.client import token_of
from tests.sim.running import DEADLINE_S, RunningStack

pytestmark = [pytest.mark.flight, pytest.mark.timeout(400)]

FAR = """
name = "far"
leg = [
  { do = "arm" },
  { do = "takeoff", altitude_m = 1.5 },
  { do = "goto", north_m = 9.0, east_m = 0.0, altitude_m = 1.5 },
  { do = "goto", north_m = 0.0, east_m = 0.0, altitude_m = 1.5 },
  { do = "land" },
]
"""


@pytest.fixture
def stack() -> Iterator[RunningStack]:
    running = RunningStack("--seed", "3")
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def client(stack: RunningStack) -> Iterator[VehicleClient]:
    with VehicleClient(stack.ready["broker"], "twin") as client:
        yield client


def page_says(stack: RunningStack, url: str) -> dict[str, Any]:
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    link = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE_S)
    link.request("GET", "/api/state", headers={"Authorization": f"Bearer {token_of(url)}"})
    found = json.loads(link.getresponse().read())
    link.close()
    return dict(found)


def test_a_worker_killed_in_arm_and_takeoff(stack: RunningStack, client: VehicleClient) -> None:
    """Expected: each command ends once, as done; the ship goes on; the next worker follows it."""
    flight = stack.pid("flight")
    for task, arguments in (("arm", {}), ("takeoff", {"altitude_m": 1.5})):
        since = len(stack.events)
        stack.kill("flight", signal.SIGSTOP)  # so that the worker waits for its answer
        pending = client.send(task, arguments, ttl_s=30.0)
        for step in pending.events(timeout_s=DEADLINE_S):
            if step.stage == "received":
                break
        stack.kill("worker")
        stack.kill("flight", signal.SIGCONT)
        stack.wait_for_event(lambda e: e.get("process") == "worker", since=since)
        reply = pending.wait(DEADLINE_S)
        print(task, reply)
        assert reply.state == ("INTERRUPTED" if task == "arm" else "SUCCESS")
        stack.wait_until(lambda: stack.status()["armed"], within_s=DEADLINE_S)
    assert stack.pid("flight") == flight
    print(stack.status()["mode"], stack.events)


def test_the_ground_dies_in_a_leg(stack: RunningStack, tmp_path: Path) -> None:
    """Expected: the ship holds after 3 s, and page and watch say that its link is lost.

    Another ground may fly it on at once.
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
        print(stack.status()["failsafe"], stack.status()["mode"])
        found = page_says(stack, url)
        print({k: v for k, v in found.items() if k not in ("sensors",)})
        watch = stack.start_ground("--json", "--timeout", "2", "watch", "--look-only")
        answer = stack.finish(watch)
        print(answer.status, answer.stdout[-900:], answer.stderr)
        watch = stack.start_ground("--timeout", "2", "watch", "--look-only")
        answer = stack.finish(watch)
        print(answer.status, answer.stdout[-900:], answer.stderr)
        land = stack.ground("land")
        print(land.json, stack.status()["failsafe"])


def test_no_runtime_dir(stack: RunningStack, client: VehicleClient) -> None:
    """Expected: the ship flies on, a stop still comes through, it is said."""
    client.ready_to_stop()
    assert client.send("arm").wait(DEADLINE_S).state == "SUCCESS"
    assert client.send("takeoff", {"altitude_m": 1.5}).wait(DEADLINE_S).state == "SUCCESS"
    with stack.world() as world:
        for path in stack.paths.directory.iterdir():
            if path != stack.paths.broker:
                path.unlink()
        print("ping", client.send("ping", ttl_s=2.0).wait(3.0))
        print("stop", client.estop(timeout_s=3.0), world.truth().altitude_m)
        print("ground stop", stack.ground("--timeout", "3", "estop").stdout)
        import time

        time.sleep(2)
        print(stack.status())
        print(stack.events, stack.log()[-3000:])
        shutil.rmtree(stack.paths.directory)
        time.sleep(8)
        print(world.truth().altitude_m, world.report())
        print(stack.process.poll(), stack.events)
    print(stack.end(), stack.left_behind(), stack.events)
    print(stack.log()[-3000:])
