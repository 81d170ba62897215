"""`ground control take`, `release` and `who`."""

from collections.abc import Mapping

from blimp.errors import NotAuthorised
from blimp.queue.resources import Holding
from blimp.tasks.authority import held_by, pilot_of
from blimp.tasks.client import user_name
from ground_station.control import Control
from ground_station.report import Outcome
from ground_station.session import Session

TASK = "control"


def take(session: Session, *, pilot: str | None, ttl_s: float, wait_s: float, force: bool) -> int:
    """Take control of the ship, or renew it, and return the exit status."""
    name = pilot or user_name()
    vehicle = session.ship.vehicle
    session.check_there()
    with session.control() as control:
        if force:
            _take_away(session, control, pilot)
        if session.options.dry_run:
            if not force:
                _check_free(control, vehicle, pilot)
            session.report.say(f"dry run: {name} would take control of {vehicle}")
            return _done(session, {"dry_run": True, "vehicle": vehicle, "pilot": name})
        grant = control.take(pilot, ttl_s=ttl_s, wait_s=wait_s)
        with session.heartbeat(grant):  # the pilot before is not missed any more
            pass
    mine = pilot_of(grant.holder)
    if not session.report.as_json:
        session.report.data(
            f"{mine} holds control of {vehicle}, for {ttl_s:g} s after each command"
        )
    return _done(session, {"vehicle": vehicle, "pilot": mine, "for_s": ttl_s})


def release(session: Session) -> int:
    """Give control back and return the exit status."""
    vehicle = session.ship.vehicle
    with session.control() as control:
        if session.options.dry_run:
            session.report.say(f"dry run: control of {vehicle} would be given back")
            return _done(session, {"dry_run": True, "vehicle": vehicle})
        released = control.release()
        if released:
            with session.heartbeat(None):  # this pilot is not missed any more
                pass
    if not session.report.as_json:
        done = "given back" if released else "held by nobody"
        session.report.data(f"control of {vehicle} is {done}: everybody commands it")
    return _done(session, {"vehicle": vehicle, "released": released})


def who(session: Session) -> int:
    """Print who holds control and return the exit status."""
    vehicle = session.ship.vehicle
    with session.control() as control:
        holding = control.who()
        is_mine = control.is_mine(holding)
    if holding is None:
        words = f"nobody holds control of {vehicle}: everybody commands it"
    else:
        words = (
            f"{pilot_of(holding.holder)}{' (you)' if is_mine else ''} has had control of {vehicle} "
            f"for {holding.held_s:.0f} s; it ends in {holding.left_s:.0f} s unless it is renewed"
        )
    if not session.report.as_json:
        session.report.data(words)
    answer = {
        "vehicle": vehicle,
        "pilot": None if holding is None else pilot_of(holding.holder),
        "yours": is_mine,
        "held_s": None if holding is None else holding.held_s,
        "left_s": None if holding is None else holding.left_s,
    }
    return _done(session, answer)


def _take_away(session: Session, control: Control, pilot: str | None) -> None:
    """Ask whether to, and end another pilot's control."""
    holding = _held_by_another(control, pilot)
    if holding is None:
        return
    holder, vehicle = pilot_of(holding.holder), session.ship.vehicle
    session.confirm(f"{holder} holds control of {vehicle}. Take it away?", programs_too=True)
    if not session.options.dry_run:
        control.take_away()


def _check_free(control: Control, vehicle: str, pilot: str | None) -> None:
    """Raise NotAuthorised if another pilot holds control."""
    holding = _held_by_another(control, pilot)
    if holding is not None:
        raise NotAuthorised(held_by(vehicle, holding.holder, holding.left_s))


def _held_by_another(control: Control, pilot: str | None) -> Holding | None:
    """Return who holds control, None for nobody and for this user by the name `pilot`."""
    holding = control.who()
    if holding is None or not control.is_mine(holding):
        return holding
    return None if pilot in (None, pilot_of(holding.holder)) else holding


def _done(session: Session, result: Mapping[str, object]) -> int:
    if session.report.as_json:
        return session.report.outcome(Outcome(id=None, task=TASK, state="SUCCESS", result=result))
    return 0
