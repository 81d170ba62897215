"""`blimp demo`: starts the stack, flies a mission from a ground station and reports on it.

The stack is `blimp up --sim` in a process of its own. The mission goes through the queue,
exactly as from a ground laptop. An observer asks the simulated world for the truth, which no
part of the flight control ever sees.
"""

import contextlib
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import msgspec

from blimp import airframe as airframes
from blimp.ability import ability, camera_of, full_v
from blimp.actions import ACTIONS
from blimp.airframe import Airframe
from blimp.clock import Clock, SystemClock
from blimp.config import (
    broker_url_from_environment,
    log_directory,
    signing_keys_from_environment,
)
from blimp.errors import BlimpError, Refused
from blimp.link.paths import RuntimePaths, socket_url
from blimp.link.telemetry import TelemetryReader
from blimp.recording.directory import newest_log
from blimp.service.show.chaos import Chaos, ChaosReport
from blimp.service.show.demo_page import (
    Story,
    demo_page,
    demo_session,
    stay,
    wait_until_opened,
)
from blimp.service.show.observer import LinkCheck, Observer, percentile
from blimp.service.show.story import (
    ALL,
    NONE,
    PHOTOGRAPH,
    Card,
    Photographed,
    Show,
    cause_of,
    chosen,
)
from blimp.service.show.story import MISSION as SHOW
from blimp.service.stack.stack_process import StackProcess, scratch_directory
from blimp.service.stack.up import demand_wind
from blimp.tasks.client import VehicleClient
from blimp.types import Snapshot
from ground_station.flyer import MissionEvent, MissionResult
from ground_station.mission import MissionRunner
from ground_station.mission_check import judge
from ground_station.mission_file import Mission, load_mission
from ground_station.plain import Ship

if TYPE_CHECKING:
    from ground_station.page.server import Page

PING = "blimp.ping"
STOPPED = "INTERRUPTED"  # the state of a MissionResult after Ctrl-C
POSITION_S = 30.0  # a camera's process needs some seconds for its first position, more if busy
AGAIN_S = 0.5

Say = Callable[[str], None]
Tell = Callable[[dict[str, Any]], None]


class DemoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """live: draw the flight on the terminal while it happens. page: serve it to a browser, too.

    read_only: at a second address, for everybody in the network. held: a person holds each ship.
    scenes: of the show, as `chosen` of `blimp/service/show/story.py` reads them.
    """

    airframe: str
    mission: str
    seed: int
    wind_mps: float
    live: bool
    page: bool = False
    read_only: bool = False
    held: bool = False
    scenes: str = ALL


def run_demo(options: DemoOptions, *, say: Say, tell: Tell = lambda _: None) -> dict[str, Any]:
    """Fly the demo and return its report; `ok` says whether the mission was flown.

    tell: gets the events for programs. Raises StackError if the stack does not start.
    After Ctrl-C the ship holds its place, and the demo ends in order.
    """
    mission, airframe = flyable(options)
    scenes = chosen(options.scenes, mission=options.mission)
    if camera_of(airframe) is not None and options.scenes != NONE:
        scenes = (*scenes, PHOTOGRAPH)
    vehicle = airframe.name
    before = newest(vehicle)
    clock = SystemClock()
    with scratch_directory() as (paths, log), contextlib.ExitStack() as ending:
        stack = _stack(options, vehicles=[vehicle], paths=paths, log=log)
        broker = broker_url_from_environment() or socket_url(paths.broker)
        chaos = Chaos(
            paths=paths, vehicle=vehicle, broker=broker, airframe=airframe, clock=clock,
            keys=signing_keys_from_environment(),
        )  # fmt: skip
        try:
            page = ending.enter_context(
                demo_page(
                    wanted=options.page, read_only=options.read_only, broker=broker,
                    vehicle=vehicle, airframe=airframe, clock=clock, say=say, tell=tell,
                    chaos=chaos,
                )
            )  # fmt: skip
            stack.wait_until_ready()
            wait_until_opened(page, clock=clock)
            say(f"{vehicle} is ready (simulated); mission {mission.name!r} begins")
            if options.held:
                say(f"{vehicle} is held: let go on the page, or with: blimp sim hold off")
            story = Story(page=page, say=None if options.live else say)
            show = Show(
                actions={
                    **chaos.actions,
                    PHOTOGRAPH.action: lambda: _photograph(broker=broker, vehicle=vehicle),
                },
                tell=story.line,
                fault=story.fault,
                clock=clock,
                scenes=scenes,
            )
            flight = _fly(
                mission, broker=broker, vehicle=vehicle, world=paths.world, clock=clock,
                live=options.live, say=say, page=page,
                hear=show.hear if options.mission == SHOW else story.hear,
                by_camera=camera_of(airframe) is not None,
            )  # fmt: skip
            show.close()
            reason = "" if flight.result.ok else flight.result.reason
            if reason and flight.result.state != STOPPED:  # after Ctrl-C there is nothing to find
                reason = cause_of(reason, faults=chaos.faults, events=stack.events)
            card = card_of(vehicle, flight.mission(), flight.tasks(), reason, chaos.faults)
            story.end(card)
        finally:
            left_behind = stack.end()
        log_path = recorded_since(before, vehicle=vehicle)
        report = {
            "ok": flight.result.ok and not left_behind,
            "simulated": True,
            "vehicle": vehicle,
            "airframe": options.airframe,
            "mission": flight.mission(),
            "tasks": flight.tasks(),
            "loop": flight.loop(),
            "left_behind": left_behind,
            "log": log_path,
        }
        if not flight.result.ok and flight.result.state != STOPPED:
            say(f"the end of the stack's log:\n{stack.log_tail()}")
        say("\n".join([*card.lines(), *_machine_lines(report)]))
        say_replay(log_path, say=say)
        if page is not None and sys.stdin.isatty() and flight.result.state != STOPPED:
            stay(page, clock=clock, say=say)
        return report


