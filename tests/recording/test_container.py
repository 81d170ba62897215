"""Everything but flight logs works without the package `mcap`, which the extra `ship` installs."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mcap", "lz4", "zstandard"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


def run(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", WITHOUT + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "module",
    [
        "blimp.queue", "blimp.queue.worker.worker", "blimp.queue.cli", "blimp.tasks.app",
        "blimp.tasks.client", "ground_station.cli", "blimp.cli",
        "blimp.service.computer.configuration",
        "blimp.service.stack.up", "blimp.service.doctor", "blimp.ship.lockstep",
    ],
)  # fmt: skip
def test_imports_without_it(module: str) -> None:
    done = run(f"import {module}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [("blimp", "--help"), ("blimp", "log", "--help")])
def test_help_works_without_it(words: tuple[str, ...]) -> None:
    done = run("from blimp.__main__ import main; sys.argv[0] = 'blimp'; main()", *words[1:])
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_a_command_on_a_log_says_what_to_install() -> None:
    code = "from blimp.__main__ import main; sys.argv[0] = 'blimp'; main()"
    done = run(code, "log", "info", __file__)
    assert done.returncode != 0
    assert "flight logs need mcap: " in done.stderr
    assert "[ship]" in done.stderr
    assert "Traceback" not in done.stderr
