"""Pictures of a ship's parts: actuators, battery, sensors' votes, and of the wind and the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blimp.distribution import needing
from blimp.recording.flight_data import QUANTITIES, FlightData, Values
from blimp.recording.panels import (
    CYCLE,
    EAST,
    ESTIMATE,
    IS,
    LIMIT,
    MEASURED,
    NORTH,
    PERIOD,
    SENSORS,
    SETPOINT,
    TRUTH,
    draw_strip,
    legend,
    line,
    over_time,
    say,
    stacked,
    thinned,
    timed,
)

with needing("plot", "pictures need"):
    import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS = 60  # of a histogram


def actuators(flight: FlightData) -> Figure:
    session = flight.session
    labels = [f"{name}, {'rad' if name in session.servos else '1'}" for name in session.actuators]
    figure, panels = timed(flight, labels, height_in=0.95)
    for panel, name in zip(panels, session.actuators, strict=True):
        line(panel, flight.cycles.t_s, flight.cycles[f"out_{name}"], "command", SETPOINT, lw=0.8)
        if name not in session.servos:
            panel.set_ylim(-1.08, 1.08)
            panel.set_yticks([-1.0, 0.0, 1.0])
    if panels:
        legend(panels[0])
    return figure


def wind(flight: FlightData) -> Figure:
    figure, (parts, speed) = timed(flight, ["towards, m/s", "speed, m/s"])
    status = flight.status
    north, east = status["wind_north"], status["wind_east"]
    if not np.isfinite(north).any():
        say(parts, "flight has shown no wind")
        say(speed, "")
        return figure
    line(parts, status.t_s, north, "north", NORTH)
    line(parts, status.t_s, east, "east", EAST)
    line(speed, status.t_s, np.hypot(north, east), IS, ESTIMATE)
    speed.set_ylim(bottom=0.0)
    legend(parts)
    legend(speed)
    return figure


def battery(flight: FlightData) -> Figure:
    figure, (volts, amperes) = timed(flight, ["battery, V", "current, A"])
    status, battery = flight.status, flight.session.airframe.get("battery", {})
    if not np.isfinite(status["battery_v"]).any():
        say(volts, "no sensor measured the battery")
        say(amperes, "")
        return figure
    line(volts, status.t_s, status["battery_v"], "measured", MEASURED)
    for name, label, dashes in (("warn_v", "warning", ":"), ("empty_v", "empty", "-")):
        if name in battery:
            volts.axhline(battery[name], color=LIMIT, lw=0.8, ls=dashes, label=label)
    legend(volts)
    if np.isfinite(status["current_a"]).any():
        line(amperes, status.t_s, status["current_a"], "measured", MEASURED)
        legend(amperes)
    else:
        say(amperes, "not measured")
    return figure


def innovations(flight: FlightData) -> Figure:
    """What each sensor says beside the estimate; red where it is outvoted."""
    labels = [f"{name}, {unit}" for name, unit in QUANTITIES.items()]
    figure, panels = timed(flight, labels, height_in=1.15)
    status = flight.status
    for panel, quantity in zip(panels, QUANTITIES, strict=True):
        known = {
            name.removeprefix(f"{quantity} "): votes
            for name, votes in flight.votes.items()
            if name.startswith(f"{quantity} ")
        }
        for sensor, votes in known.items():
            colour = SENSORS.get(sensor, MEASURED)
            gapped = _with_gaps(votes.t_s, votes["innovation"])
            line(panel, *gapped, sensor, colour, points=_VOTE_POINTS, lw=0.8)
        for votes in known.values():
            out = votes["agrees"] == 0
            if out.any():
                panel.plot(
                    *thinned(votes.t_s[out], votes["innovation"][out], points=_VOTE_POINTS), "x",
                    color=LIMIT, markersize=3.5, label="outvoted",
                )  # fmt: skip
        panel.set_ylim(panel.get_ylim())  # a filter that begins is far from sure: not in view
        sigma = status[f"sigma_{quantity}"]
        for sign in (1.0, -1.0) if quantity in _SIGNED else (1.0,):
            line(panel, status.t_s, sign * sigma, "1 sigma", MEASURED, points=_VOTE_POINTS, ls=":")
        legend(panel)
    return figure


_VOTE_POINTS = 2_000  # of a line, two a pixel: a panel has a line for each sensor
_SIGNED = ("height", "climb", "heading")  # the others' innovations are distances
_SILENT_S = 1.0  # without a vote: the line has a gap


def _with_gaps(t_s: Values, values: Values) -> tuple[Values, Values]:
    """Return a line with a gap where a sensor was silent."""
    after = np.flatnonzero(np.diff(t_s) > _SILENT_S) + 1
    return np.insert(t_s, after, t_s[after]), np.insert(values, after, np.nan)


def votes(flight: FlightData) -> Figure:
    """When each sensor agreed with the estimate, and when it was outvoted."""
    figure, (panel,) = timed(flight, [""], height_in=0.24 * max(3, len(flight.votes)) + 0.3)
    if not flight.votes:
        say(panel, "no votes are in this log")
        return figure
    for row, votes in enumerate(flight.votes.values()):
        for agrees, colour, label in ((1, TRUTH, "agrees"), (0, LIMIT, "outvoted")):
            panel.broken_barh(
                _stretches(votes.t_s, votes["agrees"] == agrees), (row + 0.2, 0.6), color=colour,
                lw=0, label=label,
            )  # fmt: skip
    panel.set(ylim=(len(flight.votes), 0), yticks=[row + 0.5 for row in range(len(flight.votes))])
    names = [
        " ".join((name.split()[0], _SHORT.get(name.split()[1], name.split()[1])))
        for name in flight.votes
    ]
    panel.set_yticklabels(names, fontsize=6)
    legend(panel)
    return figure


_SHORT = {"accelerometer": "accel", "magnetometer": "magnet"}  # for the margin of a picture
_VOTE_S = 0.25  # a vote holds until the next status


def _stretches(t_s: Values, chosen: Values) -> list[tuple[float, float]]:
    """Return begin and length of each stretch of the chosen times."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], chosen.astype(np.int8), [0]))))
    return [
        (float(t_s[begin]), float(t_s[end - 1] - t_s[begin]) + _VOTE_S)
        for begin, end in zip(edges[::2], edges[1::2], strict=True)
    ]


