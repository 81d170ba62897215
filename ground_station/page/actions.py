"""Commands from the page: JSON is checked by the table of actions, and goes to the ship."""

from collections.abc import Callable
from typing import Any

import msgspec

from blimp.actions import ACTIONS
from blimp.errors import BlimpError, LinkError
from blimp.suggest import suggestion
from ground_station.perform import ask_before, parameters_of, perform
from ground_station.plain import Ship
from ground_station.report import (
    DONE,
    USAGE,
    Outcome,
    exit_status,
    outcome_of,
    reply_status,
    status_object,
)
from ground_station.session import Session, status_of

_ROWS = {name for name, action in ACTIONS.items() if action.http is None}
NAMES = tuple(sorted({*_ROWS, "status", "result"}))


def run_action(
    session: Session, open_ship: Callable[[], Ship], name: str, arguments: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Run one of NAMES; return the exit status and the object of `ground --json NAME`."""
    try:
        status, found = _run(session, open_ship, name, arguments)
    except ValueError as error:
        status, found = USAGE, _failed(name, str(error))
    except BlimpError as error:
        status, found = status_of(error), _failed(name, str(error))
    document: dict[str, Any] = msgspec.to_builtins(found)
    return status, document


def _run(
    session: Session, open_ship: Callable[[], Ship], name: str, arguments: dict[str, Any]
) -> tuple[int, Any]:
    if name == "status":
        if arguments:
            raise ValueError(f"status has no argument {next(iter(arguments))[:40]!r}; it has none")
        return DONE, _status(session)
    if name == "result":
        return _result(open_ship(), arguments)
    if name == "param" and arguments.get("value") is None:
        wanted = arguments.get("name")
        text = "" if wanted is None else wanted
        ACTIONS[name].checked({**arguments, "name": text, "value": 0.0})
        found = parameters_of(session, open_ship(), wanted)
        result = {"parameters": found}
        return DONE, Outcome(id=None, task="blimp.param", state="SUCCESS", result=result)
    action = ACTIONS[name]
    sent = action.checked(arguments)
    ask_before(session, action, sent)
    if session.options.dry_run:
        return DONE, session.dry_run(name, sent)
    reply = perform(session, open_ship(), name, sent)
    return reply_status(reply), outcome_of(reply)


def _status(session: Session) -> dict[str, Any]:
    with session.telemetry() as reader:
        found = reader.latest()
    if found is None:
        raise LinkError(f"no snapshot of {session.ship.vehicle!r} on its broker")
    return status_object(*found)


def _result(ship: Ship, arguments: dict[str, Any]) -> tuple[int, Outcome]:
    id = arguments.get("id")
    if not isinstance(id, str) or len(arguments) != 1:
        raise ValueError("result needs one argument, id: the command's id, a text")
    reply = ship.result(id)
    return exit_status(reply.state), outcome_of(reply)


def no_action(name: str) -> str:
    """Say that the page runs no such command, and which it does."""
    return f"no command {name[:40]!r} here{suggestion(name, NAMES)}; there are {', '.join(NAMES)}"


def _failed(name: str, reason: str) -> Outcome:
    return Outcome(id=None, task=f"blimp.{name}"[:80], state="FAILURE", reason=reason)
