"""`ground mission run` and `ground mission check`."""

from typing import Any

import msgspec

from blimp.errors import ConfigError
from ground_station.mission import (
    LegReport,
    MissionClient,
    MissionEvent,
    MissionResult,
    MissionRunner,
)
from ground_station.mission_file import Mission, load_mission
from ground_station.report import (
    DONE,
    NOT_AUTHORISED,
    Outcome,
    ProgressLine,
    Report,
    exit_status,
)
from ground_station.session import Session

# What a hall or a field in sight holds; farther, somebody must have meant it.
FAR_M = 100.0
HIGH_M = 30.0


def check(session: Session, file: str) -> int:
    """Print what a mission file contains. Raises MissionError if it cannot be flown."""
    mission = load_mission(file)
    if session.report.as_json:
        session.report.json(_outcome(mission, state="SUCCESS", completed=0))
    else:
        session.report.data(_summary(mission))
    return DONE


def run(session: Session, file: str) -> int:
    """Fly a mission file and return the exit status."""
    mission = confirmed(session, file)
    if session.options.dry_run:
        session.report.say(f"dry run with {session.ship.vehicle}: nothing is sent")
        return check(session, file)
    session.check_there()
    with session.pilots_client() as client:
        result = fly(session, mission, client=client)
    return summarise(session, mission, result)


def confirmed(session: Session, file: str) -> Mission:
    """Return the mission of `file`, once it may be flown. Raises NotConfirmed."""
    if not session.options.wait:
        raise ConfigError("--no-wait: this program flies the mission, leg by leg: it must stay")
    mission = load_mission(file)
    distance_m, altitude_m = mission.reach_m()
    far = distance_m > FAR_M or altitude_m > HIGH_M
    session.confirm(f"{_summary(mission)}. Fly it?", programs_too=far)
    return mission


def fly(session: Session, mission: Mission, *, client: MissionClient) -> MissionResult:
    """Fly `mission` and report it leg by leg."""
    return MissionRunner(
        client=client,
        mission=mission,
        clock=session.clock,
        timeout_s=session.options.timeout_s,
        on_event=MissionLines(report=session.report),
    ).run()


def summarise(
    session: Session, mission: Mission, result: MissionResult, *, vehicle: str | None = None
) -> int:
    """Tell how a mission went and return the exit status. vehicle: that was dispatched."""
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
    """Tells of a mission as it goes, one line a leg.

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
            self._line(event.stage, event.fraction)
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


def _outcome(
    mission: Mission,
    *,
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
    }
    task = "mission" if vehicle is None else "dispatch"
    return Outcome(id=None, task=task, state=state, result=result, reason=reason)
