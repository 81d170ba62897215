"""Ground station, page, Python API and Lockstep where Windows' lacks are taken from the process.

What cannot be tried here: the files, terminals and processes of Windows and macOS themselves.
"""

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.broker import EmbeddedBroker
from tests.forked import ran
from tests.sim.running import RunningStack
from tests.tcp_link import TcpLink

APP_OF_EXAMPLES = "ground_station.examples.api:queue"
URL = re.compile(r"http://\S+")
ROOT = Path(__file__).parents[1]
IMPORTED = (
    "ground_station.cli ground_station.page.server ground_station.mavlink.gateway "
    "ground_station.ship blimp.queue blimp.tasks.client blimp.ship blimp.recording.log_file"
)
FLIGHT = """
import asyncio
from blimp.ship import Lockstep
from ground_station.ship import Ship

async def main():
    with Lockstep("twin", seed=3, wind_mps=0.3) as simulated:
        async with Ship.lockstep(simulated) as ship:
            await ship.arm()
            await ship.takeoff(2.0)
            await ship.sleep(3.0)
        print(simulated.truth.position_ned_m)

asyncio.run(main())
"""
APP = """
from blimp.queue import TaskApp
app = TaskApp("sums", broker={url!r}, result_backend={url!r})

@app.task
def add(a, b):
    return a + b
"""
RESULT = """
from sums import add
print(add.delay(2, 3).get(timeout=60))
"""


def begun(code: str, cwd: Path = ROOT) -> "subprocess.Popen[str]":
    """Start a program that has none of what Windows lacks."""
    return subprocess.Popen(
        [sys.executable, "-c", f"import tests.lacking\n{code}"], cwd=cwd, text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{cwd}", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def lacking(code: str, cwd: Path = ROOT) -> str:
    """Return what it prints."""
    with begun(code, cwd) as process:
        out, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    return out


def typed(*words: str) -> str:
    """Return a program that is one command line."""
    module = {"ground": "ground_station.__main__", "blimp": "blimp.__main__"}
    main = module.get(words[0], "blimp.queue.cli.main")
    return f"import sys; sys.argv = {[*words]!r}; from {main} import main; sys.exit(main())"


@pytest.mark.process
def test_what_a_laptop_runs_is_imported_without_what_windows_lacks() -> None:
    lines = [f"import {name}" for name in IMPORTED.split()]
    assert lacking("\n".join(lines)) == ""


@pytest.mark.process
@pytest.mark.long
def test_a_flight_in_lockstep_is_the_same_to_the_bit() -> None:
    here = ran([sys.executable, "-c", FLIGHT], cwd=ROOT, check=True)
    assert lacking(FLIGHT) == here.stdout != ""


@pytest.mark.process
@pytest.mark.long
def test_a_result_comes_over_tcp(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"redis://127.0.0.1:{port}/0"
    with EmbeddedBroker(directory=tmp_path / "broker", options={"port": str(port)}) as broker:
        broker.start()
        (tmp_path / "sums.py").write_text(APP.format(url=url))
        worker = subprocess.Popen(
            [sys.executable, "-m", "blimp.queue", "worker", "-A", "sums:app"], cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        )  # fmt: skip
        try:
            assert lacking(RESULT, tmp_path) == "5\n"
        finally:
            worker.terminate()
            assert worker.wait(60) == 0


@pytest.mark.process
@pytest.mark.long
def test_ground_flies_stops_and_shows_a_ship_over_tcp() -> None:
    stack = RunningStack("--seed", "4")
    with closing(stack), TcpLink(server=str(stack.home / "run" / "broker" / "broker.sock")) as link:
        broker = ("--broker", f"redis://127.0.0.1:{link.port}/0", "--vehicle", "twin")

        def ground(*words: str) -> Any:
            return json.loads(lacking(typed("ground", "--json", *words, *broker)))

        assert ground("status")["armed"] is False
        assert ground("arm")["state"] == "SUCCESS"
        assert ground("takeoff", "1.5")["state"] == "SUCCESS"
        assert ground("estop")
        assert ground("status")["armed"] is False
        with begun(typed("ground", "page", "--port", "0", *broker)) as page:
            try:
                assert page.stdout is not None
                url = next(found[0] for one in page.stdout if (found := URL.search(one)))
                with urllib.request.urlopen(url.partition("#")[0], timeout=60) as answer:
                    assert b"<!doctype html>" in answer.read()
            finally:
                page.kill()


@pytest.mark.process
@pytest.mark.parametrize(
    "words", [("blimp", "up", "--sim"), ("blimp-queue", "worker", "-A", APP_OF_EXAMPLES)]
)
def test_what_cannot_run_says_so_in_one_line(words: tuple[str, ...]) -> None:
    with begun(typed(*words)) as process:
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert re.fullmatch(r"(blimp|error): this needs Linux \(on Windows.*\n", error), error
