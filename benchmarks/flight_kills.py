"""Kills in flight and what became of the ship: `python -m benchmarks.flight_kills`.

A simulated ship on a full stack in 0.3 m/s of wind with gusts; kill -9 of the worker in
mid-leg, of the flight process in a climb, of `blimp up` in a climb. Worker and flight process
are killed inside the body of a task: `goto` and `takeoff` run then, which the world outside of
both sees by where the ship is. One JSON line a kill; exit status 1 if one is not survived:

- worker: the mission is flown to its end.
- flight: the outputs are safe; the task ends as INTERRUPTED and is not run again: the
  successor is not armed and accepts no further `takeoff`.
- up: the outputs are safe, and nothing of the stack is left.

`--stops N` does something else: on the bench, with a motor running, it stops (SIGSTOP) the flight
process N times and kills (SIGKILL) its successor each time, and measures when the world has every
output safe: at most 1.0 s and 0.5 s afterwards.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.estop import VEHICLE, Ship, running
from benchmarks.figures import exit_status, make_parser
from blimp.clock import SystemClock
from blimp.link.telemetry import TelemetryReader
from blimp.service.show.observer import Observer
from blimp.sim.remote import RemoteWorld
from blimp.tasks.client import VehicleClient
from blimp.tasks.reply import Pending
from blimp.types import Snapshot
from ground_station.flyer import MissionResult
from ground_station.mission import MissionRunner
from ground_station.mission_file import load_mission
from tests.repeating import until

MOTORS = ("left", "right", "tail")
PATIENCE_S = 120.0


class Flight:
    """A running stack with what is needed to fly it and to look at it."""

    def __init__(self, ship: Ship) -> None:
        self.stack, self.paths, self.broker = ship.stack, ship.paths, ship.broker
        self.pids = ship.pids
        self.world = RemoteWorld(ship.paths.world)

    def kill(self, name: str) -> float:
        """Kill -9 a process; return when, on the monotonic clock."""
        os.kill(self.pids[name], signal.SIGKILL)
        return time.monotonic()

    def climb(self, client: VehicleClient) -> Pending:
        """Arm, take off and return in the middle of the climb: `takeoff` is under way."""
        client.send("arm").wait(10.0)
        takeoff = client.send("takeoff", {"altitude_m": 3.0})
        until(lambda: self.world.truth().altitude_m > 1.0, "no climb")
        return takeoff

    def motors_at_rest(self) -> bool:
        try:
            outputs = self.world.outputs()
        except OSError:
            return True  # the world has ended, and its motors with it
        return all(outputs[name] == 0.0 for name in MOTORS)

    def restarted(self, name: str) -> dict[str, Any]:
        def event() -> dict[str, Any] | None:
            found = [e for e in self.stack.events if e.get("process") == name]
            return found[-1] if found else None

        return until(event, f"no restart of {name}")


@contextlib.contextmanager
def flight(seed: int, *arguments: str) -> Iterator[Flight]:
    with running("--seed", str(seed), "--wind", "0.3", *arguments) as ship:
        yield Flight(ship)


def kill_worker(seed: int) -> dict[str, Any]:
    mission = load_mission("square")
    results: list[MissionResult] = []
    with flight(seed) as ship, VehicleClient(ship.broker, VEHICLE) as client:
        observer = Observer(world=ship.paths.world, mission=mission)
        runner = MissionRunner(
            client=client,
            mission=mission,
            clock=SystemClock(),
            on_event=lambda event: setattr(observer, "leg", event.leg),
        )
        pilot = threading.Thread(target=lambda: results.append(runner.run()))
        with observer:
            pilot.start()
            until(lambda: ship.world.truth().position_ned_m[0] > 4.0, "no way north")
            ship.kill("worker")
            event = ship.restarted("worker")
            pilot.join()
        return {
            "ok": results[0].ok,
            "killed": "worker",
            "simulated": True,
            "down_s": event["down_s"],
            "mission_flown": results[0].ok,
            "legs_completed": results[0].completed,
            "max_cross_track_m": round(observer.max_cross_track_m, 2),
            "duration_s": round(results[0].duration_s, 1),
        }


def kill_flight(seed: int) -> dict[str, Any]:
    with flight(seed) as ship, VehicleClient(ship.broker, VEHICLE) as client:
        takeoff = ship.climb(client)
        with TelemetryReader(ship.broker, VEHICLE) as telemetry:
            before = until(telemetry.latest, "no telemetry")[0]
            killed_s = ship.kill("flight")
            until(ship.motors_at_rest, "motors turned")
            safe_s = time.monotonic() - killed_s
            event = ship.restarted("flight")

            def successor() -> Snapshot | None:
                latest = telemetry.latest()
                return latest[0] if latest and latest[0].boot_id != before.boot_id else None

            snapshot = until(successor, "no successor")
        reply = takeoff.wait(PATIENCE_S)
        at_rest = ship.motors_at_rest()
        return {
            "ok": reply.state == "INTERRUPTED" and not snapshot.armed and at_rest,
            "takeoff": reply.state,
            "killed": "flight",
            "simulated": True,
            "outputs_safe_after_s": round(safe_s, 3),
            "down_s": event["down_s"],
            "armed_before": before.armed,
            "armed_afterwards": snapshot.armed,
            "outputs_safe_afterwards": at_rest,
        }


def stop_flight(seed: int, *, times: int) -> dict[str, Any]:
    limits_s = {signal.SIGSTOP: 1.0, signal.SIGKILL: 0.5}
    safe_s: dict[signal.Signals, list[float]] = {number: [] for number in limits_s}
    with flight(seed, "--bench") as ship, VehicleClient(ship.broker, VEHICLE) as client:
        pid = ship.pids["flight"]
        for number in [*limits_s] * times:
            client.send("motor", {"name": "left", "percent": 60.0, "seconds": 30.0})
            until(lambda: ship.world.outputs()["left"] != 0.0, "no motor turned")
            events = len(ship.stack.events)
            os.kill(pid, number)
            began_s = time.monotonic()
            until(lambda: ship.world.report().outputs_safe, "outputs were not safe")
            safe_s[number].append(time.monotonic() - began_s)

            def restarted(since: int = events) -> int | None:
                new = [e for e in ship.stack.events[since:] if e["event"] == "restarted"]
                return new[0]["pid"] if new else None

            pid = until(restarted, "no restart")
            time.sleep(1.0)  # `up` gives up on a process that dies nine times in ten seconds
            until(lambda: client.ping().state == "SUCCESS", "no answer")
    worst_s = {number.name: round(max(times_s), 3) for number, times_s in safe_s.items()}
    return {
        "ok": all(max(safe_s[number]) <= limit_s for number, limit_s in limits_s.items()),
        "simulated": True,
        "times": times,
        "outputs_safe_after_s": {
            number.name: [round(s, 3) for s in sorted(times_s)]
            for number, times_s in safe_s.items()
        },
        "worst_s": worst_s,
    }


def kill_supervisor(seed: int) -> dict[str, Any]:
    with flight(seed) as ship, VehicleClient(ship.broker, VEHICLE) as client:
        ship.climb(client)
        os.kill(ship.stack.pid, signal.SIGKILL)
        killed_s = time.monotonic()
        until(ship.motors_at_rest, "motors turned")
        safe_s = time.monotonic() - killed_s
        until(lambda: not ship.stack.left_behind(), "something was left")
        return {
            "ok": not ship.stack.left_behind(),
            "killed": "up",
            "simulated": True,
            "guard": ship.stack.log_tail().splitlines()[-1],
            "outputs_safe_after_s": round(safe_s, 3),
            "clean_after_s": round(time.monotonic() - killed_s, 3),
            "left_behind": ship.stack.left_behind(),
        }


def main() -> int:
    parser = make_parser("benchmarks.flight_kills", __doc__)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--stops", type=int, default=0, metavar="N")
    options = parser.parse_args()
    if options.stops:
        return exit_status(
            "benchmarks.flight_kills", stop_flight(options.seed, times=options.stops)
        )
    kills = (kill_worker, kill_flight, kill_supervisor)
    return max([exit_status("benchmarks.flight_kills", kill(options.seed)) for kill in kills])


if __name__ == "__main__":
    sys.exit(main())