def recorded_since(before: Path | None, *, vehicle: str) -> str | None:
    """Return the path of the ship's newest log, None if it is that of before."""
    found = newest(vehicle)
    return None if found in (None, before) else str(found)


def newest(vehicle: str) -> Path | None:
    """Return the ship's newest log, None without one: no demo fails for its log."""
    with contextlib.suppress(BlimpError):
        return newest_log(log_directory(), vehicle)
    return None


def say_replay(log: str | None, *, say: Say) -> None:
    """Say how the flight is seen again: as it must be typed here."""
    if log is not None:
        say(f"see it again: {_program()} log replay {Path(log).name}")


def _program() -> str:
    """Return how this program is called here: `make demo` does not put it on the PATH."""
    if shutil.which("blimp"):
        return "blimp"
    is_script = Path(sys.argv[0]).name == "blimp"
    return shlex.quote(sys.argv[0]) if is_script else f"{shlex.quote(sys.executable)} -m blimp"


def flyable(options: DemoOptions) -> tuple[Mission, Airframe]:
    """Return the mission and the ship. Raises ConfigError if it cannot fly it in this wind."""
    mission = load_mission(options.mission)
    airframe = airframes.load(options.airframe)
    demand_wind(airframe, options.wind_mps)
    judge(mission, ability(airframe, battery_v=full_v(airframe.battery)))
    return mission, airframe


@contextlib.contextmanager
def starting_stack(
    options: DemoOptions, *, vehicles: Sequence[str]
) -> Iterator[tuple[StackProcess, str]]:
    """Yield a stack of several ships that starts, and its broker; end it with the block."""
    with scratch_directory() as (paths, log):
        stack = _stack(options, vehicles=vehicles, paths=paths, log=log)
        try:
            yield stack, broker_url_from_environment() or socket_url(paths.broker)
        finally:
            stack.end()


def _stack(
    options: DemoOptions, *, vehicles: Sequence[str], paths: RuntimePaths, log: IO[bytes]
) -> StackProcess:
    return StackProcess(
        arguments=[
            "--airframe", options.airframe, "--ships", str(len(vehicles)),
            "--seed", str(options.seed), "--wind", str(options.wind_mps),
            "--runtime-dir", str(paths.directory), *(["--held"] if options.held else []),
        ],
        paths=paths, vehicles=vehicles, log=log,
    )  # fmt: skip


class _Flight:
    """The records of a flown mission: its result, the truth, the link and the last snapshot."""

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
            "pings": self._link.unsent + sum(reply.task == PING for reply in replies),
            "succeeded": states.count("SUCCESS"),
            "failed": len(replies) - states.count("SUCCESS") - states.count("REFUSED"),
            "refused": states.count("REFUSED"),
            "others": dict(Counter(state for state in states if state != "SUCCESS")),
            "unsuccessful": [
                {"task": reply.task, "state": reply.state, "reason": reply.reason}
                for reply in replies
                if reply.state != "SUCCESS"
            ],
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
    page: "Page | None",
    hear: Callable[[MissionEvent], None],
    by_camera: bool,
) -> _Flight:
    observer = Observer(world=world, mission=mission)
    session = demo_session(broker=broker, vehicle=vehicle, clock=clock)
    with (
        session.telemetry() as telemetry,
        # The page is the pilot, whose link the ship misses.
        Ship.of(session, present=lambda: False) as pilot,
        Ship.of(session, present=lambda: False) as beacon,
        LinkCheck(ship=beacon, clock=clock) as link,
        observer,
        _view(mission, vehicle=vehicle, telemetry=telemetry, clock=clock, live=live) as show,
    ):
        if page is not None:
            page.tell("track", [leg.end[:2] for leg in mission.track().values()])

        def on_event(event: MissionEvent) -> None:
            observer.leg = event.leg
            show(event)
            hear(event)
            if not live and event.stage not in ("started", "received", "executing"):
                state = "done" if event.stage == "SUCCESS" else event.stage
                reason = f": {event.reason}" if event.reason else ""
                say(f"leg {event.leg} of {event.legs}, {event.words}: {state}{reason}")

        runner = MissionRunner(client=pilot, mission=mission, clock=clock, on_event=on_event)
        if by_camera:
            _arm(pilot, clock=clock)
        result = runner.run()
        observer.leg = 0
        latest = telemetry.latest()
    return _Flight(result=result, observer=observer, link=link, last=latest[0] if latest else None)