def timing(flight: FlightData) -> Figure:
    """How long each cycle took and how far apart cycles were, over time and as histograms."""
    labels = ["cycle time, ms", "period, ms"]
    figure, (strip, *panels, spread) = stacked([1.5, 1.5, 2.0], gap_in=0.5)
    draw_strip(strip, flight)
    limit_ms = 1e3 / flight.session.rate_hz
    spread.set(xlabel="ms", ylabel="cycles")
    series = (
        (flight.cycles.t_s, flight.cycles["step_ms"], "cycle time", CYCLE),
        (flight.cycles.t_s[1:], periods_ms(flight), "period", PERIOD),
    )
    for panel, label, (t_s, values, name, colour) in zip(panels, labels, series, strict=True):
        over_time(panel, flight, label, is_last=panel is panels[-1])
        if name == "cycle time" and flight.session.lockstep:
            say(panel, "a flight in lockstep has no cycle time")
            continue
        panel.plot(*thinned(t_s, values), ".", markersize=1.5, color=colour, label=name)
        panel.axhline(limit_ms, color=LIMIT, lw=0.8, label="limit" if panel is panels[0] else None)
        known = values[np.isfinite(values)]
        if len(known):
            top_ms = max(limit_ms * 1.1, float(known.max()))
            spread.hist(
                known, bins=_BINS, range=(0.0, top_ms), histtype="step", color=colour, label=name
            )
        legend(panel)
    spread.axvline(limit_ms, color=LIMIT, lw=0.8, label=f"limit {limit_ms:g} ms")
    spread.set_yscale("log")
    spread.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    spread.grid(visible=True)
    legend(spread)
    return figure


def periods_ms(flight: FlightData) -> Values:
    """Return the time between each cycle and the next, ms; NaN where cycles are left out."""
    cycles = flight.cycles
    gaps: Values = 1e3 * np.diff(cycles.t_s)
    return np.where(np.diff(cycles["number"]) == 1, gaps, np.nan)
