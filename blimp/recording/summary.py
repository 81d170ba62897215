"""The figures of a flight, and what happened in it in words: what a report says.

Errors count while the ship flies: armed, off the ground, its motors not idle.
"""

from __future__ import annotations

from math import isfinite
from typing import Annotated, NamedTuple, get_type_hints

import msgspec

from blimp.distribution import needing
from blimp.recording.deviations import (
    flown,
    height_estimate_error,
    place_error,
    place_estimate_error,
    speed_error,
)
from blimp.recording.flight_data import FlightData, Values

with needing("plot", "reports need"):
    import numpy as np

_S_PER_H = 3600.0
_AIR_S = 1.0  # a gap between two cycles of a log that is thinned is not time in the air


class Row(NamedTuple):
    """How a figure stands in the table: what, its unit, and where it is in `Figures`."""

    words: str
    unit: str
    form: str = ".2f"
    unknown: str = "-"
    name: str = ""

    def get(self, figures: Figures) -> float | None:
        found: float | None = getattr(figures, self.name)
        return found


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What is counted and measured of a flight. None: this log does not tell it.

    *_error_*: distance from the setpoint; *_estimate_error_*: of the estimate from the truth of a
    simulated flight. worst: the largest, rms: root mean square. late_cycles: took longer than the
    loop's period. latency: of commands, from the sender's stamp to the flight loop. In the order of
    the table.
    """

    duration_s: Annotated[float, Row("Length of the log", "s", ".1f")]
    air_time_s: Annotated[float, Row("Time in the air", "s", ".1f")]
    highest_m: Annotated[float, Row("Highest", "m")]
    farthest_m: Annotated[float | None, Row("Farthest from the pad", "m")]
    distance_m: Annotated[float | None, Row("Way over the ground", "m", ".1f")]
    fastest_mps: Annotated[float | None, Row("Fastest over the ground", "m/s")]
    height_error_worst_m: Annotated[float | None, Row("Height error, worst", "m")]
    height_error_rms_m: Annotated[float | None, Row("Height error, rms", "m", ".3f")]
    position_error_worst_m: Annotated[float | None, Row("Position error, worst", "m")]
    position_error_rms_m: Annotated[float | None, Row("Position error, rms", "m", ".3f")]
    velocity_error_worst_mps: Annotated[float | None, Row("Velocity error, worst", "m/s")]
    height_estimate_error_worst_m: Annotated[
        float | None, Row("Estimate from truth, height, worst", "m")
    ]
    position_estimate_error_worst_m: Annotated[
        float | None, Row("Estimate from truth, position, worst", "m")
    ]
    position_estimate_error_rms_m: Annotated[
        float | None, Row("Estimate from truth, position, rms", "m", ".3f")
    ]
    cycles: Annotated[int, Row("Cycles", "", "d")]
    overruns: Annotated[int | None, Row("Overruns, as the loop counted", "", "d")]
    late_cycles: Annotated[int | None, Row("Cycles longer than the period", "", "d")]
    step_p50_ms: Annotated[float | None, Row("Cycle time, median", "ms")]
    step_p99_ms: Annotated[float | None, Row("Cycle time, 99 %", "ms")]
    step_worst_ms: Annotated[float | None, Row("Cycle time, longest", "ms")]
    commands: Annotated[int, Row("Commands", "", "d")]
    refusals: Annotated[int, Row("Refusals", "", "d")]
    failsafes: Annotated[int, Row("Failsafes", "", "d")]
    latency_p50_ms: Annotated[float | None, Row("Command latency, median", "ms", ".1f")]
    latency_p95_ms: Annotated[float | None, Row("Command latency, 95 %", "ms", ".1f")]
    latency_worst_ms: Annotated[float | None, Row("Command latency, longest", "ms", ".1f")]
    battery_start_v: Annotated[float | None, Row("Battery at the begin", "V")]
    battery_end_v: Annotated[float | None, Row("Battery at the end", "V")]
    battery_lowest_v: Annotated[float | None, Row("Battery, lowest", "V")]
    used_mah: Annotated[float | None, Row("Charge used", "mAh", ".0f", "not measured")]
    wind_strongest_mps: Annotated[float | None, Row("Strongest wind that flight showed", "m/s")]


ROWS = tuple(
    kind.__metadata__[0]._replace(name=name)
    for name, kind in get_type_hints(Figures, include_extras=True).items()
)


def figures_of(flight: FlightData) -> Figures:
    """Return the figures of a flight."""
    cycles, status = flight.cycles, flight.status
    is_placed = flight.has_position
    height_m = flown(flight, cycles["set_down"] - cycles["down"])
    place_m = flown(flight, place_error(flight)) if is_placed else np.empty(0)
    estimate_m = place_estimate_error(flight) if is_placed else np.empty(0)
    way_m = np.hypot(flown(flight, cycles["north"]), flown(flight, cycles["east"]))
    speed_mps = np.hypot(flown(flight, cycles["v_north"]), flown(flight, cycles["v_east"]))
    step_ms = np.empty(0) if flight.session.lockstep else cycles["step_ms"]
    wind_mps = np.hypot(status["wind_north"], status["wind_east"])
    volts = status["battery_v"][np.isfinite(status["battery_v"])]
    return Figures(
        duration_s=round(flight.end_s, 3),
        air_time_s=round(_air_time_s(flight), 3),
        highest_m=round(float(-cycles["down"].min()), 4),
        farthest_m=_worst(way_m) if is_placed else None,
        distance_m=_distance_m(flight) if is_placed else None,
        fastest_mps=_worst(speed_mps) if is_placed else None,
        height_error_worst_m=_worst(height_m),
        height_error_rms_m=_rms(height_m),
        position_error_worst_m=_worst(place_m),
        position_error_rms_m=_rms(place_m),
        velocity_error_worst_mps=_worst(flown(flight, speed_error(flight))),
        height_estimate_error_worst_m=_worst(height_estimate_error(flight)),
        position_estimate_error_worst_m=_worst(estimate_m),
        position_estimate_error_rms_m=_rms(estimate_m),
        cycles=len(cycles.t_s),
        overruns=flight.overruns,
        late_cycles=int((step_ms > 1e3 / flight.session.rate_hz).sum()) if len(step_ms) else None,
        step_p50_ms=_percentile(step_ms, 50),
        step_p99_ms=_percentile(step_ms, 99),
        step_worst_ms=_worst(step_ms),
        commands=sum(one.kind == "command" for one in flight.happenings),
        refusals=sum(one.kind == "refusal" for one in flight.happenings),
        failsafes=len(flight.failsafes),
        latency_p50_ms=_percentile(1e3 * flight.latency_s, 50),
        latency_p95_ms=_percentile(1e3 * flight.latency_s, 95),
        latency_worst_ms=_worst(1e3 * flight.latency_s),
        battery_start_v=float(volts[0]) if len(volts) else None,
        battery_end_v=float(volts[-1]) if len(volts) else None,
        battery_lowest_v=float(volts.min()) if len(volts) else None,
        used_mah=_used_mah(flight),
        wind_strongest_mps=_worst(wind_mps),
    )


def shown(row: Row, figures: Figures) -> str:
    """Return a figure with its unit, or what the row says where the log does not tell it."""
    value = row.get(figures)
    return row.unknown if value is None else f"{value:{row.form}} {row.unit}".rstrip()


def in_words(flight: FlightData, figures: Figures) -> list[str]:
    """Return the summary of a flight as sentences."""
    session = flight.session
    simulated = ", simulated" if session.simulated else ""
    at_end = flight.cycles
    is_armed = bool(at_end["armed"][-1])
    end = f"armed {-at_end['down'][-1]:.1f} m above the pad" if is_armed else "disarmed"
    words = [
        f"{session.vehicle}{simulated}: {figures.air_time_s:.0f} s in the air, "
        f"{figures.highest_m:.1f} m at the highest; the log ends {end}.",
    ]
    if not flight.complete:
        words.append("The log was cut: what came after its last whole chunk is missing.")
    if not figures.air_time_s:
        words.append("The ship did not leave the ground in it.")
    if not flight.has_position:
        words.append("No sensor gave a position: track, position and their errors are left out.")
    if session.lockstep:
        words.append("Flown in lockstep: cycle times and latencies are not those of a real loop.")
    return words


def failsafes_in_words(flight: FlightData) -> list[str]:
    """Return a sentence for each failsafe: when, which, and how long."""
    return [
        f"{span.from_s:.1f} s: {span.name}; "
        + (
            f"over after {span.to_s - span.from_s:.1f} s."
            if span.is_over
            else "still in force where the log ends."
        )
        for span in flight.failsafes
    ]


def refusals_in_words(flight: FlightData) -> list[str]:
    """Return a sentence for each command that was refused: when, which and why."""
    return [f"{one.t_s:.1f} s: {one.words}" for one in flight.happenings if one.kind == "refusal"]


def _worst(values: Values) -> float | None:
    known = np.abs(values[np.isfinite(values)])
    return float(known.max()) if len(known) else None


def _rms(values: Values) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(known**2))) if len(known) else None


def _percentile(values: Values, percent: float) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.percentile(known, percent)) if len(known) else None


def _air_time_s(flight: FlightData) -> float:
    cycles = flight.cycles
    in_air = (cycles["armed"] > 0) & (cycles["on_ground"] == 0)
    steps_s = np.minimum(np.diff(cycles.t_s), _AIR_S)
    return float(steps_s[in_air[1:]].sum())


def _distance_m(flight: FlightData) -> float:
    """Return the way over the ground while the ship flies, by its velocity.

    The sum of the steps between positions would count their noise.
    """
    c = flight.cycles
    speed_mps = np.hypot(flown(flight, c["v_north"]), flown(flight, c["v_east"]))[1:]
    steps_s = np.minimum(np.diff(c.t_s), _AIR_S)
    return float(np.nansum(speed_mps * steps_s))


def _used_mah(flight: FlightData) -> float | None:
    """Return the integral of the current; None if nothing measured it."""
    status = flight.status
    amperes = status["current_a"]
    if not np.isfinite(amperes).any():
        return None
    middle_a = (amperes[1:] + amperes[:-1]) / 2.0
    used_as = float(np.nansum(middle_a * np.diff(status.t_s)))
    return 1e3 * used_as / _S_PER_H if isfinite(used_as) else None
