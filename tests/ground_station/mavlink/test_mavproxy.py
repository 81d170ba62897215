"""MAVProxy as it is, headless, against `blimp mavlink` on a simulated stack."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ground_station.mavlink.modes import MODES
from tests.ground_station.mavlink.gateway import begun
from tests.interop.guest import PROJECT, Started
from tests.needs import not_run
from tests.sim.running import RunningStack

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
DIRECTORY = PROJECT / ".venv-mavproxy"
if not (
    (installed := DIRECTORY / "installed").exists()
    and installed.stat().st_mtime >= REQUIREMENTS.stat().st_mtime
):
    raise not_run("no MAVProxy here; make .venv-mavproxy/installed", module=True)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
DEADLINE_S = 60.0
HOME = (36.0143, -75.6679)
Row = tuple[int, int, int, float, float, float, float]  # seq, frame, command, param 1, place
# As ArduPilot's stations write it: item 0 is home.
MISSION: Sequence[Row] = (
    (0, 0, 16, 0.0, *HOME, 0.0),
    (1, 3, 22, 0.0, *HOME, 2.0),
    (2, 3, 16, 0.0, HOME[0] + 5e-5, HOME[1], 2.0),
    (3, 3, 21, 0.0, *HOME, 0.0),
)
FENCE: Sequence[Row] = (
    (0, 3, 5001, 3.0, HOME[0] + 3e-4, HOME[1], 0.0),
    (1, 3, 5001, 3.0, HOME[0] - 2e-4, HOME[1] + 3e-4, 0.0),
    (2, 3, 5001, 3.0, HOME[0] - 2e-4, HOME[1] - 3e-4, 0.0),
)


def mode_map() -> str:
    """Return the file of pymavlink's that the documents show."""
    page = (PROJECT / "docs" / "mavlink.md").read_text()
    found = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


def write(path: Path, rows: Sequence[Row], *, autocontinue: int = 1) -> None:
    """Write a file of waypoints."""
    lines = ["QGC WPL 110"]
    for seq, frame, command, first, latitude, longitude, altitude in rows:
        fields = (
            seq,
            0,
            frame,
            command,
            first,
            0,
            0,
            0,
            latitude,
            longitude,
            altitude,
            autocontinue,
        )
        lines.append("\t".join(str(field) for field in fields))
    path.write_text("\n".join(lines) + "\n")


class MavProxy(Started):
    """Its console."""

    def __init__(self, port: int, home: Path) -> None:
        (home / ".pymavlink").mkdir()
        (home / ".pymavlink" / "custom_mode_map.json").write_text(mode_map())
        environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(DIRECTORY)}
        super().__init__(
            subprocess.Popen(
                [sys.executable, "-u", str(DIRECTORY / "bin" / "mavproxy.py"),
                 f"--master=tcp:127.0.0.1:{port}", f"--state-basedir={home}"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, cwd=home, env=environment,
            )
        )  # fmt: skip

    def kill(self) -> None:
        assert self.process.stdin is not None
        super().kill()
        self.process.stdin.close()

    def say(self, command: str, *words: str, stack: RunningStack) -> str:
        """Type a command; wait for a line with these words, and return it."""
        before = len(self.lines)
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.wait_for(*words, stack=stack, since=before)

    def wait_for(self, *words: str, stack: RunningStack, since: int = 0) -> str:
        def found() -> str | None:
            assert self.process.poll() is None, "".join(self.lines)
            lines = self.lines[since:]
            return next((one for one in lines if all(word in one for word in words)), None)

        try:
            line = stack.wait_until(found, within_s=DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"no line with {words} in {''.join(self.lines)}") from error
        assert line is not None
        return line


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[RunningStack]:
    with RunningStack(logs=tmp_path / "logs") as stack:
        yield stack


@pytest.fixture
def mavproxy(stack: RunningStack, tmp_path: Path) -> Iterator[MavProxy]:
    home = tmp_path / "home"
    home.mkdir()
    with begun(stack, "--listen", "tcp:127.0.0.1:0") as gateway:
        mavproxy = MavProxy(gateway.port, home)
        yield mavproxy
        mavproxy.kill()


def test_the_mode_map_of_the_documents_has_every_mode() -> None:
    assert json.loads(mode_map()) == {"7": {str(row.custom): row.mode.name for row in MODES}}


def test_mavproxy_sets_up_and_flies_a_stack(
    stack: RunningStack, mavproxy: MavProxy, tmp_path: Path
) -> None:
    home = tmp_path / "home"

    def say(command: str, *words: str) -> str:
        return mavproxy.say(command, *words, stack=stack)

    def until(holds: Callable[[], object]) -> None:
        stack.wait_until(holds, within_s=DEADLINE_S)

    mavproxy.wait_for("parameters to", stack=stack)
    mavproxy.wait_for("Mode HOLD", stack=stack)
    say("param show LIM_YAW_RATE", "LIM_YAW_RATE", "0.4")
    say("param set LIM_YAW_RATE 0.3", "station 255/230 has the ship")
    until(lambda: "0.3" in say("param show LIM_YAW_RATE", "LIM_YAW_RATE"))
    write(home / "mission.txt", MISSION)
    say("wp load mission.txt", "TYPE_MISSION: ACCEPTED")
    say("wp list", "Saved 4 waypoints")
    write(home / "fence.txt", FENCE, autocontinue=0)  # as its own "fence addpoly" has it
    say("fence load fence.txt", "TYPE_FENCE: ACCEPTED")
    say("fence list", "Saved 3 fence items")

    # The flight process began again with the new limit, so that the first log is whole.
    log = sorted((tmp_path / "logs").iterdir())[0]
    say("log list", "Log 1", f"size {log.stat().st_size}")
    say("log download 1 first.mcap", "Finished downloading first.mcap")
    assert (home / "first.mcap").read_bytes() == log.read_bytes()
    say("ftp list /logs", log.name, str(log.stat().st_size))
    say(f"ftp get /logs/{log.name} second.mcap", "Wrote", str(log.stat().st_size))
    assert (home / "second.mcap").read_bytes() == log.read_bytes()
    crc = say("ftp crclocal second.mcap", "crclocal: second").split("0x")[1].split()[0]
    say(f"ftp crc /logs/{log.name}", crc)

    until(lambda: stack.status()["armed"] or not say("arm throttle", "COMPONENT_ARM_DISARM"))
    say("mode AUTO", "Mode AUTO")
    until(lambda: stack.status()["altitude_m"] > 1.0)
    say("mode LOITER", "Mode LOITER")
    assert stack.status()["mode"] == "LOITER"
    say("mode LAND", "Mode LAND")
    until(lambda: stack.status()["altitude_m"] < 0.1)
    until(lambda: not stack.status()["armed"] or not say("disarm", "COMPONENT_ARM_DISARM"))
    with stack.world() as world:
        assert world.truth().on_ground
    assert not [line for line in mavproxy.lines if "Traceback" in line or "fence breach" in line]
