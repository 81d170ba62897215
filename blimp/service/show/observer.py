"""Watches a demo's flight from outside: the simulated truth, and the link's latency."""

import threading
from math import hypot
from pathlib import Path

from blimp.clock import Clock
from blimp.errors import LinkError
from blimp.sim.remote import RemoteWorld
from blimp.tasks.reply import Reply
from blimp.types import VehicleState
from ground_station.mission_file import Mission
from ground_station.plain import Ship
from ground_station.track import cross_track_m

TRUTH_PERIOD_S = 0.05
PING_PERIOD_S = 0.5
PING_S = 2.0


class Observer:
    """Records the true position of the ship while the mission runs, 20 times a second."""

    def __init__(self, *, world: Path, mission: Mission) -> None:
        self._world = world
        self._track = mission.track()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self.leg = 0  # the number of the leg that is being flown, from 1
        self.max_cross_track_m = 0.0
        self.last: VehicleState | None = None

    def final_error_m(self) -> float | None:
        """Return the distance over ground from the ship to the end of the mission."""
        if self.last is None or not self._track:
            return None
        north, east, _ = self._track[max(self._track)].end
        return hypot(self.last.position_ned_m[0] - north, self.last.position_ned_m[1] - east)

    def _run(self) -> None:
        with RemoteWorld(self._world) as world:
            while not self._stop.wait(TRUTH_PERIOD_S):
                try:
                    self.last = world.truth()
                except OSError:
                    continue  # the world restarts: try again
                line = self._track.get(self.leg)
                if line is not None:
                    error_m = cross_track_m(line, self.last.position_ned_m)
                    self.max_cross_track_m = max(self.max_cross_track_m, error_m)

    def __enter__(self) -> "Observer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class LinkCheck:
    """Pings the ship twice a second, as a ground station does to know its link.

    It measures the age of each command when the flight process accepts it, on the monotonic
    clock that both processes share: from `send` to the mailbox.
    """

    def __init__(self, *, ship: Ship, clock: Clock) -> None:
        self._ship = ship
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="link check", daemon=True)
        self.replies: list[Reply] = []
        self.accepted_ms: list[float] = []
        self.unsent = 0

    def _run(self) -> None:
        while not self._stop.wait(PING_PERIOD_S):
            sent_s = self._clock.now_s()
            try:
                reply = self._ship.command("ping", {}, timeout_s=PING_S)
            except LinkError:
                self.unsent += 1
                continue
            self.replies.append(reply)
            if reply.state == "SUCCESS":
                self.accepted_ms.append(1000.0 * (reply.result["accepted_s"] - sent_s))

    def __enter__(self) -> "LinkCheck":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def percentile(values: list[float], share: float) -> float | None:
    """Return the nearest-rank percentile, None if there are no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
