"""Temporal logic over a flight: what holds at each moment, and by how much.

A formula gives a margin at each time of a trace: above 0 it holds, below 0 it is breached, and 0 is
not known (nobody measured it, or the log ends before the deadline). So the least margin of a flight
says how near it came to a breach: the robust semantics of Fainekos and Pappas 2009. A margin is
within -1 to 1, and that of a flag is one of the two. Needs numpy, as `flight_data`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from blimp.distribution import needing

with needing("plot", "policies need"):
    import numpy as np
    from numpy.typing import NDArray

Values = NDArray[np.float64]
Places = NDArray[np.intp]
_ROUND_S = 1e-6  # two times that a log has rounded


class Moments(Protocol):
    """What formulas are asked about: anything with a time a moment."""

    @property
    def t_s(self) -> Values: ...


@dataclass(frozen=True)
class Formula:
    """What may hold. text: as a person reads it. margin: from a trace, one value a moment."""

    text: str
    margin: Callable[[Any], Values]

    def __and__(self, other: Formula) -> Formula:
        return Formula(
            f"({self.text} and {other.text})",
            lambda trace: np.minimum(self.margin(trace), other.margin(trace)),
        )

    def __or__(self, other: Formula) -> Formula:
        return Formula(
            f"({self.text} or {other.text})",
            lambda trace: np.maximum(self.margin(trace), other.margin(trace)),
        )

    def __invert__(self) -> Formula:
        return Formula(f"not {self.text}", lambda trace: -self.margin(trace))


@dataclass(frozen=True)
class Number:
    """A quantity at each moment, NaN where it is not known. scale: a margin of 1."""

    text: str
    values: Callable[[Any], Values]
    scale: float = 1.0

    def __le__(self, limit: Number | float) -> Formula:
        return self._compared("<=", limit, -1.0)

    def __ge__(self, limit: Number | float) -> Formula:
        return self._compared(">=", limit, 1.0)

    def __rmul__(self, factor: float) -> Number:
        return Number(
            f"{factor:g} {self.text}", lambda trace: factor * self.values(trace), self.scale
        )

    def _compared(self, sign: str, limit: Number | float, way: float) -> Formula:
        def margin(trace: Any) -> Values:
            other = limit.values(trace) if isinstance(limit, Number) else limit
            off = way * (self.values(trace) - other) / self.scale
            found: Values = np.clip(np.nan_to_num(off, nan=0.0), -1.0, 1.0)
            return found

        shown = limit.text if isinstance(limit, Number) else f"{limit:g}"
        return Formula(f"{self.text} {sign} {shown}", margin)


def flag(text: str, values: Callable[[Any], Any]) -> Formula:
    """Return what is true or false at each moment; NaN is not known."""

    def margin(trace: Any) -> Values:
        found: Values = np.nan_to_num(2.0 * np.asarray(values(trace), float) - 1.0, nan=0.0)
        return found

    return Formula(text, margin)


def implies(cause: Formula, effect: Formula) -> Formula:
    """Where `cause` holds, `effect` does."""
    return Formula(
        f"if {cause.text} then {effect.text}",
        lambda trace: np.maximum(-cause.margin(trace), effect.margin(trace)),
    )


def never(what: Formula) -> Formula:
    return Formula(f"never {what.text}", lambda trace: -what.margin(trace))


def once(what: Formula, within_s: float) -> Formula:
    """It held at some moment of the last `within_s`, now included."""
    return Formula(
        f"once[{within_s:g} s] {what.text}",
        lambda trace: _extreme(what.margin(trace), *_past(trace, within_s), np.maximum),
    )


def lasted(what: Formula, for_s: float) -> Formula:
    """It has held for all of the last `for_s`; false while the trace is shorter than that."""

    def margin(trace: Any) -> Values:
        found = _extreme(what.margin(trace), *_past(trace, for_s), np.minimum)
        young = trace.t_s - trace.t_s[0] < for_s - _ROUND_S
        return np.where(young, np.minimum(found, -1.0), found)

    return Formula(f"lasted[{for_s:g} s] {what.text}", margin)


def within(what: Formula, seconds: float) -> Formula:
    """It holds at some moment of the next `seconds`; not known if the trace ends before that."""

    def margin(trace: Any) -> Values:
        found = _extreme(what.margin(trace), *_future(trace, seconds), np.maximum)
        return np.where(trace.t_s + seconds > trace.t_s[-1], np.maximum(found, 0.0), found)

    return Formula(f"within[{seconds:g} s] {what.text}", margin)


def always(what: Formula, seconds: float) -> Formula:
    """It holds at all moments of the next `seconds`, as far as the trace goes."""
    return Formula(
        f"always[{seconds:g} s] {what.text}",
        lambda trace: _extreme(what.margin(trace), *_future(trace, seconds), np.minimum),
    )


def near(what: Formula, seconds: float) -> Formula:
    """It holds at some moment of the last or the next `seconds`: what is said a little later."""
    both = once(what, seconds) | within(what, seconds)
    return Formula(f"near[{seconds:g} s] {what.text}", both.margin)


def since(what: Formula, begin: Formula) -> Formula:
    """`begin` held once, and `what` at every moment after that, now included."""

    def margin(trace: Any) -> Values:
        held, found = -1.0, []
        pairs = zip(what.margin(trace).tolist(), begin.margin(trace).tolist(), strict=True)
        for this, begins in pairs:
            held = max(begins, min(this, held))
            found.append(held)
        return np.array(found)

    return Formula(f"({what.text} since {begin.text})", margin)


def until(what: Formula, end: Formula) -> Formula:
    """`what` holds at every moment before `end`, which need not come."""

    def margin(trace: Any) -> Values:
        held, found = 1.0, []
        pairs = zip(what.margin(trace).tolist(), end.margin(trace).tolist(), strict=True)
        for this, ends in reversed(list(pairs)):
            held = max(ends, min(this, held))
            found.append(held)
        return np.array(found[::-1])

    return Formula(f"({what.text} until {end.text})", margin)


def rose(what: Formula) -> Formula:
    """It holds now, and did not a moment ago; not at the begin."""
    return Formula(f"rose({what.text})", lambda trace: _edge(what.margin(trace)))


def fell(what: Formula) -> Formula:
    return Formula(f"fell({what.text})", lambda trace: _edge(-what.margin(trace)))


class Least(NamedTuple):
    """How near a flight came. margin: the least; below 0 it is breached. at_s: when."""

    margin: float
    at_s: float


def worst(formula: Formula, trace: Moments) -> Least:
    """Return the least margin of a flight, and when it was first below 0, or least."""
    margins = formula.margin(trace)
    least = int(np.argmin(margins))
    breached = np.flatnonzero(margins < 0.0)
    first = int(breached[0]) if len(breached) else least
    return Least(float(margins[least]), float(trace.t_s[first]))


def pulses(trace: Moments, times_s: Sequence[float]) -> Values:
    """Return 1 at the first moment at or after each of these times, else 0."""
    found = np.zeros(len(trace.t_s))
    places = np.searchsorted(trace.t_s, np.asarray(times_s, float) - _ROUND_S)
    found[np.minimum(places, len(found) - 1)] = 1.0
    return found


def _edge(margin: Values) -> Values:
    before = np.concatenate(([1.0], margin[:-1]))
    return np.minimum(margin, -before)


def _past(trace: Moments, seconds: float) -> tuple[Places, Places]:
    t_s = trace.t_s
    return np.searchsorted(t_s, t_s - seconds - _ROUND_S), np.arange(len(t_s))


def _future(trace: Moments, seconds: float) -> tuple[Places, Places]:
    t_s = trace.t_s
    ends = np.searchsorted(t_s, t_s + seconds + _ROUND_S, side="right") - 1
    return np.arange(len(t_s)), ends


def _extreme(values: Values, first: Places, last: Places, pick: Any) -> Values:
    """Return the extreme of `values[first:last + 1]` of each moment, by a table of powers of 2."""
    levels = np.floor(np.log2(last - first + 1)).astype(int)
    found, row = np.empty(len(values)), values
    for level in range(int(levels.max()) + 1):
        here = levels == level
        found[here] = pick(row[first[here]], row[last[here] - 2**level + 1])
        row = pick(row[: -(2**level)], row[2**level :])
    return found
