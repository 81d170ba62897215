"""Two real-time ships on one broker: dispatched, refused to others, stopped by anybody."""

import os
import re
import signal
from collections.abc import Iterator

import pytest

from blimp.link.paths import RuntimePaths
from blimp.sim.remote import RemoteWorld
from blimp.tasks.client import VehicleClient
from tests.sim.running import RunningStack

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

NAMES = ("twin-1", "twin-2")
HOP = '[[leg]]\ndo = "arm"\n[[leg]]\ndo = "takeoff"\naltitude_m = 1.2\n[[leg]]\ndo = "land"\n'


@pytest.fixture
def fleet() -> Iterator[RunningStack]:
    with RunningStack("--ships", "2") as running:
        running.environment["XDG_STATE_HOME"] = str(running.home / "state")
        for name in NAMES:
            running.wait_for_event(lambda e, n=name: e["event"] == "ready" and e["vehicle"] == n)  # type: ignore[misc]
        (running.home / "hop.toml").write_text(f'name = "hop"\n{HOP}')
        yield running


def pids(fleet: RunningStack, vehicle: str) -> dict[str, int]:
    ready = (e for e in fleet.events if e["event"] == "ready" and e["vehicle"] == vehicle)
    found: dict[str, int] = next(ready)["pids"]
    return found


def world(fleet: RunningStack, vehicle: str) -> RemoteWorld:
    return RemoteWorld(RuntimePaths(fleet.paths.directory / vehicle).world)


def test_two_dispatches_fly_two_ships_that_only_their_pilots_command_and_anybody_stops(
    fleet: RunningStack,
) -> None:
    hop = str(fleet.home / "hop.toml")
    flights = [
        fleet.start_ground("--json", "dispatch", "--any", hop, "--wait", "15", "--pilot", pilot)
        for pilot in ("alice", "bob")
    ]
    with world(fleet, "twin-1") as one, world(fleet, "twin-2") as two:
        fleet.wait_until(
            lambda: min(one.truth().altitude_m, two.truth().altitude_m) > 0.2, within_s=40.0
        )
        third = fleet.ground("dispatch", "--any", hop)
        assert third.status == 7
        assert "alice has it" in third.json["reason"]
        assert "bob has it" in third.json["reason"]
        for name in NAMES:
            with VehicleClient(fleet.ready["broker"], name) as anybody:
                refused = anybody.send("hold").wait(10.0)
                assert (refused.state, refused.kind) == ("REFUSED", "NotInControl")
                assert re.match(
                    f"(alice|bob) holds control of {name}, for another ", refused.reason
                )
                if name == "twin-2":
                    assert anybody.estop().state == "SUCCESS"
        fleet.wait_until(lambda: two.outputs()["left"] == 0.0, within_s=1.0)

    answers = [fleet.finish(flight, within_s=60.0) for flight in flights]
    flown = {answer.json["result"]["vehicle"]: answer.status for answer in answers}
    assert set(flown) == set(NAMES)
    assert flown["twin-1"] == 0
    assert flown["twin-2"] in (5, 6)  # killed under it
    for name in NAMES:
        assert fleet.ground("--vehicle", name, "control", "who").json["result"]["pilot"] is None

    os.kill(pids(fleet, "twin-2")["flight"], signal.SIGKILL)
    restarted = fleet.wait_for_event(lambda e: e.get("process") == "flight")
    assert (restarted["event"], restarted["vehicle"]) == ("restarted", "twin-2")
    everything = {pid for name in NAMES for pid in pids(fleet, name).values()}
    assert len(everything) == 7  # one broker, and three processes of each ship
    fleet.end(signal.SIGKILL)
    fleet.wait_until(lambda: '"event": "cleaned"' in fleet.log(), within_s=15.0)
    assert [e["vehicle"] for e in fleet.events if e["event"] == "restarted"] == ["twin-2"]
    assert '"outputs_safe": true' in fleet.log()
    (fleet.home / "hop.toml").unlink()
    fleet.pids = {str(pid): pid for pid in everything}
    assert fleet.left_behind() == []
