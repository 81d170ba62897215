"""`ground dispatch`: a mission flown by a ship that is free, or by a certain one."""

import typer

from blimp.tasks.client import user_name
from ground_station.fleet import Fleet
from ground_station.mission_command import check, confirmed, fly, summarise
from ground_station.plain import Ship
from ground_station.session import Session
from ground_station.watch import terminate_as_interrupt


def dispatch(
    session: Session, file: str, *, any_ship: bool, wait_s: float, pilot: str | None
) -> int:
    """Fly a mission file on a ship that nobody else has, and return the exit status."""
    if any_ship == (session.options.vehicle is not None):
        raise typer.BadParameter("say --any for a free ship, or --vehicle NAME for a certain one")
    mission = confirmed(session, file)
    name = pilot or user_name()
    broker = session.find_broker() if any_ship else session.ship.broker
    if session.options.dry_run:
        which = "a free ship" if any_ship else session.ship.vehicle
        session.report.say(f"dry run with {which}: nothing is taken, nothing is sent")
        return check(session, file)
    with Fleet(broker=broker, session=session) as fleet, terminate_as_interrupt():
        taking = (
            fleet.any_ship(pilot=name, wait_s=wait_s)
            if any_ship
            else fleet.one_ship(session.ship.vehicle, pilot=name, wait_s=wait_s)
        )
        with taking as taken, Ship.of(session.of(taken.ship), grant=taken.grant) as ship:
            session.report.say(f"{taken.ship.vehicle} is taken by {name}")
            mission, result = fly(session, file, mission, ship=ship)
    return summarise(session, mission, result, vehicle=taken.ship.vehicle)
