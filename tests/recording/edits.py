"""Changes to a recorded flight, each of which breaches a policy."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from blimp.recording.flight_data import FlightData, Span, Table
from blimp.types import Command, Outcome, OutcomeState

Edit = Callable[[FlightData], FlightData]
DONE, REFUSED, UNDER_WAY = OutcomeState.DONE, OutcomeState.REFUSED, OutcomeState.IN_PROGRESS
FLIES_S = 9.0  # the ship is in the air then


def with_field(flight: FlightData, name: str, value: Any) -> FlightData:
    changed: dict[str, Any] = {name: value}
    return flight._replace(**changed)


def put(table: str, name: str, value: Any, at_s: float = FLIES_S, for_s: float = 1e-9) -> Edit:
    """Return an edit that sets a column from a time on, for one value at the least."""

    def edit(flight: FlightData) -> FlightData:
        found: Table = getattr(flight, table)
        values = np.array(found[name])
        first = int(np.searchsorted(found.t_s, at_s))
        last = max(first + 1, int(np.searchsorted(found.t_s, at_s + for_s)))
        values[first:last] = value
        return with_field(flight, table, Table(found.t_s, found.columns | {name: values}))

    return edit


def several(*edits: Edit) -> Edit:
    def edit(flight: FlightData) -> FlightData:
        for one in edits:
            flight = one(flight)
        return flight

    return edit


def mail(*messages: Command | Outcome, at_s: float = FLIES_S, every_s: float = 0.0) -> Edit:
    """Return an edit that adds messages at a time."""

    def edit(flight: FlightData) -> FlightData:
        added = [(at_s + every_s * n, one) for n, one in enumerate(messages)]
        whole = sorted([*flight.mail, *added], key=lambda pair: pair[0])
        return flight._replace(mail=tuple(whole))

    return edit


def asked(name: str, state: OutcomeState = DONE, **fields: Any) -> tuple[Command, Outcome]:
    """Return a command and its outcome. fields: of both."""
    given = {"id": "added", "reason": "because", "arguments": {}, **fields}
    of_command = {k: v for k, v in given.items() if k in Command.__struct_fields__}
    of_outcome = {k: v for k, v in given.items() if k in Outcome.__struct_fields__}
    of_outcome.pop("boot_id", None)
    return Command(name=name, **of_command), Outcome(state=state, **of_outcome)


def with_span(field: str, name: str, from_s: float, for_s: float) -> Edit:
    """Return an edit that adds a failsafe, or a mode that another one goes on after."""

    def edit(flight: FlightData) -> FlightData:
        before = [one for one in getattr(flight, field) if one.from_s < from_s]
        after = [one for one in getattr(flight, field) if one.from_s >= from_s + for_s]
        added = [Span(from_s, from_s + for_s, name)]
        if field == "modes" and before:
            added.append(Span(from_s + for_s, from_s + for_s, before[-1].name))
        return with_field(flight, field, [*before, *added, *after])

    return edit


def silent(words: str) -> Edit:
    """Return an edit that takes what was said and begins so."""
    return lambda flight: flight._replace(
        said=tuple(one for one in flight.said if not one[1].startswith(words))
    )


def says(text: str, at_s: float = FLIES_S) -> Edit:
    return lambda flight: flight._replace(said=tuple(sorted([*flight.said, (at_s, text)])))


def moment(name: str, way: int) -> Callable[[FlightData], float]:
    """Return when a flag of the cycles first rises (1) or falls (-1)."""

    def at(flight: FlightData) -> float:
        found = np.flatnonzero(np.diff(flight.cycles[name]) == way)
        return float(flight.cycles.t_s[found[0] + 1])

    return at


def then(find: Callable[[FlightData], float], make: Callable[[float], Edit]) -> Edit:
    """Return an edit at a time that depends on the flight."""
    return lambda flight: make(find(flight))(flight)


def cut(from_s: float, for_s: float, table: str = "cycles") -> Edit:
    """Return an edit that leaves out the rows of a time."""

    def edit(flight: FlightData) -> FlightData:
        found: Table = getattr(flight, table)
        kept = (found.t_s < from_s) | (found.t_s >= from_s + for_s)
        columns = {name: values[kept] for name, values in found.columns.items()}
        return with_field(flight, table, Table(found.t_s[kept], columns))

    return edit


def numbered(flight: FlightData) -> FlightData:
    numbers = np.arange(len(flight.cycles.t_s), dtype=float)
    return flight._replace(
        cycles=Table(flight.cycles.t_s, flight.cycles.columns | {"number": numbers})
    )


def no_mail(name: str) -> Edit:
    """Return an edit that takes a command and its outcomes out of the log."""

    def edit(flight: FlightData) -> FlightData:
        ids = {one.id for _, one in flight.mail if isinstance(one, Command) and one.name == name}
        return flight._replace(mail=tuple(one for one in flight.mail if one[1].id not in ids))

    return edit


def state_of(id: str, state: OutcomeState, reason: str = "because") -> Edit:
    """Return an edit of every outcome of the command whose id begins so."""

    def edit(flight: FlightData) -> FlightData:
        def changed(one: Command | Outcome) -> Command | Outcome:
            if isinstance(one, Command) or not one.id.startswith(id):
                return one
            return msgspec.structs.replace(one, state=state, reason=reason)

        return flight._replace(mail=tuple((t_s, changed(one)) for t_s, one in flight.mail))

    return edit


def no_reverse(flight: FlightData) -> FlightData:
    ship = dict(flight.session.airframe)
    ship["thruster"] = [{**one, "reverse_thrust_n": 0.0} for one in ship["thruster"]]
    return flight._replace(session=msgspec.structs.replace(flight.session, airframe=ship))


def backwards(flight: FlightData) -> FlightData:
    t_s = np.array(flight.cycles.t_s)
    t_s[500] = t_s[499]
    return flight._replace(cycles=Table(t_s, flight.cycles.columns))


ARMS = moment("armed", 1)
LOST = "position lost: holding height and heading"
AT = FLIES_S
