"""`ground mission run` and `ground mission check`."""

from typing import Any

import msgspec

from ground_station.mission import LegReport, MissionEvent, MissionRunner
from ground_station.mission_file import Mission, load_mission
from ground_station.report import DONE, Outcome
from ground_station.session import Session

# What a hall or a field in sight holds; farther, somebody must have meant it.
FAR_M = 100.0
HIGH_M = 30.0


def check(session: Session, file: str) -> int:
    """Tell what a mission file holds. Raises MissionError where it cannot be flown."""
    mission = load_mission(file)
    if session.report.as_json:
        session.report.json(_outcome(mission, state="SUCCESS", completed=0))
    else:
        session.report.data(_summary(mission))
    return DONE


def run(session: Session, file: str) -> int:
    """Fly a mission file and return the exit status."""
    mission = load_mission(file)
    distance_m, altitude_m = mission.reach_m()
    far = distance_m > FAR_M or altitude_m > HIGH_M
    session.confirm(f"{_summary(mission)}. Fly it?", programs_too=far)
    if session.options.dry_run:
        session.report.say(f"dry run: {_summary(mission)}, nothing is sent")
        return session.report.outcome(_outcome(mission, state="SUCCESS", completed=0))
    with session.client() as client:
        result = MissionRunner(
            client=client,
            mission=mission,
            clock=session.clock,
            on_event=lambda event: _tell(session, event),
        ).run()
    if not session.report.as_json:
        state = "flown" if result.ok else f"{result.state.lower()}: {result.reason}"
        session.report.say(
            f"{mission.name}: {state} ({result.completed} of {result.legs} legs, "
            f"{result.duration_s:.0f} s)"
        )
    return session.report.outcome(
        _outcome(
            mission,
            state=result.state,
            reason=result.reason,
            completed=result.completed,
            reports=result.reports,
            duration_s=result.duration_s,
        )
    )


def event_words(event: MissionEvent) -> str:
    """Return one line about a step of a mission."""
    how = event.stage
    if event.stage == "executing" and event.fraction is not None:
        how = f"executing {100.0 * event.fraction:.0f} %"
    elif event.stage == "SUCCESS":
        how = "done"
    elif event.stage == "again":
        how = "sent again"
    why = f": {event.reason}" if event.reason else ""
    return f"leg {event.leg} of {event.legs}  {event.words}  {how}{why}"


def _tell(session: Session, event: MissionEvent) -> None:
    if session.report.as_json:
        return
    if event.stage in ("started", "received", "executing"):
        session.report.progress(event_words(event))
    else:
        session.report.progress(event_words(event))
        session.report.say("")


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
) -> Outcome:
    result: dict[str, Any] = {
        "name": mission.name,
        "legs": len(mission.legs),
        "completed": completed,
        "duration_s": duration_s,
        "reports": msgspec.to_builtins(reports),
    }
    return Outcome(id=None, task="mission", state=state, result=result, reason=reason)
