"""A running stack for tests: `blimp up --sim` as a child, and `ground` to command it."""

import contextlib
import io
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from blimp.closing import Closing
from blimp.link.paths import RuntimePaths
from blimp.processes import _shim
from blimp.sim import wire
from blimp.sim.remote import RemoteWorld
from ground_station.cli import run
from tests.inbox import Printed
from tests.process_table import children, command_line
from tests.repeating import until
from tests.signals import stop_process

DEADLINE_S = 60.0

T = TypeVar("T")


class Answer:
    """What a `ground --json` command printed, and its exit status."""

    def __init__(self, *, status: int, stdout: str, stderr: str) -> None:
        self.status = status
        self.stdout = stdout
        self.stderr = stderr

    @property
    def json(self) -> dict[str, Any]:
        lines = self.stdout.splitlines()
        assert len(lines) == 1, f"not one line: {self.stdout!r} {self.stderr!r}"
        value = json.loads(lines[0])
        assert isinstance(value, dict)
        return value


class PatientWorld(RemoteWorld):
    """Waits for an answer for longer than a ship's driver does: a loaded machine is late."""

    def _ask_any(self, request: wire.Request) -> wire.Reply:
        until_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                return super()._ask_any(request)
            except OSError:
                if time.monotonic() > until_s:
                    raise


class RunningStack(Closing):
    """`blimp up --sim --json`, in a short directory of its own. logs: where it is recorded.

    environment: beside the ordinary one. before: words before its command line.
    """

    def __init__(
        self,
        *arguments: str,
        logs: Path | None = None,
        environment: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
    ) -> None:
        # Not pytest's tmp_path: a Unix socket's path has 107 bytes.
        self.home = Path(tempfile.mkdtemp(prefix="blimp-test-"))
        self.paths = RuntimePaths(self.home / "run")
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("BLIMP_")},
            "XDG_RUNTIME_DIR": str(self.home),
            "BLIMP_LOG_MB": "1000" if logs else "0",
            "BLIMP_LOG_DIR": str(logs or ""),
            **(environment or {}),
        }
        self._started: list[subprocess.Popen[str]] = []
        self._log = (self.home / "up.log").open("w+")
        self.process = subprocess.Popen(
            [*_shim(signal.SIGTERM),  # a killed run of the tests leaves no ship in the air
             *before, sys.executable, "-m", "blimp", "up", "--sim", "--json",
             "--runtime-dir", str(self.paths.directory), *arguments],
            stdout=subprocess.PIPE, stderr=self._log, text=True, env=self.environment,
        )  # fmt: skip
        self._printed = Printed(self.process.stdout)
        try:
            self.ready = self.wait_for_event(lambda event: event["event"] == "ready")
        except BaseException:  # Ctrl-C, too: nobody else can end what has no name yet
            self.close()
            raise
        self.pids: dict[str, int] = self.ready["pids"]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self._printed.items)]

    def log(self) -> str:
        return (self.home / "up.log").read_text()

    def wait_for_event(
        self,
        matches: Callable[[dict[str, Any]], bool],
        *,
        since: int = 0,
        within_s: float = DEADLINE_S,
    ) -> dict[str, Any]:
        """Return the first event that matches. since: how many came before and do not count."""
        found = self._printed.wait_for(
            lambda: next(filter(matches, self.events[since:]), None), within_s=within_s
        )
        assert found, f"no such event in {self.events}; log:\n{self.log()}"
        return found

    # --- the ground ---------------------------------------------------------------------

    def start_ground(self, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "ground_station", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            text=True, env=self.environment,
        )  # fmt: skip
        self._started.append(process)
        return process

    def finish(self, process: "subprocess.Popen[str]", *, within_s: float = 240.0) -> Answer:
        stdout, stderr = process.communicate(timeout=within_s)
        return Answer(status=process.returncode, stdout=stdout, stderr=stderr)

    def ground(self, *arguments: str) -> Answer:
        """Run a command in this process: its start is not under test, and costs half a second."""
        stdout, stderr = io.StringIO(), io.StringIO()
        with (
            patch.dict(os.environ, self.environment, clear=True),
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
        ):
            status = run(["--json", *arguments])
        return Answer(status=status, stdout=stdout.getvalue(), stderr=stderr.getvalue())

    def status(self) -> dict[str, Any]:
        """Return the newest snapshot; wait for the first, which may come after `ready`."""

        def said() -> Answer | None:
            answer = self.ground("status")
            return answer if answer.stdout else None

        answer = self.wait_until(said, within_s=DEADLINE_S)
        assert answer is not None
        return answer.json

    # --- the world ------------------------------------------------------------------------

    def world(self) -> RemoteWorld:
        return PatientWorld(self.paths.world)

    def wait_until(self, holds: Callable[[], T], *, within_s: float) -> T:
        """Return the first true value of `holds()`, asked again and again until a deadline."""
        try:
            return until(holds, within_s=within_s)
        except TimeoutError as error:
            raise AssertionError(f"not within {within_s} s; log:\n{self.log()}") from error

    def pid(self, name: str) -> int:
        """Return the number of the process that runs now, or ran last."""
        again = [e["pid"] for e in self.events if e.get("process") == name and "pid" in e]
        return again[-1] if again else self.pids[name]

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send the signal, and return the number of the process that got it."""
        pid = self.pid(name)
        if number is signal.SIGSTOP:
            stop_process(pid)
        else:
            os.kill(pid, number)
        return pid

    def guard_pid(self) -> int:
        """Return the process number of the stack's guard now, 0 where there is none."""
        guards = (
            one
            for one in children(self.process.pid)
            if "blimp.service.stack.guard" in command_line(one)
        )
        return next(guards, 0)

    # --- the end ----------------------------------------------------------------------------

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        status = self.process.wait(timeout=DEADLINE_S)
        self._printed.join()
        return status

    def left_behind(self) -> list[str]:
        """Return what is left of processes and files, once what is dying has died."""
        pids = {*self.pids.values(), *(e["pid"] for e in self.events if "pid" in e)}
        left = [str(pid) for pid in pids if pid and not _ended(pid, within_s=DEADLINE_S)]
        found = [
            f"{at}/{name}" for at, *names in os.walk(self.home) for name in chain(*names)
        ]  # rglob fails if a directory goes meanwhile
        left += [path for path in found if not path.endswith("/up.log")]
        return left

    def close(self) -> None:
        if self.process.poll() is None:
            self.end()
        for process in self._started:  # of a test that failed: its end is not the next test's
            if process.returncode is None:
                process.kill()
                process.communicate()
        self._log.close()
        shutil.rmtree(self.home, ignore_errors=True)


def _ended(pid: int, *, within_s: float) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(pidfd, selectors.EVENT_READ)
        ended = bool(selector.select(timeout=within_s))
    os.close(pidfd)
    return ended
