"""`ground mission run|check|list|new`."""

from pathlib import Path
from typing import Any

import msgspec

from blimp import airframe as airframes
from blimp.ability import Ability, ability, full_v
from blimp.clock import SystemClock
from blimp.errors import ConfigError, LinkError, MissionError
from ground_station.flyer import LegReport, MissionEvent, MissionResult
from ground_station.mission import MissionRunner
from ground_station.mission_check import Estimate, fitted, judge
from ground_station.mission_file import ENDINGS, Mission, builtin_missions, load_mission
from ground_station.plain import Ship
from ground_station.report import (
    DONE,
    NOT_AUTHORISED,
    USAGE,
    Outcome,
    ProgressLine,
    Report,
    exit_status,
)
from ground_station.session import Session

# The size of a hall, or of a field in sight; a larger mission must be confirmed.
FAR_M = 100.0
ASK_S = 5.0
HIGH_M = 30.0
SILENT_S = 1.0  # a check that takes less needs no line of progress


def check(session: Session, file: str, *, airframe: str | None = None) -> int:
    """Print what a mission file contains; of a folder, a table of its files.

    airframe: a ship that it is judged for, with a full battery. Raises MissionError if it cannot be
    flown; of a folder, if one of its files cannot.
    """
    ship = None
    if airframe is not None:
        known = airframes.load(airframe)
        ship = ability(known, battery_v=full_v(known.battery))
    if Path(file).is_dir():
        return _check_all(session, Path(file), ship)
    mission = load_mission(file)
    estimate = None if ship is None else judge(mission, ship)
    if session.report.as_json:
        session.report.json(_outcome(mission, state="SUCCESS", completed=0, estimate=estimate))
    else:
        session.report.data(_summary(mission) + _estimate_words(estimate))
    return DONE


def _check_all(session: Session, folder: Path, ship: Ability | None) -> int:
    """Print each mission file of a folder with what it flies, or why not."""
    try:
        paths = sorted(p for p in folder.iterdir() if p.suffix in ENDINGS and p.is_file())
    except OSError as error:
        raise MissionError(f"missions in {folder}: {error.strerror}") from None
    if not paths:
        raise MissionError(f"no mission in {folder}: files end in {', '.join(ENDINGS)}")
    report = session.report
    rows: list[dict[str, Any]] = []
    clock = SystemClock()
    shown_s = clock.now_s() + SILENT_S
    for number, path in enumerate(paths):
        name = path.name
        if report.err_is_terminal and not report.as_json and clock.now_s() >= shown_s:
            report.progress(f"checking {number} of {len(paths)}: {name}")
        try:
            mission = load_mission(str(path))
            if ship is not None:
                judge(mission, ship)
        except MissionError as error:
            rows.append({"file": name, "error": str(error).removeprefix(f"mission {path}")[:300]})
        else:
            rows.append({"file": name, "legs": len(mission.legs), "contains": _summary(mission)})
    report.end_line()
    bad = sum("error" in row for row in rows)
    state, reason = ("REFUSED", f"{bad} of {len(rows)} cannot be flown") if bad else ("SUCCESS", "")
    if session.report.as_json:
        outcome = Outcome(
            id=None, task="mission", state=state, result={"missions": rows}, reason=reason
        )
        session.report.json(outcome)
        return USAGE if bad else DONE
    width = max(len(row["file"]) for row in rows)
    for row in rows:
        what = row["contains"] if "error" not in row else "REFUSED" + row["error"]
        session.report.data(f"{row['file']:{width}} {what}")
    if bad:
        raise MissionError(f"{folder}: {reason}")
    return DONE


def list_missions(session: Session) -> int:
    """Print the built-in missions and the mission files of this directory."""
    files = sorted(str(path) for path in Path().iterdir() if path.suffix in ENDINGS)
    found: list[dict[str, Any]] = []
    for name in (*builtin_missions(), *files):
        try:
            mission = load_mission(name)
        except MissionError as error:
            if not name.endswith(".toml"):  # a .toml may be something else altogether
                found.append({"file": name, "error": str(error)})
            continue
        what = {"name": mission.name, "description": mission.description}
        found.append({"file": name, **what, "legs": len(mission.legs)})
    if session.report.as_json:
        result = {"missions": found}
        session.report.json(Outcome(id=None, task="mission", state="SUCCESS", result=result))
    for row in found if not session.report.as_json else ():
        session.report.data(f"{row['file']:20} {row.get('description', row.get('error'))}")
    return DONE


def example() -> str:
    """Return a mission file to begin with, each line explained."""
    return _TEMPLATE.replace("NAME", "example")


def new(session: Session, file: Path) -> int:
    """Write a commented mission file to begin with. Raises MissionError if there is one."""
    if file.suffix != ".toml":
        raise MissionError(f"mission {file}: a new mission is a .toml file")
    text = _TEMPLATE.replace("NAME", file.stem[:64].replace('"', "'").replace("\\", "/"))
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise MissionError(f"mission {file} exists already") from None
    except OSError as error:
        raise MissionError(f"mission {file} cannot be written: {error.strerror}") from None
    status = check(session, str(file))
    if not session.report.as_json:
        session.report.say(f"{file} written: edit it; next: ground mission run {file}")
    return status


def run(session: Session, file: str) -> int:
    """Fly a mission file and return the exit status."""
    mission = confirmed(session, file)
    if session.options.dry_run:
        session.report.say(f"dry run with {session.ship.vehicle}: nothing is sent")
        return check(session, file)
    session.check_there()
    with Ship.of(session) as ship:
        mission, result = fly(session, file, mission, ship=ship)
    return summarise(session, mission, result)


