"""`blimp up --sim` as a child process: its events, its log, and what it leaves behind."""

import contextlib
import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from blimp.config import registry_dir
from blimp.link.paths import RuntimePaths
from blimp.processes import Child
from blimp.service.stack.supervisor import StackError

START_DEADLINE_S = 60.0
END_DEADLINE_S = 20.0  # for each ship: their processes end one after another
LOG_TAIL_LINES = 20
LOG_TAIL_BYTES = 16_384


class StackProcess:
    """A running `blimp up --sim --json`: its events, and what it leaves behind."""

    def __init__(
        self, *, arguments: list[str], paths: RuntimePaths, vehicles: Sequence[str], log: IO[bytes]
    ) -> None:
        self._paths = paths
        self._vehicles = vehicles
        self._log = log
        self.left: list[str] = []  # what it left behind, once it has ended
        self._child = Child(
            name="up",
            arguments=[sys.executable, "-m", "blimp", "up", "--sim", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
        )
        self.events: list[dict[str, Any]] = []
        self._pids: dict[int, str] = {self._child.pid: "up"}
        self._news = threading.Condition()
        self._silent = False  # its output has ended: a moment later so has the process
        self._reader = threading.Thread(target=self._read, name="stack events", daemon=True)
        self._reader.start()

    @property
    def paths(self) -> RuntimePaths:
        """The stack's directory; of several ships each has one inside it."""
        return self._paths

    def wait_until_ready(self) -> dict[str, Any]:
        """Wait until all ships are ready; return the first one's `ready` event.

        Raises StackError with the log's tail if they are not ready in time.
        """
        with self._news:
            self._news.wait_for(
                lambda: self._are_ready() or self._silent or not self._child.running(),
                timeout=START_DEADLINE_S,
            )
            if self._are_ready():
                return self.all_ready()[0]
        raise StackError(f"the stack did not start; the end of its log:\n{self.log_tail()}")

    def wait_for(
        self, matches: Callable[[dict[str, Any]], bool], *, after: int, within_s: float
    ) -> dict[str, Any]:
        """Return the first event from number `after` on that matches. Raises StackError."""

        def found() -> dict[str, Any] | None:
            return next((event for event in self.events[after:] if matches(event)), None)

        with self._news:
            event = self._news.wait_for(found, timeout=within_s)
        if event is None:
            raise StackError(f"the expected event did not happen within {within_s:g} s")
        return event

    def all_ready(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == "ready"]

    def _are_ready(self) -> bool:
        return len(self.all_ready()) == len(self._vehicles)

    def log_tail(self) -> str:
        # Use pread, not seek and read: the stack writes through the same file position.
        descriptor = self._log.fileno()
        size = os.fstat(descriptor).st_size
        start = max(0, size - LOG_TAIL_BYTES)
        lines = os.pread(descriptor, size - start, start).decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    @property
    def pid(self) -> int:
        return self._child.pid

    def end(self) -> list[str]:
        """End the stack and return the name of every process and file that is left behind."""
        self._child.end(within_s=END_DEADLINE_S * len(self._vehicles))
        self.left = self.left_behind()
        return self.left

    def left_behind(self) -> list[str]:
        """Return every process and file of the stack that is there now."""
        self._child.running()  # reaps it, if it has ended
        left = [f"{name} (pid {pid})" for pid, name in self._pids.items() if _alive(pid)]
        registrations = [registry_dir() / f"{vehicle}.json" for vehicle in self._vehicles]
        left += [str(p) for p in (self._paths.directory, *registrations) if p.exists()]
        return left

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            event = json.loads(line)
            with self._news:
                if event["event"] == "ready":
                    self._pids |= {pid: name for name, pid in event["pids"].items() if pid}
                elif event["event"] == "restarted":
                    self._pids[event["pid"]] = event["process"]
                self.events.append(event)
                self._news.notify_all()
        with self._news:
            self._silent = True
            self._news.notify_all()


@contextlib.contextmanager
def scratch_directory() -> Iterator[tuple[RuntimePaths, IO[bytes]]]:
    """Yield a short runtime directory, and a log.

    The stack makes the directory; the stack or its guard removes it. The log has no name. So a
    killed demo leaves nothing behind.
    """
    directory = Path(tempfile.gettempdir()) / f"blimp-demo-{secrets.token_hex(4)}"
    with tempfile.TemporaryFile() as log:
        yield RuntimePaths(directory), log


def _alive(pid: int) -> bool:
    """Say whether a process runs; a zombie does not."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return not select.select([pidfd], [], [], 0.0)[0]
    finally:
        os.close(pidfd)
