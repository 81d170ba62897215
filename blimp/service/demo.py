"""`blimp demo`: the stack, a mission flown by a ground station, and what came of it.

The stack is `blimp up --sim` in a process of its own and the mission goes through the
queue, exactly as a ground laptop would fly it. Besides, an observer asks the simulated
world for the truth, which no part of the flight control ever sees.
"""

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
from math import hypot
from pathlib import Path
from typing import IO, Any

import msgspec

from blimp import airframe as airframes
from blimp.clock import Clock, SystemClock
from blimp.config import (
    broker_url_from_environment,
    registry_dir,
    signing_keys_from_environment,
)
from blimp.errors import BlimpError, LinkError
from blimp.link.paths import RuntimePaths
from blimp.link.telemetry import TelemetryReader
from blimp.processes import Child
from blimp.service.fleet import vehicle_names
from blimp.sim.remote import RemoteWorld
from blimp.tasks.client import Reply, VehicleClient
from blimp.types import Snapshot, VehicleState
from ground_station.mission import Mission, MissionEvent, MissionResult, MissionRunner, load_mission
from ground_station.track import cross_track_m

START_DEADLINE_S = 60.0
END_DEADLINE_S = 20.0
TRUTH_PERIOD_S = 0.05
PING_PERIOD_S = 0.5
LOG_TAIL_LINES = 20
LOG_TAIL_BYTES = 16_384
STOPPED = "INTERRUPTED"  # a MissionResult's state after Ctrl-C

Say = Callable[[str], None]


class DemoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """live: draw the flight on the terminal while it happens."""

    airframe: str
    mission: str
    seed: int
    wind_mps: float
    live: bool


class DemoError(BlimpError):
    """The stack did not start, or ended before the mission did."""


