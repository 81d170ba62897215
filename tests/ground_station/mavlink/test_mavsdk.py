"""`blimp mavlink` on a simulated stack: MAVSDK as it is, and a station that falls silent."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.forked import ran
from tests.ground_station.mavlink.gateway import Gateway, begun
from tests.ground_station.mavlink.test_gateway import Station
from tests.sim.running import RunningStack

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def stack() -> Iterator[RunningStack]:
    with RunningStack() as stack:
        yield stack


@pytest.fixture
def gateway(stack: RunningStack) -> Iterator[Gateway]:
    with begun(stack, "--listen", "udp:127.0.0.1:0") as gateway:
        yield gateway


def test_mavsdk_flies_a_stack(stack: RunningStack, gateway: Gateway) -> None:
    program = str(Path(__file__).with_name("client.py"))
    done = ran([sys.executable, program, str(gateway.port)], timeout=320)
    found = json.loads(done.stderr.splitlines()[-1])
    assert found.get("error", "") == "", found
    assert found["yaw_rate"] == pytest.approx(0.35)
    assert found["cells"] == 2
    assert "OUT_OF_RANGE" in found["speed"]
    assert "COMMAND_DENIED" in found["unarmed"]
    assert found["circles"] == 2
    assert "COMMAND_DENIED" in found["on_ground"]
    assert "COMMAND_DENIED" in found["outside"]
    assert set(found["place_modes"]) == {"OFFBOARD"}
    assert found["north_deg"] == pytest.approx(3e-5, abs=1e-5)
    assert found["up_m"] == pytest.approx(2.0, abs=0.6)
    assert found["yaw_deg"] == pytest.approx(90.0, abs=20.0)
    assert found["flight_mode"] == "OFFBOARD"
    assert found["east_mps"] > 0.1
    assert found["in_air"] is False
    assert found["items"] == [1, 2, 0]
    with stack.world() as world:
        assert world.truth().on_ground
    assert stack.status()["killed"]
    gateway.process.terminate()
    assert gateway.process.wait(30) == 0


def test_a_station_that_falls_silent_is_a_lost_link(stack: RunningStack, gateway: Gateway) -> None:
    with closing(Station(gateway.port)) as station:
        station.get("HEARTBEAT")
        assert station.command(400, 1) == 0
        assert station.command(22, 0, 0, 0, 0, 0, 0, 1.5) == 0
        assert stack.status()["failsafe"] == ""
        station.is_silent = True
        station.text("failsafe: link lost")
        station.is_silent = False
        station.text("failsafe: over")
        assert station.command(185, 1) == 0
        stack.wait_until(lambda: stack.status()["killed"], within_s=10.0)  # telemetry follows
