"""Celery and Flower, unmodified, in an environment of their own."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.forked import ran
from tests.inbox import Printed
from tests.needs import not_run

PROJECT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
ENVIRONMENT = PROJECT / ".venv-celery"
PYTHON = ENVIRONMENT / "bin" / "python"
REQUIREMENTS = Path(__file__).parent / "requirements.txt"
HOW = "make .venv-celery/installed"
STREAMS = "blimp.queue.kombu_transport:Transport"
DEADLINE_S = 90.0


def find_guest() -> Path:
    """Return the Python that has Celery and Flower. For the head of a test module.

    If there is none, the module is skipped and says how to get one; under CI it fails.
    """
    installed = ENVIRONMENT / "installed"
    what = "no Celery"
    if PYTHON.exists() and installed.exists():
        if installed.stat().st_mtime >= REQUIREMENTS.stat().st_mtime:
            return PYTHON
        what = "an environment older than its requirements"
    raise not_run(f"{what} here; {HOW}", module=True)


class Started:
    """A program that runs. lines: what it has printed so far, on either output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._printed = Printed(process.stdout)
        self.lines = self._printed.items

    def has_printed(self, *words: str) -> bool:
        """Return whether some line has all these words; fail if the program has ended."""
        assert self.process.poll() is None, "".join(self.lines)
        return any(all(word in line for word in words) for line in list(self.lines))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._printed.join()


class Guest:
    """Runs scripts and commands in Celery's Python, against the broker at `url`.

    transport: of Celery, this tree's by default; "" is what the URL's scheme asks for. Scripts
    are in tests/interop/programs and begin with `from ground import app`, a Celery app on that
    broker which keeps its results there, too.
    """

    def __init__(self, url: str, *, directory: Path, transport: str = STREAMS) -> None:
        self._directory = directory
        self.environment = os.environ | {
            "GROUND_BROKER": url,
            "GROUND_TRANSPORT": transport,
            "PYTHONPATH": f"{PROGRAMS}{os.pathsep}{PROJECT}",  # this tree's transport
            "PYTHONWARNINGS": "default",
        }
        self._started: list[Started] = []

    def run(self, script: str, *arguments: object, timeout_s: float = DEADLINE_S) -> Any:
        """Run a script of the folder to its end; return what it printed, read as JSON."""
        return json.loads(self.ask(f"{PROGRAMS / script}", *arguments, timeout_s=timeout_s))

    def ask(self, *words: object, timeout_s: float = DEADLINE_S) -> str:
        """Run that Python to its end; return what it printed. Fails if it fails."""
        done = ran(
            [str(PYTHON), *map(str, words)],
            env=self.environment,
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, *words: object) -> Started:
        """Start that Python; it ends with this guest."""
        process = subprocess.Popen(
            [str(PYTHON), "-u", *map(str, words)],
            env=self.environment,
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started = Started(process)
        self._started.append(started)
        return started

    def close(self) -> None:
        """End what was started. Idempotent."""
        while self._started:
            self._started.pop().kill()
