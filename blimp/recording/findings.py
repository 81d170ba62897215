"""What is worth a look in a flight, the worst first: what a report begins with.

Each finding names the picture that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import degrees
from typing import NamedTuple

from blimp.distribution import needing
from blimp.recording.deviations import height_estimate_error, place_estimate_error
from blimp.recording.flight_data import QUANTITIES, FlightData, Table, Values
from blimp.recording.policies import POLICIES, check
from blimp.recording.summary import Figures
from blimp.recording.trace import Trace

with needing("plot", "reports need"):
    import numpy as np

OUTVOTED_S = 0.5  # chosen: a vote that is lost for less is noise
ESTIMATE_M = 1.0  # chosen: twice what a ship may be off the place that it keeps (chaos.NEAR_M)
ASKED = tuple(one for one in POLICIES if one.name != "a log is whole")  # it has its own words
_VOTE_S = 0.25  # a vote holds until the next status
# What is worse stands first: what leaves a ship without power, then what must never be, then what
# it did about something by itself, then what its estimate is worth, then the loop; what was refused
# or lost is said last.
_UNSAFE, _DIED, _POLICY, _FAILSAFE, _SENSOR, _ESTIMATE, _LOOP, _PROCESS, _CUT, _REFUSED = range(10)


class Finding(NamedTuple):
    """rank: the lower, the worse. size: within a rank, the larger the worse. picture: its name."""

    rank: int
    size: float
    words: str
    picture: str


def findings(flight: FlightData, figures: Figures) -> list[Finding]:
    """Return what is worth a look, the worst first; nothing of a flight in which all went well."""
    found = [*_happened(flight), *_outvoted(flight), *_measured(flight, figures)]
    found += [Finding(_POLICY, 0.0, one.words, "events") for one in check(Trace(flight), ASKED)]
    if not flight.complete:
        found.append(Finding(_CUT, 0.0, "a log was cut: what came after is missing", "events"))
    return sorted(found, key=lambda one: (one.rank, -one.size))


def _happened(flight: FlightData) -> Iterator[Finding]:
    for span in flight.failsafes:
        lasted_s = span.to_s - span.from_s
        end = "" if span.is_over else ", still in force at the end"
        words = f"{span.from_s:.1f} s: {span.name}: for {lasted_s:.1f} s{end}"
        yield Finding(_FAILSAFE, lasted_s, words, "events")
    refused = sum(one.kind == "refusal" for one in flight.happenings)
    if refused:
        yield Finding(_REFUSED, refused, f"{refused} commands refused", "list")
    for one in flight.happenings:
        if not one.is_fault or one.kind not in ("process", "fault"):
            continue
        rank = _SENSOR if one.kind == "fault" else _PROCESS
        if "outputs may not be safe" in one.words:
            rank = _UNSAFE
        elif one.words.startswith(("the flight process", "killed")):
            rank = _DIED
        yield Finding(rank, 0.0, f"{one.t_s:.1f} s: {one.words}", "events")


def _outvoted(flight: FlightData) -> Iterator[Finding]:
    """Yield each sensor that lost a vote for long, and how far the estimate was off meanwhile."""
    for name, votes in flight.votes.items():
        quantity, sensor = name.split()
        lost = votes["agrees"] == 0
        steps_s = np.minimum(np.diff(votes.t_s, append=votes.t_s[-1:]), _VOTE_S)
        lasted_s = float(steps_s[lost].sum())
        if lasted_s < OUTVOTED_S:
            continue
        off = _off(flight, quantity, votes, lost)
        words = f"{sensor} outvoted on {quantity} for {lasted_s:.1f} s: {off}"
        yield Finding(_SENSOR, lasted_s, words, "votes")


def _off(flight: FlightData, quantity: str, votes: Table, lost: Values) -> str:
    """Return by how much estimate and truth differ while a vote is lost; else estimate and it."""
    errors = {"height": height_estimate_error, "position": place_estimate_error}
    truth_s = flight.truth.t_s
    if quantity in errors and len(truth_s):
        nearest = np.clip(np.searchsorted(votes.t_s, truth_s), 0, len(votes.t_s) - 1)
        errors_m = np.abs(errors[quantity](flight)[lost[nearest]])
        if np.isfinite(errors_m).any():
            return f"estimate {float(np.nanmax(errors_m)):.1f} m off"
    worst = float(np.nanmax(np.abs(votes["innovation"][lost])))
    unit = QUANTITIES.get(quantity, "")
    shown = f"{degrees(worst):.0f}°" if unit == "rad" else f"{worst:.1f} {unit}".rstrip()
    return f"{shown} from the estimate"


def _measured(flight: FlightData, figures: Figures) -> Iterator[Finding]:
    limit_ms = 1e3 / flight.session.rate_hz
    p99_ms = figures.step_p99_ms
    if p99_ms is not None and p99_ms > limit_ms:
        words = f"cycle p99 {p99_ms:.1f} ms, limit {limit_ms:g}"
        yield Finding(_LOOP, p99_ms / limit_ms, words, "timing")
    for what, worst_m, shown in (
        ("position", figures.position_estimate_error_worst_m, "position"),
        ("height", figures.height_estimate_error_worst_m, "altitude"),
    ):
        if worst_m is not None and worst_m > ESTIMATE_M:
            words = f"estimated {what} {worst_m:.1f} m off the truth at the worst"
            yield Finding(_ESTIMATE, worst_m, words, shown)
