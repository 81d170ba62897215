"""A flight as its policies ask about it: columns, modes, commands and words at each cycle."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

from blimp.airframe import Airframe, from_table
from blimp.distribution import needing
from blimp.recording.flight_data import FlightData, Table
from blimp.recording.temporal import Formula, Number, Places, Values, flag, pulses
from blimp.types import Command, Outcome, OutcomeState

with needing("plot", "policies need"):
    import numpy as np

# How bad what a failsafe does is, by the words in which it is said; as blimp/control/failsafe.py.
SEVERITY = {
    "holding": 1,
    "returning": 2,
    "landing": 3,
    "stays there": 3,
    "descent": 4,
    "until an arm": 5,
}
HOLD, RETURN, LAND, DESCEND, IDLE = range(1, 6)
_STILL = 1e-3  # of a throttle: a log has 4 digits


class Trace:
    """The columns of a flight on the times of its cycles. world: the truth of a simulation."""

    def __init__(self, flight: FlightData, world: Table | None = None) -> None:
        self.flight, self.t_s = flight, flight.cycles.t_s
        self.world = world or Table(np.empty(0), {})
        self._tables = {"status": flight.status, "truth": flight.truth, "world": self.world}
        self._places: dict[str, Places] = {}

    @cached_property
    def ship(self) -> Airframe:
        return from_table(self.flight.session.airframe)

    @cached_property
    def motors(self) -> Values:
        """The throttles, a column a thruster."""
        return self._columns(self.ship.thruster_names)

    @cached_property
    def servos(self) -> Values:
        return self._columns(self.ship.servo_names)

    def _columns(self, names: Iterable[str]) -> Values:
        columns = [self.flight.cycles[f"out_{name}"] for name in names]
        return np.column_stack(columns) if columns else np.zeros((len(self.t_s), 0))

    def held(self, table: str, name: str) -> Values:
        """Return a column of what comes more seldom than cycles: as it last was, NaN before."""
        of = self._tables[table]
        if name not in of.columns or not len(of.t_s):
            return np.full(len(self.t_s), np.nan)
        if table not in self._places:
            self._places[table] = np.searchsorted(of.t_s, self.t_s + 1e-6, side="right") - 1
        places = self._places[table]
        return np.where(places < 0, np.nan, of[name][np.maximum(places, 0)])

    def spans(self, changes: Iterable[tuple[float, float]]) -> Values:
        """Return the value that holds at each cycle, of times and values in their order."""
        found = np.full(len(self.t_s), np.nan)
        for at_s, value in changes:
            found[np.searchsorted(self.t_s, at_s - 1e-6) :] = value
        return found

    @cached_property
    def severity(self) -> Values:
        """How bad the action of the failsafe is that is shown, 0 to 5."""
        changes = [(self.t_s[0], 0.0)]
        for span in self.flight.failsafes:
            of = [bad for words, bad in SEVERITY.items() if words in span.name]
            changes += [(span.from_s, float(max(of, default=0))), (span.to_s, 0.0)]
        if self.flight.failsafes and not self.flight.failsafes[-1].is_over:
            changes.pop()
        return self.spans(changes)

    @cached_property
    def answers(self) -> list[tuple[float, Command, float, Outcome | None]]:
        """Each command with the outcome that answered it at once, and both times."""
        found: list[tuple[float, Command, float, Outcome | None]] = []
        waiting: dict[str, list[int]] = {}
        for t_s, message in self.flight.mail:
            if isinstance(message, Command):
                waiting.setdefault(message.id, []).append(len(found))
                found.append((t_s, message, t_s, None))
            elif waiting.get(message.id):
                place = waiting[message.id].pop(0)
                found[place] = (*found[place][:2], t_s, message)
        return found

    def taken(self, names: Iterable[str] = (), *, refused: bool = False) -> Iterator[float]:
        """Yield the times at which commands of these names were accepted, or refused."""
        for _, command, t_s, outcome in self.answers:
            if outcome is None or (names and command.name not in names):
                continue
            if (outcome.state is OutcomeState.REFUSED) is refused:
                yield t_s

    @cached_property
    def ends(self) -> list[tuple[float, Command, Outcome]]:
        """The commands that were done, and when."""
        known: dict[str, Command] = {}
        found = []
        for t_s, message in self.flight.mail:
            if isinstance(message, Command):
                known.setdefault(message.id, message)
            elif message.state is OutcomeState.DONE and message.id in known:
                found.append((t_s, known.pop(message.id), message))
        return found

    def judged(self, found: Iterable[tuple[float, float]]) -> Values:
        """Return margins that are 1 but at these times; the least of those that share a cycle."""
        margins = np.ones(len(self.t_s))
        for t_s, margin in found:
            place = min(int(np.searchsorted(self.t_s, t_s - 1e-6)), len(margins) - 1)
            margins[place] = min(margins[place], margin)
        return margins


# --- words of the formulas ------------------------------------------------------------------


def column(name: str, *, scale: float = 1.0, of: str = "") -> Number:
    """Return a column of the cycles, or `of` status, truth or world."""
    if of:
        return Number(name, lambda trace: trace.held(of, name), scale)
    return Number(name, lambda trace: trace.flight.cycles[name], scale)


def state(name: str, *, of: str = "") -> Formula:
    """Return a column that is a flag."""
    return flag(name, column(name, of=of).values)


def limit(text: str, get: Callable[[Airframe], float], factor: float = 1.0) -> Number:
    """Return a number of the airframe."""
    shown = text if factor == 1.0 else f"{factor:g} {text}"
    return Number(shown, lambda trace: np.full(len(trace.t_s), factor * get(trace.ship)))


def computed(text: str, get: Callable[[Trace], Any], *, scale: float = 1.0) -> Number:
    return Number(text, get, scale)


def mode(*names: str) -> Formula:
    def at(trace: Trace) -> Values:
        return trace.spans((span.from_s, span.name in names) for span in trace.flight.modes)

    return flag(f"mode is {' or '.join(names)}", at)


def action(least: int) -> Formula:
    words = ("HOLD", "RETURN", "LAND", "DESCEND", "IDLE")
    return flag(f"failsafe >= {words[least - 1]}", lambda trace: trace.severity >= least)


def accepted(*names: str) -> Formula:
    shown = " or ".join(names) or "a command"
    return flag(f"{shown} accepted", lambda trace: pulses(trace, list(trace.taken(names))))


def refused(*names: str) -> Formula:
    return flag(
        f"{' or '.join(names)} refused",
        lambda trace: pulses(trace, list(trace.taken(names, refused=True))),
    )


def said(pattern: str) -> Formula:
    """Return the moments at which the ship began to say what begins so; a regular expression."""

    def at(trace: Trace) -> Values:
        return pulses(trace, [t for t, text in trace.flight.said if re.match(pattern, text)])

    return flag(f'said "{pattern}"', at)


def shown(words: str) -> Formula:
    """Return whether what is said to be wrong now has these words."""

    def at(trace: Trace) -> Values:
        changes = [(trace.t_s[0], 0.0)]
        for span in trace.flight.failsafes:
            changes += [(span.from_s, float(words in span.name)), (span.to_s, 0.0)]
        return trace.spans(changes)

    return flag(f'shown "{words}"', at)


def each(text: str, judge: Callable[[Trace], Iterable[tuple[float, float]]]) -> Formula:
    """Return what must hold of each event: its time, and 1, -1 or a margin."""
    return Formula(text, lambda trace: trace.judged(judge(trace)))


def turning(trace: Trace) -> Values:
    found: Values = (np.abs(trace.motors) > _STILL).any(axis=1).astype(float)
    return found


DRIVEN = flag("a motor is driven", turning)
ARMED = state("armed")
ON_GROUND = state("on_ground")
KILLED = state("killed", of="status")
BENCH = flag("on the bench", lambda trace: np.full(len(trace.t_s), trace.flight.session.bench))
BOOTED = flag(
    "another flight process runs",
    lambda trace: pulses(trace, [t_s for t_s, _ in trace.flight.boots[1:]]),
)
BY_TRANSMITTER = flag(
    "a transmitter can command",
    lambda trace: np.full(
        len(trace.t_s), any(one.chip in ("crsf", "sbus") for one in trace.ship.device)
    ),
)
MODE_CHANGED = flag(
    "the mode changes",
    lambda trace: pulses(trace, [span.from_s for span in trace.flight.modes[1:]]),
)
DONE = flag("a command is done", lambda trace: pulses(trace, [t_s for t_s, _, _ in trace.ends]))