def confirmed(session: Session, file: str) -> Mission:
    """Return the mission of `file`, once it may be flown. Raises NotConfirmed."""
    if not session.options.wait:
        raise ConfigError(
            "--no-wait: this program flies the mission leg by leg, so it must run to the end"
        )
    mission = load_mission(file)
    distance_m, altitude_m = mission.reach_m()
    far = distance_m > FAR_M or altitude_m > HIGH_M
    session.confirm(f"{_summary(mission)}. Fly it?", programs_too=far)
    return mission


def fly(
    session: Session, file: str, mission: Mission, *, ship: Ship
) -> tuple[Mission, MissionResult]:
    """Fly `mission` and report it leg by leg, unless it is beyond this ship.

    Returns it as this ship flies it, too.
    """
    limits = ship.command("limits", {}, timeout_s=ASK_S)
    if limits.state != "SUCCESS" or not isinstance(limits.result, dict):
        raise LinkError(f"the ship did not report its limits: {limits.reason or limits.state}")
    try:
        mission = fitted(file, mission, limits.result, say=session.report.say)
    except MissionError as error:
        nothing = MissionResult(
            name=mission.name, legs=len(mission.legs), completed=0, state="REFUSED",
            reason=str(error), reports=(), replies=(), duration_s=0.0,
        )  # fmt: skip
        return mission, nothing
    runner = MissionRunner(
        client=ship,
        mission=mission,
        clock=session.clock,
        timeout_s=session.options.timeout_s,
        on_event=MissionLines(report=session.report),
    )
    return mission, runner.run()


def summarise(
    session: Session, mission: Mission, result: MissionResult, *, vehicle: str | None = None
) -> int:
    """Print how a mission ended and return the exit status. vehicle: the ship that was
    dispatched."""
    if session.report.as_json:
        session.report.outcome(
            _outcome(
                mission,
                state=result.state,
                reason=result.reason,
                completed=result.completed,
                reports=result.reports,
                duration_s=result.duration_s,
                vehicle=vehicle,
            )
        )
    else:
        state = "flown" if result.ok else result.state.lower()
        by = "" if vehicle is None else f" by {vehicle}"
        session.report.data(
            f"{mission.name}: {state}{by}, {result.completed} of {result.legs} legs "
            f"in {result.duration_s:.0f} s"
        )
        if result.reason:
            session.report.say(f"ground: {result.reason}")
    return NOT_AUTHORISED if result.ousted else exit_status(result.state)


class MissionLines:
    """Prints the progress of a mission, one line a leg.

    "leg 3 of 7, goto 10 0 3: received → executing 40 % → done"
    """

    def __init__(self, *, report: Report) -> None:
        self._report = report
        self._line: ProgressLine | None = None

    def __call__(self, event: MissionEvent) -> None:
        if self._report.as_json:
            return
        if event.stage == "started":
            what = f"leg {event.leg} of {event.legs}, {event.words}"
            self._line = ProgressLine(report=self._report, what=what)
        elif self._line is None:
            return
        elif event.stage in ("received", "executing"):
            self._line(event.reason or event.stage, event.fraction)
        elif event.stage == "waiting":
            self._line(f"waiting for the link ({event.reason})")
        elif event.stage == "again":
            self._line(f"sending it again ({event.reason})")
        else:
            self._line.end(state=event.stage, reason=event.reason, latency_ms=None)
            self._report.end_line()


def _summary(mission: Mission) -> str:
    distance_m, altitude_m = mission.reach_m()
    return (
        f"{mission.name}: {len(mission.legs)} legs, as far as {distance_m:.0f} m from the pad, "
        f"as high as {altitude_m:g} m"
    )


def _estimate_words(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    return f"; {estimate.duration_s:.0f} s and {estimate.charge_ah:.2f} Ah with reserve"


def _outcome(
    mission: Mission,
    *,
    estimate: Estimate | None = None,
    state: str,
    completed: int,
    reason: str = "",
    reports: tuple[LegReport, ...] = (),
    duration_s: float | None = None,
    vehicle: str | None = None,
) -> Outcome:
    result: dict[str, Any] = {
        **({} if vehicle is None else {"vehicle": vehicle}),
        "name": mission.name,
        "legs": len(mission.legs),
        "completed": completed,
        "duration_s": duration_s,
        "reports": msgspec.to_builtins(reports),
        **({} if estimate is None else {"estimate": msgspec.to_builtins(estimate)}),
    }
    task = "mission" if vehicle is None else "dispatch"
    return Outcome(id=None, task=task, state=state, result=result, reason=reason)


_TEMPLATE = """\
# Metres north and east of the pad, heights above it, degrees clockwise from north, seconds.
# Check it: ground mission check FILE --airframe twin
name = "NAME"
description = "Take off, fly to a place, look, come back and land."
ceiling_m = 10.0 # no leg may be higher
# floor_m = 1.0  # nor lower

# Where it may fly; the pad must be inside. With exclude = true the ship must stay outside.
[[geofence]]
polygon = [[-10, -10], [20, -10], [20, 20], [-10, 20]]
# [[geofence]]
# circle = [12, 12, 2] # north, east, radius
# exclude = true

# A place to return to, if it is nearer than the pad.
# [[rally]]
# north_m = 10.0
# east_m = 10.0
# altitude_m = 3.0

[[leg]]
do = "arm"

[[leg]]
do = "takeoff"
altitude_m = 3.0

[[leg]]
do = "goto"
north_m = 8.0
east_m = 0.0
altitude_m = 3.0
speed_mps = 0.4  # optional, like the next two
yaw_deg = 90.0
loiter_s = 10.0

# Others: yaw (deg), hold (seconds), velocity (north_mps, east_mps, up_mps, seconds),
# payload (name or channel, deg or pulse_us), return, land, disarm.
[[leg]]
do = "return"

[[leg]]
do = "land"
"""