def _arm(pilot: Ship, *, clock: Clock) -> None:
    """Arm as soon as the ship's pictures say where it is: a mission ends at an arm that is refused.

    What else speaks against it, the mission says.
    """
    until_s = clock.now_s() + POSITION_S
    with contextlib.suppress(BlimpError):
        while clock.now_s() < until_s:
            try:
                pilot.arm()
                return
            except Refused as error:
                if "position" not in str(error):
                    return
            clock.sleep_until(clock.now_s() + AGAIN_S)


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


class Ends(NamedTuple):
    """How the flight's tasks ended, in words: the mission's commands, and the pings beside them."""

    commands: str
    pings: str


def _ends(tasks: dict[str, Any]) -> Ends:
    """Return as "8 of 8 succeeded", and "195 of 198 answered, 3 EXPIRED: 2.1 s old, ..."."""
    bad = tasks["unsuccessful"]
    commands = [one for one in bad if one["task"] != PING]
    pings = [one | {"task": ""} for one in bad if one["task"] == PING]
    unsent = tasks["sent"] - tasks["succeeded"] - len(bad)  # a client without a broker sends none
    of_commands, of_pings = tasks["sent"] - tasks["pings"], tasks["pings"]
    answered = of_pings - len(pings) - unsent
    ends = [f"{answered} of {of_pings} answered", *_named(pings)]
    ends += [f"{unsent} not sent"] if unsent else []
    succeeded = f"{of_commands - len(commands)} of {of_commands} succeeded"
    return Ends(commands=", ".join([succeeded, *_named(commands)]), pings=", ".join(ends))


def _named(tasks: Sequence[dict[str, Any]]) -> list[str]:
    """Return each way in which tasks ended without success, and how often."""
    words = [f"{one['task']} {one['state']}: {one['reason']}".lstrip() for one in tasks]
    return [f"{count} {one}" for one, count in Counter(words).items()]


def _photograph(*, broker: str, vehicle: str) -> Photographed:
    """Have the ship take one, as `ground photo` does. Raises BlimpError with the reason if not."""
    keys = signing_keys_from_environment()
    with VehicleClient(broker, vehicle, signing_key=keys) as client:
        reply = client.send("photo").wait(ACTIONS["photo"].timeout_s({}))
    if reply.state != "SUCCESS":
        raise BlimpError(reply.reason or reply.state.lower())
    size = f"{reply.result['width']} x {reply.result['height']}"
    return Photographed(f"Photographed, {size} pixels: the view Photos fetches it from the ship.")


def card_of(
    vehicle: str,
    mission: dict[str, Any],
    tasks: dict[str, Any],
    cause: str,
    faults: Sequence[ChaosReport],
) -> Card:
    """Return the end of a demo in words. mission, tasks: of its report. cause: "" if it flew."""
    ends = _ends(tasks)
    is_flown = not cause and mission["completed"] == mission["legs"]
    return Card(
        title=f"{vehicle} {'has flown it' if is_flown else 'ended early'} (simulated)",
        cause=cause,
        rows=(
            ("mission", mission["name"]),
            ("legs flown", f"{mission['completed']} of {mission['legs']}"),
            ("time", f"{mission['duration_s']:.0f} s"),
            ("farthest off its track", f"{_words(mission['max_cross_track_m'], 2)} m"),
            ("off the pad at the end", f"{_words(mission['final_error_m'], 2)} m"),
            ("commands of the mission", ends.commands),
            ("pings, two a second", ends.pings),
        ),
        faults=tuple((one.sentence, one.is_well) for one in faults),
    )


def _machine_lines(report: dict[str, Any]) -> list[str]:
    """Return what a terminal says beside the card."""
    ms, loop = report["tasks"]["latency_ms"], report["loop"]
    return [
        f"to the flight process: p50 {_words(ms['p50'], 1)} ms, p99 {_words(ms['p99'], 1)} ms",
        f"flight loop: {loop.get('rate_hz', 0):.0f} Hz, {loop.get('overruns', 0)} overruns in "
        f"{loop.get('cycles', 0)} cycles",
        f"left behind: {', '.join(report['left_behind']) or 'nothing'}",
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _words(value: float | None, digits: int) -> str:
    return "?" if value is None else f"{value:.{digits}f}"