class StackProcess:
    """`blimp up --sim --json` as a child: its events, and what it leaves behind."""

    def __init__(
        self, *, arguments: list[str], paths: RuntimePaths, vehicles: Sequence[str], log: IO[bytes]
    ) -> None:
        self._paths = paths
        self._vehicles = vehicles
        self._log = log
        self.left: list[str] = []  # behind, once it has ended
        self._child = Child(
            name="up",
            arguments=[sys.executable, "-m", "blimp", "up", "--sim", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
        )
        self.events: list[dict[str, Any]] = []
        self._pids: dict[int, str] = {self._child.pid: "up"}
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, name="stack events", daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> dict[str, Any]:
        """Return the `ready` event, the first of several ships; all of them are ready then.

        Raises DemoError with the log's tail when none comes.
        """
        with self._news:
            self._news.wait_for(
                lambda: self._are_ready() or not self._child.running(),
                timeout=START_DEADLINE_S,
            )
            if self._are_ready():
                return self.all_ready()[0]
        raise DemoError(f"the stack did not start; its last words:\n{self.log_tail()}")

    def all_ready(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == "ready"]

    def _are_ready(self) -> bool:
        return len(self.all_ready()) == len(self._vehicles)

    def log_tail(self) -> str:
        # Not seek and read: the stack writes through the same file position.
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
        self._child.end(within_s=END_DEADLINE_S)
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
            self._news.notify_all()


class Observer:
    """Writes down where the ship truly is while the mission runs: 20 positions a second."""

    def __init__(self, *, world: Path, mission: Mission) -> None:
        self._world = world
        self._track = mission.track()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self.leg = 0  # the number of the leg that is being flown, from 1
        self.max_cross_track_m = 0.0
        self.last: VehicleState | None = None

    def final_error_m(self) -> float | None:
        """Return how far the ship is, over ground, from where the mission ends."""
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
                    continue  # the world restarts: the next look will tell
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

    The age of each command when the flight process takes it is measured on this machine's
    monotonic clock, which both processes share: from `send` to the mailbox.
    """

    def __init__(self, *, client: VehicleClient, clock: Clock) -> None:
        self._client = client
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
                reply = self._client.ping()
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


def run_demo(options: DemoOptions, *, say: Say) -> dict[str, Any]:
    """Fly the demo and return its report; `ok` says whether the mission was flown.

    Raises DemoError where the stack does not start. Ctrl-C ends the mission in a hold and
    the demo in order.
    """
    mission = load_mission(options.mission)
    vehicle = airframes.load(options.airframe).name
    clock = SystemClock()
    with _scratch() as (paths, log):
        stack = _stack(options, vehicles=[vehicle], paths=paths, log=log)
        try:
            ready = stack.wait_until_ready()
            say(f"{vehicle} is ready (simulated); mission {mission.name!r} begins")
            flight = _fly(
                mission, broker=broker_url_from_environment() or ready["broker"],
                vehicle=vehicle, world=paths.world, clock=clock, live=options.live, say=say,
            )  # fmt: skip
        finally:
            left_behind = stack.end()
        report = {
            "ok": flight.result.ok and not left_behind,
            "simulated": True,
            "vehicle": vehicle,
            "airframe": options.airframe,
            "mission": flight.mission(),
            "tasks": flight.tasks(),
            "loop": flight.loop(),
            "left_behind": left_behind,
        }
        if not flight.result.ok:
            say(f"not flown: {flight.result.reason}")
            if flight.result.state != STOPPED:  # Ctrl-C is no fault to look for in a log
                say(f"the stack's last words:\n{stack.log_tail()}")
        say(_summary(report))
        return report


@contextlib.contextmanager
def ready_stack(options: DemoOptions, *, ships: int) -> Iterator[StackProcess]:
    """Yield a stack of several ships that are ready; ended when the block is left."""
    load_mission(options.mission)  # what cannot be flown starts nothing
    vehicles = vehicle_names(airframes.load(options.airframe).name, ships=ships)
    with _scratch() as (paths, log):
        stack = _stack(options, vehicles=vehicles, paths=paths, log=log)
        try:
            stack.wait_until_ready()
            yield stack
        finally:
            stack.end()


def _stack(
    options: DemoOptions, *, vehicles: Sequence[str], paths: RuntimePaths, log: IO[bytes]
) -> StackProcess:
    return StackProcess(
        arguments=[
            "--airframe", options.airframe, "--ships", str(len(vehicles)),
            "--seed", str(options.seed), "--wind", str(options.wind_mps),
            "--runtime-dir", str(paths.directory),
        ],
        paths=paths, vehicles=vehicles, log=log,
    )  # fmt: skip


class _Flight:
    """What a flown mission left: its result, the truth, the link and the last snapshot."""

    def __init__(
        self, *, result: MissionResult, observer: Observer, link: LinkCheck, last: Snapshot | None
    ) -> None:
        self.result = result
        self._observer = observer
        self._link = link
        self._last = last

    def mission(self) -> dict[str, Any]:
        return {
            "name": self.result.name,
            "legs": self.result.legs,
            "completed": self.result.completed,
            "max_cross_track_m": _rounded(self._observer.max_cross_track_m),
            "final_error_m": _rounded(self._observer.final_error_m()),
            "duration_s": _rounded(self.result.duration_s),
        }

    def tasks(self) -> dict[str, Any]:
        replies = [*self.result.replies, *self._link.replies]
        states = [reply.state for reply in replies]
        return {
            "sent": len(replies) + self._link.unsent,
            "succeeded": states.count("SUCCESS"),
            "failed": len(replies) - states.count("SUCCESS") - states.count("REFUSED"),
            "refused": states.count("REFUSED"),
            "latency_ms": {
                "p50": _rounded(percentile(self._link.accepted_ms, 0.50)),
                "p99": _rounded(percentile(self._link.accepted_ms, 0.99)),
            },
        }

    def loop(self) -> dict[str, Any]:
        return {} if self._last is None else msgspec.to_builtins(self._last.loop)


def _fly(
    mission: Mission,
    *,
    broker: str,
    vehicle: str,
    world: Path,
    clock: Clock,
    live: bool,
    say: Say,
) -> _Flight:
    observer = Observer(world=world, mission=mission)
    keys = signing_keys_from_environment()
    with (
        TelemetryReader(broker, vehicle) as telemetry,
        VehicleClient(broker, vehicle, signing_key=keys) as pilot,
        VehicleClient(broker, vehicle, signing_key=keys) as beacon,
        LinkCheck(client=beacon, clock=clock) as link,
        observer,
        _view(mission, vehicle=vehicle, telemetry=telemetry, clock=clock, live=live) as show,
    ):

        def on_event(event: MissionEvent) -> None:
            observer.leg = event.leg
            show(event)
            if not live and event.stage != "executing":
                say(f"leg {event.leg}/{event.legs} {event.words}: {event.stage} {event.reason}")

        runner = MissionRunner(client=pilot, mission=mission, clock=clock, on_event=on_event)
        result = runner.run()
        observer.leg = 0
        latest = telemetry.latest()
    return _Flight(result=result, observer=observer, link=link, last=latest[0] if latest else None)


@contextlib.contextmanager
def _view(
    mission: Mission, *, vehicle: str, telemetry: TelemetryReader, clock: Clock, live: bool
) -> Iterator[Callable[[MissionEvent], None]]:
    """Draw the flight while it happens; yield what to call with the mission's events."""
    if not live:
        yield lambda _: None
        return
    from ground_station.screen import MissionScreen

    with MissionScreen(mission=mission, vehicle=vehicle, reader=telemetry, clock=clock) as screen:
        yield screen.hear


@contextlib.contextmanager
def _scratch() -> Iterator[tuple[RuntimePaths, IO[bytes]]]:
    """Yield a short runtime directory, and a log.

    The stack makes the directory and removes it, or its guard does, and the log has no name:
    a killed demo leaves nothing.
    """
    directory = Path(tempfile.gettempdir()) / f"blimp-demo-{secrets.token_hex(4)}"
    with tempfile.TemporaryFile() as log:
        yield RuntimePaths(directory), log


def _summary(report: dict[str, Any]) -> str:
    mission, tasks, loop = report["mission"], report["tasks"], report["loop"]
    verdict = "flown" if report["ok"] else "NOT flown"
    return (
        f"mission {mission['name']!r} {verdict} (simulated): "
        f"{mission['completed']} of {mission['legs']} legs in {mission['duration_s']:.1f} s, "
        f"at most {_words(mission['max_cross_track_m'], 2)} m off its track, "
        f"{_words(mission['final_error_m'], 2)} m from its end\n"
        f"tasks: {tasks['succeeded']} of {tasks['sent']} succeeded, pings included; "
        f"ping to flight process p50 {_words(tasks['latency_ms']['p50'], 1)} ms, "
        f"p99 {_words(tasks['latency_ms']['p99'], 1)} ms\n"
        f"flight loop: {loop.get('rate_hz', 0):.0f} Hz, {loop.get('overruns', 0)} overruns in "
        f"{loop.get('cycles', 0)} cycles\n"
        f"left behind: {', '.join(report['left_behind']) or 'nothing'}"
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _words(value: float | None, digits: int) -> str:
    return "?" if value is None else f"{value:.{digits}f}"


def percentile(values: list[float], share: float) -> float | None:
    """Return the nearest-rank percentile, None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return not select.select([pidfd], [], [], 0.0)[0]
    finally:
        os.close(pidfd)
