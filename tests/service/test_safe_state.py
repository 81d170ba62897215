"""The outputs of a killed flight process, made safe by a process that starts after it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from blimp.clock import SystemClock
from blimp.link.mailbox import MailboxClient
from blimp.link.paths import RuntimePaths
from blimp.sim.remote import RemoteWorld
from blimp.types import Command
from tests.forked import ran
from tests.repeating import until
from tests.sim.served import served_world


def blimp(*words: str) -> "subprocess.CompletedProcess[str]":
    return ran([sys.executable, "-m", "blimp", *words], timeout=30)


def killed_with_a_motor_running(paths: RuntimePaths, world: RemoteWorld) -> None:
    """Fly on the bench, turn a motor, and kill the flight process."""
    clock = SystemClock()
    with subprocess.Popen(
        [sys.executable, "-m", "blimp", "fly", "--sim", "--bench",
         "--runtime-dir", str(paths.directory)],
    ) as flight:  # fmt: skip
        with MailboxClient(server_path=paths.flight, path=paths.worker, clock=clock) as mailbox:
            until_s = time.monotonic() + 20.0
            number = 0
            while world.outputs()["left"] < 0.2:
                assert time.monotonic() < until_s, "the motor does not turn"
                number += 1
                arguments = {"name": "left", "percent": 40.0, "seconds": 30.0}
                command = Command(id=f"m{number}", name="motor", arguments=arguments)
                mailbox.call(command, timeout_s=0.2)
        flight.send_signal(signal.SIGKILL)


def test_the_airframe_that_was_flown_is_made_safe_whatever_the_configuration_says(
    tmp_path: Path,
) -> None:
    config = tmp_path / "blimp.toml"
    config.write_text("this is no TOML")
    with served_world() as path, RemoteWorld(path) as world:
        paths = RuntimePaths(path.parent)
        words = ["safe-state", "--sim", "--config", str(config), "--runtime-dir", str(path.parent)]
        refused = blimp(*words)
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"blimp: configuration {config}: Expected")

        killed_with_a_motor_running(paths, world)
        assert world.outputs()["left"] > 0.2
        assert json.loads(paths.airframe.read_text())["name"] == "twin"
        assert paths.airframe.stat().st_mode & 0o777 == 0o600
        safe = blimp(*words)
        assert (safe.returncode, safe.stdout, safe.stderr) == (0, "", "")
        assert world.outputs()["left"] == 0.0


def test_an_orderly_end_leaves_no_airframe() -> None:
    with served_world() as path:
        paths = RuntimePaths(path.parent)
        with subprocess.Popen(
            [sys.executable, "-m", "blimp", "fly", "--sim", "--runtime-dir", str(path.parent)]
        ) as flight:
            until(paths.airframe.exists, "it does not fly")
            flight.send_signal(signal.SIGTERM)
        assert flight.returncode == 0
        assert not paths.airframe.exists()
