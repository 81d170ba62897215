"""What carries an action out for every face: its question, its sending, its end in words."""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blimp.actions import ACTIONS, Action
from blimp.errors import BlimpError, ConfigError
from blimp.tasks.reply import Reply
from ground_station.discover import check_known
from ground_station.following import AIRFRAME_S, CommandListener
from ground_station.plain import Ship
from ground_station.report import DONE, Outcome, ProgressLine, exit_status, outcome_of, reply_status
from ground_station.session import FOR_EVERYBODY, Session
from ground_station.trajectory import AHEAD_S, chunks, read_curve

if TYPE_CHECKING:
    from blimp.parameters import Parameter


def act(session: Session, action: Action, arguments: dict[str, Any]) -> int:
    """Ask if this action asks, send it, print its progress, and return the exit status."""
    ask_before(session, action, arguments)
    return command(session, action.name, arguments)


def ask_before(session: Session, action: Action, arguments: dict[str, Any]) -> None:
    """Raise NotConfirmed unless the person, or --yes of a program, agrees to an action."""
    if action.insists and arguments.get("force"):
        session.confirm(action.insists, programs_too=True)
    elif action.asks:
        session.confirm(action.asks.format(**arguments))


def command(session: Session, name: str, arguments: dict[str, Any]) -> int:
    """Send one command, print its progress, and return the exit status."""
    if session.options.dry_run:
        found = session.dry_run(name, arguments)
        session.report.say(f"dry run: {found.task} to {session.ship.vehicle}, nothing is sent")
        return session.report.outcome(found)
    if not session.options.wait:
        return _send(session, name, arguments)
    line = ProgressLine(report=session.report, what=name)
    try:
        with Ship.of(session) as ship:
            reply = perform(session, ship, name, arguments, line=line)
    except BlimpError:
        session.report.end_line()  # the error gets a line of its own
        raise
    return ended(session, reply, line)


def perform(
    session: Session,
    ship: Ship,
    name: str,
    arguments: dict[str, Any],
    *,
    line: ProgressLine | None = None,
) -> Reply:
    """Send one command and return its outcome."""
    timeout_s = _timeout_s(session, name, arguments)
    heard = Performed(session, name, line)
    try:
        return ship.command(name, arguments, timeout_s=timeout_s, listener=heard)
    except KeyboardInterrupt:
        reason = "stopped waiting; it may still be under way"
        reason += f": ask with 'ground result {heard.id}'" if heard.id else ""
        return Reply(id=heard.id, task=f"blimp.{name}", state="TIMEOUT", reason=reason)


class Performed(CommandListener):
    """A command as a person follows it. line: prints its steps."""

    def __init__(self, session: Session, name: str, line: ProgressLine | None = None) -> None:
        self._session = session
        self._name = name
        self._line = line
        self.id = ""

    def sent(self, id: str) -> None:
        self.id = id

    def progress(self, stage: str, fraction: float | None) -> None:
        if self._line is not None:
            self._line(stage, fraction)

    def outage(self, reason: str) -> None:
        self.progress(f"waiting for the link ({reason})", None)

    def silent(self) -> None:
        # After its time to live the command cannot act any more; a question never moves the ship.
        check_known(self._session.ship, some=self._name in FOR_EVERYBODY)


def fly_trajectory(session: Session, file: Path) -> int:
    """Send a trajectory file to the ship, ahead of it, and follow it to its end."""
    if not session.options.wait:
        raise ConfigError(
            "--no-wait: this program sends the path during the flight, so it must run to the end"
        )
    curve = read_curve(file)
    points = curve.points()
    parts = chunks(f"{file.stem[:24]}-{uuid.uuid4().hex[:8]}", points)
    session.confirm(f"{file.name}: {curve.duration_s:.0f} s, {len(points)} points. Fly it?")
    if session.options.dry_run:
        return command(session, "trajectory", parts[0])
    session.check_there()
    line = ProgressLine(report=session.report, what="trajectory")
    with Ship.of(session) as ship:
        began_s = session.clock.now_s()
        for part in parts[:-1]:
            session.clock.sleep_until(began_s + part["points"][0][0] - AHEAD_S)
            status = _send_chunk(session, ship, part, line)
            if status is not None:
                return status
        return _send_chunk(session, ship, parts[-1], line, end=True) or 0


def _send_chunk(
    session: Session,
    ship: Ship,
    part: dict[str, Any],
    line: ProgressLine,
    *,
    end: bool = False,
) -> int | None:
    """Send one chunk; return the exit status at the end, or if the ship did not take it."""
    own_s = ACTIONS["trajectory"].timeout_s(part)
    timeout_s = session.timeout_s(own_s) if end else own_s
    heard = Performed(session, "trajectory", line if end else None)
    reply = ship.command("trajectory", part, timeout_s=timeout_s, listener=heard)
    if not end and exit_status(reply.state) == 0:
        return None
    return ended(session, reply, line)


def ended(session: Session, reply: Reply, line: ProgressLine) -> int:
    """Print how a command ended and return the exit status."""
    line.end(state=reply.state, reason=reply.reason, latency_ms=reply.latency_ms)
    session.report.outcome(outcome_of(reply))
    return reply_status(reply)


def _send(session: Session, name: str, arguments: dict[str, Any]) -> int:
    """Send one command, print its id, and wait for nothing."""
    session.check_there()
    with Ship.of(session) as ship:
        id = ship.send(name, arguments, timeout_s=_timeout_s(session, name, arguments))
    if not session.report.as_json:
        session.report.data(id)
    else:
        session.report.json(Outcome(id=id, task=f"blimp.{name}", state="PENDING"))
    return DONE


def _timeout_s(session: Session, name: str, arguments: dict[str, Any]) -> float:
    return session.timeout_s(ACTIONS[name].timeout_s(arguments))


def show_parameters(session: Session, name: str | None) -> int:
    """Print one parameter, or all of them, and return the exit status."""
    with Ship.of(session) as ship:
        found = parameters_of(session, ship, name)
    if session.report.as_json:
        result = {"parameters": found}
        session.report.json(Outcome(id=None, task="blimp.param", state="SUCCESS", result=result))
    else:
        for one in found:
            session.report.data(_parameter_line(one))
    return DONE


def parameters_of(session: Session, ship: Ship, name: str | None) -> "list[Parameter]":
    """Return one parameter, or all of them. Raises BlimpError, with the reason."""
    from blimp.parameters import find, parameters

    airframe = ship.airframe(timeout_s=session.timeout_s(AIRFRAME_S))
    try:
        return list(parameters(airframe)) if name is None else [find(airframe, name)]
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _parameter_line(one: "Parameter") -> str:
    return f"{one.path:36} {one.value:<12g} {one.unit:6} {one.limits}".rstrip()
