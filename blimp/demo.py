"""`blimp demo`: the stack, a mission flown by a ground station, and what came of it.

The stack is `blimp up --sim` in a process of its own and the mission goes through the
queue, exactly as a ground laptop would fly it. Besides, an observer asks the simulated
world for the truth, which no part of the flight control ever sees.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blimp.clock import Clock
from blimp.errors import BlimpError
from blimp.paths import RuntimePaths
from blimp.processes import Child
from blimp.sim.remote import RemoteWorld
from blimp.types import Snapshot, VehicleState
from ground_station.mission import Mission, MissionResult, MissionRunner
from ground_station.track import cross_track_m

START_DEADLINE_S = 60.0
END_DEADLINE_S = 20.0
TRUTH_PERIOD_S = 0.05
PING_PERIOD_S = 0.5
LOG_TAIL_LINES = 20


class DemoError(BlimpError):
    """The stack did not start, or ended before the mission did."""


class StackProcess:
    """`blimp up --sim --json` as a child: its events, and what it leaves behind."""

    def __init__(
        self, *, arguments: list[str], paths: RuntimePaths, registration: Path, log: Path
    ) -> None:
        self._paths = paths
        self._registration = registration
        self._log = log
        with log.open("wb") as stderr:
            self._child = Child(
                name="up",
                arguments=[sys.executable, "-m", "blimp", "up", "--sim", "--json", *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        self.events: list[dict[str, Any]] = []
        self._pids: dict[int, str] = {self._child.pid: "up"}
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, name="stack events", daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> dict[str, Any]:
        """Return the `ready` event. Raises DemoError with the log's tail when none comes."""
        with self._news:
            self._news.wait_for(
                lambda: bool(self.events) or not self._child.running(), timeout=START_DEADLINE_S
            )
            for event in self.events:
                if event["event"] == "ready":
                    return event
        raise DemoError(f"the stack did not start; its last words:\n{self.log_tail()}")

    def log_tail(self) -> str:
        lines = self._log.read_text("utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def end(self) -> list[str]:
        """End the stack and return the name of every process and file that is left behind."""
        self._child.end(within_s=END_DEADLINE_S)
        left = [f"{name} (pid {pid})" for pid, name in self._pids.items() if _alive(pid)]
        left += [str(p) for p in (self._paths.directory, self._registration) if p.exists()]
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
            self._news.notify_all()


class Observer:
    """Writes down where the ship truly is while the mission runs: 20 positions a second."""

    def __init__(self, *, world: Path, mission: Mission) -> None:
        self._world = world
        self._track = mission.track()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self.leg: int | None = None  # index of the leg that is being flown
        self.max_cross_track_m = 0.0
        self.last: VehicleState | None = None

    def __enter__(self) -> "Observer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with RemoteWorld(self._world) as world:
            while not self._stop.wait(TRUTH_PERIOD_S):
                try:
                    truth = world.truth()
                except OSError:
                    continue  # the world restarts: the next look will tell
                self.last = truth
                leg = self.leg
                if leg is not None and leg in self._track:
                    error_m = cross_track_m(self._track[leg], truth.position_ned_m)
                    self.max_cross_track_m = max(self.max_cross_track_m, error_m)


def percentile(values: list[float], share: float) -> float | None:
    """Return the nearest-rank percentile, None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
