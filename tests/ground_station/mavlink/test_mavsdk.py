"""MAVSDK, as it is, flies a simulated stack through `blimp mavlink`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.running import RunningStack

pytestmark = [pytest.mark.flight, pytest.mark.timeout(600)]


def test_mavsdk_flies_a_stack() -> None:
    stack = RunningStack()
    gateway = subprocess.Popen(
        [sys.executable, "-m", "blimp", "mavlink", "--listen", "udp:127.0.0.1:0"],
        stderr=subprocess.PIPE, text=True, env=stack.environment,
    )  # fmt: skip
    try:
        assert gateway.stderr is not None
        port = gateway.stderr.readline().split()[-1]
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("client.py")), port],
            capture_output=True, text=True, check=False, timeout=320,
        )  # fmt: skip
        found = json.loads(done.stderr.splitlines()[-1])
        assert found.get("error", "") == "", found
        assert found["yaw_rate"] == pytest.approx(0.35)
        assert found["cells"] == 2
        assert found["speed"]
        assert "COMMAND_DENIED" in found["unarmed"] or "takeoff" in found["unarmed"]
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
        gateway.terminate()
        assert gateway.wait(30) == 0
    finally:
        gateway.kill()
        gateway.communicate()
        stack.close()
