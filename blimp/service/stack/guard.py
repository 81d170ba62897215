"""Cleans up after a killed supervisor.

Usage: `python -m blimp.service.stack.guard AIRFRAME DIR [REGISTRATION DIR]...`

The first DIR is the stack's, removed with all that is in it; then, for each ship, its entry in
the run registry and its own directory.

kill -9 leaves the supervisor no time to clean up, so this process waits for the end of the
supervisor's pipe. By then the kernel has signalled the children (PR_SET_PDEATHSIG). The guard
checks that they end, in the right order, makes the outputs safe and removes every file. It
imports nothing heavy, because it sleeps for the life of the stack.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from blimp.link.registry import unregister
from blimp.processes import Child

FLIGHT_GRACE_S = 0.3  # to drive its outputs safe on its own
END_GRACE_S = 2.0

Children = dict[tuple[str, str], int]  # a ship's name ("" for the broker) and a role -> pidfd


class GuardLink:
    """The supervisor's end: a guard process, and the pipe whose end that process waits for.

    arguments: its command line, see `blimp.service.stack.guard`.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._sent: list[str] = []
        self._child: Child | None = None

    def start(self) -> Child:
        """Start the process that outlives this one, and send it what there is to clean up."""
        self._child = Child(
            name="guard", arguments=self._arguments, death_signal=None, stdin=subprocess.PIPE
        )
        for line in self._sent:
            self._write(line)
        return self._child

    def send(self, line: str) -> None:
        self._sent.append(line)
        self._write(line)

    def dismiss(self) -> None:
        """End the guard: everything is cleaned up."""
        if self._child is not None:
            self._write("done")
            self._child.end(within_s=2.0)

    def _write(self, line: str) -> None:
        if self._child is not None and self._child.stdin is not None:
            # If the guard has just died, its successor gets every line again.
            with contextlib.suppress(OSError):
                self._child.stdin.write(line.encode() + b"\n")
                self._child.stdin.flush()


class GuardedShip(NamedTuple):
    registration: Path
    directory: Path

    @property
    def vehicle(self) -> str:
        return self.registration.stem


def main() -> int:
    """Wait for the pipe's end; return 0 if all was clean, 1 if something had to be forced."""
    airframe, directory, *rest = sys.argv[1:]
    ships = [
        GuardedShip(Path(entry), Path(own)) for entry, own in zip(*[iter(rest)] * 2, strict=True)
    ]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends only when the pipe ends
    children: Children = {}  # pidfds, opened while each number is still its process's
    claimed = False  # until then, the directory may belong to another ship
    for line in sys.stdin:
        words = line.split()
        if words == ["done"]:
            return 0
        if words == ["claimed"]:
            claimed = True
        if len(words) in (3, 4) and words[0] == "pid":
            with contextlib.suppress(ProcessLookupError):
                children["".join(words[3:]), words[1]] = os.pidfd_open(int(words[2]))
    if not claimed:
        return 0
    return clean_up(children, directory=Path(directory), ships=ships, airframe=airframe)


def clean_up(
    children: Children, *, directory: Path, ships: list[GuardedShip], airframe: str
) -> int:
    """End what still runs, a ship before its world, and remove the files."""
    started_s = time.monotonic()
    flights = [pidfd for (_, role), pidfd in children.items() if role == "flight"]
    grace_s = started_s + FLIGHT_GRACE_S
    forced = ["flight" for pidfd in flights if not _ended(pidfd, grace_s - time.monotonic())]
    begun = [ship for ship in ships if (ship.vehicle, "world") in children]
    unreached = [what for ship in begun for what in _make_safe(ship.directory, airframe)]
    safe_s = time.monotonic() - started_s
    for ending in ("camera", "worker", "relay", "flight", "world", "broker", "recorder"):
        for (_, role), pidfd in children.items():
            if role == ending:
                _signal(pidfd, signal.SIGTERM)
    for (_, role), pidfd in children.items():
        if not _ended(pidfd, END_GRACE_S):
            forced.append(role)
            _signal(pidfd, signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)
    for ship in ships:
        unregister(ship.registration, runtime_dir=ship.directory)
    report = {
        "event": "cleaned",
        "outputs_safe": not unreached,
        "safe_after_s": round(safe_s, 3),
        "clean_after_s": round(time.monotonic() - started_s, 3),
        "forced": forced,
    }
    print(json.dumps(report), file=sys.stderr, flush=True)
    return 1 if unreached or forced else 0


def _make_safe(directory: Path, airframe: str) -> list[str]:
    from blimp.service.compose import make_safe  # heavy: loaded only when it is needed

    return make_safe(airframe=airframe, runtime_dir=directory, simulated=True)


def _ended(pidfd: int, within_s: float) -> bool:
    return bool(select.select([pidfd], [], [], max(0.0, within_s))[0])


def _signal(pidfd: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


if __name__ == "__main__":
    sys.exit(main())
