"""The bench from a terminal to a running flight process, through its mailbox."""

import os
import pty
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from tests.sim.running import RunningStack

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

# Motors: left turns the wrong way, the others are skipped; no other step; write the file.
ANSWERS = "\n".join(("yes", "yes", "no", "skip", "skip", *("no",) * 8, "yes", ""))


def test_a_person_turns_a_motor_and_the_file_follows(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((resources.files("blimp.airframes") / "twin.toml").read_text("utf-8"), "utf-8")
    stack = RunningStack("--bench")
    here, there = pty.openpty()
    try:
        os.write(here, ANSWERS.encode())
        bench = subprocess.Popen(
            [sys.executable, "-m", "blimp", "bench", str(path),
             "--runtime-dir", str(stack.paths.directory)],
            stdin=there, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        with stack.world() as world:
            stack.wait_until(lambda: world.outputs()["left"] > 0.2, within_s=60.0)
            stack.wait_until(lambda: world.outputs()["left"] == 0.0, within_s=60.0)
        stdout, stderr = bench.communicate(timeout=120)
    finally:
        os.close(here)
        os.close(there)
        stack.close()
    assert (bench.returncode, stdout) == (0, "")
    assert "Did it push forward (yes, no, nothing) [yes]: " in stderr
    assert "+pins = { ain1 = 13, ain2 = 6, bin1 = 19, bin2 = 26, nsleep = 12 }" in stderr
    assert "ain1 = 13, ain2 = 6," in path.read_text("utf-8")
