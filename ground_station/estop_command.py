"""`ground estop`: the ship that is named, or every ship of this machine and of the broker."""

from threading import Lock
from typing import Any

from blimp.errors import BlimpError
from blimp.web.outcome import Outcome
from ground_station import report
from ground_station.discover import ShipAddress, check_known
from ground_station.every_ship import EveryShip
from ground_station.session import ALL_ROADS_S, Session
from ground_station.stops import TASK, Stops


def estop(session: Session) -> int:
    """Stop, print how each ship's stop ended, and return the exit status."""
    say = session.report.say

    def say_why(ship: ShipAddress, answers: bool) -> None:
        if not answers:
            say(f"ground: {ship.vehicle}: no answer yet: the stop is on its way, and is repeated")
            return
        try:
            check_known(ship)
        except BlimpError as error:  # it may be there and send no telemetry: the stop goes on
            say(f"ground: {error}")

    ship = session.ship_to_stop if session.names_a_ship else None
    broker = ship.broker if ship else session.configured_broker
    with EveryShip(session, broker=broker, on_silence=say_why, hear_all_s=ALL_ROADS_S) as ships:
        if session.options.dry_run:
            return _say_whom(session, ships)
        said = _Said(session.report)
        if ship is not None:
            outcome = ships.stop(ship.vehicle)
            said(ship.vehicle, outcome)
            return session.report.outcome(outcome)
        with Stops(ships) as stops:
            return _ended(session, stops.press_all(on_end=said).result())


def _ended(session: Session, found: dict[str, Any]) -> int:
    if session.report.as_json:
        session.report.json(found)
    if found["state"] == "SUCCESS":
        return report.DONE
    session.report.say(f"ground: {found['reason']}")
    return report.NOT_CONFIRMED


class _Said:
    """Prints each ship's line as soon as its stop has ended. Thread-safe."""

    def __init__(self, to: report.Report) -> None:
        self._report = to
        self._lock = Lock()

    def __call__(self, vehicle: str, outcome: Outcome) -> None:
        with self._lock:
            line = report.ProgressLine(report=self._report, what=f"{vehicle}: estop")
            line.end(state=outcome.state, reason=outcome.reason, latency_ms=outcome.latency_ms)
            roads_ms = outcome.result["roads_ms"] if outcome.state == "SUCCESS" else {}
            if roads_ms and not self._report.as_json:
                roads = sorted(roads_ms.items(), key=lambda road: float(road[1]))
                words = ", ".join(f"{name} {ms:.0f} ms" for name, ms in roads)
                self._report.say(f"ground: {vehicle}: by {words}")


def _say_whom(session: Session, ships: EveryShip) -> int:
    """Print whom a stop would be sent to."""
    if session.names_a_ship:
        found = session.dry_run("estop", {})
        names = {session.ship.vehicle}
    else:
        names = {name for find in ships.finders() for name in find()}
        result = {"dry_run": True, "vehicles": sorted(names)}
        found = Outcome(id=None, task=TASK, state="SUCCESS", result=result)
    session.report.say(f"dry run: {found.task} to {', '.join(sorted(names))}, nothing is sent")
    return session.report.outcome(found)
