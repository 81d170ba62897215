"""`ground param`: the numbers of the airframe that a ship flies, wherever it runs."""

import msgspec

from blimp.airframe import Airframe
from blimp.errors import ConfigError, LinkError, NotAuthorised, TaskError
from blimp.parameters import Parameter, find, parameters
from ground_station.discover import check_known
from ground_station.report import DONE, Outcome
from ground_station.session import SILENT_S, Session

TASK = "blimp.param"
WITHIN_S = 5.0


def show(session: Session, name: str | None) -> int:
    """Print one parameter, or all of them, and return the exit status."""
    found = shown(session, name)
    if session.report.as_json:
        result = {"parameters": found}
        session.report.json(Outcome(id=None, task=TASK, state="SUCCESS", result=result))
    else:
        for one in found:
            session.report.data(_line(one))
    return DONE


def shown(session: Session, name: str | None) -> list[Parameter]:
    """Return one parameter, or all of them. Raises BlimpError, with the reason."""
    airframe = flown_airframe(session)
    try:
        return list(parameters(airframe)) if name is None else [find(airframe, name)]
    except ValueError as error:
        raise ConfigError(str(error)) from None


def flown_airframe(session: Session) -> Airframe:
    """Ask the ship for the airframe that it flies. Raises BlimpError, with the reason."""
    within_s = session.timeout_s(WITHIN_S)
    with session.client() as client, client.send("airframe", ttl_s=within_s) as pending:
        reply = pending.wait(min(SILENT_S, within_s))
        if reply.state == "TIMEOUT":
            check_known(session.ship, some=True)
            reply = pending.wait(max(0.0, within_s - SILENT_S))
        if reply.state == "TIMEOUT":
            raise LinkError(f"{session.ship.vehicle} does not answer within {within_s:g} s")
        if reply.state != "SUCCESS":
            error = NotAuthorised if reply.kind == NotAuthorised.__name__ else TaskError
            raise error(f"{session.ship.vehicle}: {reply.reason}")
        client.forget(pending.id)
    try:
        return msgspec.convert(reply.result, Airframe)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"the airframe of {session.ship.vehicle} is one of another version of blimp: {error}"
        ) from None


def _line(one: Parameter) -> str:
    return f"{one.path:36} {one.value:<12g} {one.unit:6} {one.limits}".rstrip()
