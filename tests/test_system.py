"""Ground station, page, Python API and Lockstep without what Windows lacks, or macOS.

What cannot be tried here: the files, terminals and processes of Windows and macOS themselves.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tomllib
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.broker import EmbeddedBroker
from tests.forked import ran
from tests.http_client import stopped, token_of
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
from pathlib import Path
from tempfile import TemporaryDirectory
from blimp.ship import Lockstep
from ground_station.ship import Ship

async def main():
    with (
        TemporaryDirectory() as logs,
        Lockstep("twin", seed=3, wind_mps=0.3, log=Path(logs, "flight.mcap")) as simulated,
    ):
        async with Ship.lockstep(simulated) as ship:
            await ship.arm()
            await ship.takeoff(2.0)
            await ship.sleep(3.0)
        print(simulated.truth.position_ned_m)

asyncio.run(main())
"""
PROGRAM = """
from pathlib import Path
from ground_station.plain import Ship
with Ship.connect("twin", broker={broker!r}, signing_key_file=Path({key!r})) as ship:
    ship.takeoff(1.5)
    print(ship.state().armed)
"""
PHOTOGRAPH = """
import hashlib
from pathlib import Path
from blimp.photo import Photo
from ground_station.photos import PhotoFiles
data = bytes.fromhex("ffd8ff") + b"a picture"
digest = hashlib.sha256(data).hexdigest()
photo = Photo(
    name="20261130T120000000Z-" + 16 * "0", id="x", taken_s=1.0, width=1, height=1,
    bytes=len(data), sha256=digest, preview_bytes=1, preview_sha256=digest,
)
files = PhotoFiles(Path("photos").absolute())
with files.part(photo, preview=False) as part:
    part.add(data[:5])
with files.part(photo, preview=False) as part:
    part.add(data[part.size:])
    part.finish()
print(files.path(photo.name).read_bytes() == data)
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


def begun(code: str, cwd: Path = ROOT, system: str = "windows") -> "subprocess.Popen[str]":
    """Start a program that has none of what this system lacks."""
    return subprocess.Popen(
        [sys.executable, "-c", f"import tests.lacking\n{code}"], cwd=cwd, text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{cwd}", "PYTHONUNBUFFERED": "1",
             "LACKING": system},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def lacking(code: str, cwd: Path = ROOT, system: str = "windows") -> str:
    """Return what it prints."""
    with begun(code, cwd, system) as process:
        out, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    return out


def typed(*words: str) -> str:
    """Return a program that is one command line."""
    module = {"ground": "ground_station.__main__", "blimp": "blimp.__main__"}
    main = module.get(words[0], "blimp.queue.cli.main")
    return f"import sys; sys.argv = {[*words]!r}; from {main} import main; sys.exit(main())"


def test_the_metadata_promises_what_the_readme_does() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    systems = [one for one in about["classifiers"] if one.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
    assert "Promised is Linux; on Windows, WSL is a Linux." in (ROOT / "README.md").read_text()


@pytest.mark.process
@pytest.mark.parametrize("system", ["windows", "macos"])
def test_what_a_laptop_runs_is_imported_without_what_it_lacks(system: str) -> None:
    lines = [f"import {name}" for name in IMPORTED.split()]
    assert lacking("\n".join(lines), system=system) == ""


@pytest.mark.process
def test_a_photograph_that_came_in_two_parts_is_whole(tmp_path: Path) -> None:
    assert lacking(PHOTOGRAPH, tmp_path) == "True\n"


@pytest.mark.process
@pytest.mark.long
def test_a_flight_in_lockstep_is_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # the log asks git, and how Python waits for it is the system's
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
def test_ground_flies_stops_and_shows_a_signing_ship_over_tcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    key = tmp_path / "signing.key"
    key.write_text("0" * 43)
    key.chmod(0o600)
    stack = RunningStack("--seed", "4", environment={"BLIMP_SIGNING_KEY_FILE": str(key)})
    with closing(stack), TcpLink(server=str(stack.home / "run" / "broker" / "broker.sock")) as link:
        url = f"redis://127.0.0.1:{link.port}/0"
        broker = ("--broker", url, "--vehicle", "twin", "--signing-key-file", str(key))

        def ground(*words: str) -> Any:
            return json.loads(lacking(typed("ground", "--json", *words, *broker)))

        assert ground("status")["armed"] is False
        assert ground("control", "take")["state"] == "SUCCESS"
        assert ground("arm")["state"] == "SUCCESS"
        assert ground("control", "release")["state"] == "SUCCESS"
        assert lacking(PROGRAM.format(broker=url, key=str(key))) == "True\n"
        assert ground("estop")["state"] == "SUCCESS"
        assert ground("status")["armed"] is False
        with begun(typed("ground", "page", "--port", "0", *broker)) as page:
            try:
                assert page.stdout is not None
                url = next(found[0] for one in page.stdout if (found := URL.search(one)))
                with urllib.request.urlopen(url, timeout=60) as answer:
                    assert b"<!doctype html>" in answer.read()
                assert stopped(url, token_of(url), within_s=60.0)
            finally:
                page.kill()


@pytest.mark.process
@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("windows", ("blimp", "up", "--sim")),
        ("windows", ("blimp", "demo")),
        ("windows", ("blimp-queue", "worker", "-A", APP_OF_EXAMPLES)),
        ("macos", ("blimp", "up", "--sim")),
        ("macos", ("blimp", "demo")),
    ],
)
def test_what_cannot_run_says_so_in_one_line(system: str, words: tuple[str, ...]) -> None:
    with begun(typed(*words), system=system) as process:
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert re.fullmatch(r"(blimp|error): this needs Linux \(on Windows.*\n", error), error
