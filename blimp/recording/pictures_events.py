"""Pictures of what happened in a flight, and of where: events by kind, and the track."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blimp.distribution import needing
from blimp.recording.flight_data import KINDS, FlightData, Values
from blimp.recording.panels import (
    ESTIMATE,
    IS,
    KIND_COLOURS,
    LEFT_IN,
    LIMIT,
    MEASURED,
    SET,
    SETPOINT,
    TRUE,
    TRUTH,
    WIDTH_IN,
    draw_strip,
    drawn_in,
    joined,
    legend,
    mode_colour,
    numbers,
    over_time,
    say,
    stacked,
)

with needing("plot", "pictures need"):
    import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LISTED = 40  # events below a picture; a report lists all
_ENTRY_CHARS, _ENTRY_IN = 86, 0.155  # a line of the list of events
_ROWS_IN = 1.7
_LABEL_IN = (0.55, 0.16)  # apart: the longest label, and a line of text


def events(flight: FlightData) -> Figure:
    """Draw a row of events for each kind, numbered, and the list of them below."""
    entries = [
        (f"{one.number:>3}  {one.t_s:8.1f} s  {one.words}", one.kind)
        for one in flight.happenings[:LISTED]
    ]
    if len(flight.happenings) > LISTED:
        more = len(flight.happenings) - LISTED
        entries.append((f"     and {more} more: blimp log report lists them all", "message"))
    rows = max(1, -(-len(entries) // 2))
    figure, (strip, panel, listed) = stacked([_ROWS_IN, rows * _ENTRY_IN + 0.1], gap_in=0.55)
    draw_strip(strip, flight)
    _event_rows(panel, flight)
    listed.set_axis_off()
    listed.set(xlim=(0.0, 1.0), ylim=(rows, 0))
    right = (WIDTH_IN - LEFT_IN) / drawn_in()  # the list also uses the legends' place
    for i, (text, kind) in enumerate(entries):
        listed.text(
            (i // rows) * right / 2 - LEFT_IN * 0.6 / drawn_in(), i % rows + 0.5,
            text if len(text) <= _ENTRY_CHARS else text[: _ENTRY_CHARS - 1] + "…", fontsize=6.5,
            color=KIND_COLOURS[kind], family="monospace", va="center",
        )  # fmt: skip
    return figure


def event_rows(flight: FlightData) -> Figure:
    """Return the rows alone, for a page that lists the events itself."""
    figure, (strip, panel) = stacked([_ROWS_IN])
    draw_strip(strip, flight)
    _event_rows(panel, flight)
    return figure


def _event_rows(panel: Axes, flight: FlightData) -> None:
    over_time(panel, flight, "", is_last=True)
    panel.set(ylim=(len(KINDS), 0), yticks=[i + 0.6 for i in range(len(KINDS))])
    panel.set_yticklabels([f"{kind}s" for kind in KINDS])
    for row, kind in enumerate(KINDS):
        happened = [one for one in flight.happenings if one.kind == kind]
        times = [one.t_s for one in happened]
        panel.plot(
            times, [row + 0.75] * len(times), "o", color=KIND_COLOURS[kind], markersize=4,
            clip_on=False,
        )  # fmt: skip
        for label in numbers(happened, max(flight.end_s, 1.0)):
            panel.text(label.t_s, row + 0.5, label.text, fontsize=7, va="bottom")
    for span in flight.failsafes:
        row = list(KINDS).index("failsafe")
        panel.broken_barh(
            [(span.from_s, span.to_s - span.from_s)], (row + 0.65, 0.2), color=LIMIT, alpha=0.5
        )
    for name in dict.fromkeys(span.name for span in flight.modes):
        panel.plot([], [], "s", color=mode_colour(name), alpha=0.35, markersize=7, label=name)
    legend(panel)


def track(flight: FlightData) -> Figure:
    """The ship's way from above, north up, and its height beside."""
    figure, (plan,) = stacked([6.0], strip=False)
    if not flight.has_position:
        say(plan, "no sensor gave a position in this flight")
        return figure
    draw_track(plan, flight, estimate=ESTIMATE, label=IS)
    cycles, truth = flight.cycles, flight.truth
    _way(plan, cycles["set_east"], cycles["set_north"], SET, SETPOINT, "--")
    if len(truth.t_s):
        _way(plan, truth["east"], truth["north"], TRUE, TRUTH, ":")
    near = np.interp([one.t_s for one in flight.happenings], cycles.t_s, range(len(cycles.t_s)))
    places = list(zip(flight.happenings, near.astype(int), strict=True))
    east, north = cycles["east"], cycles["north"]  # once: a column is converted each time
    for kind in dict.fromkeys(one.kind for one, _ in places):
        at = [index for one, index in places if one.kind == kind]
        plan.plot(
            east[at], north[at], "o", markersize=4.5,
            color=KIND_COLOURS[kind], label=kind,
        )  # fmt: skip
    legend(plan)
    figure.draw_without_rendering()  # equal scales decide the limits only now
    _number_places(plan, [(one.number, east[i], north[i]) for one, i in places])
    return figure


def _number_places(plan: Axes, places: list[tuple[int, float, float]]) -> None:
    """Write the events' numbers where they happened; near ones share a label."""
    groups: list[tuple[Values, list[int]]] = []
    all_in = plan.transData.transform([place[1:] for place in places] or np.empty((0, 2)))
    for (number, *_), at_in in zip(places, all_in / plan.figure.dpi, strict=True):
        begun = np.array([at for at, _ in groups]).reshape(-1, 2)
        near = np.flatnonzero((np.abs(begun - at_in) < _LABEL_IN).all(axis=1))
        if len(near):
            groups[near[0]][1].append(number)
        else:
            groups.append((at_in, [number]))
    for at_in, group in groups:
        east_m, north_m = plan.transData.inverted().transform(at_in * plan.figure.dpi)
        plan.annotate(
            joined(group), (east_m, north_m), xytext=(5, 4), textcoords="offset points", fontsize=7
        )


def draw_track(plan: Axes, flight: FlightData, *, estimate: str, label: str) -> None:
    """Draw the estimated way from above, with its begin and its end, in equal scales."""
    cycles = flight.cycles
    plan.set(xlabel="east of the pad, m", ylabel="north of the pad, m")
    plan.set_aspect("equal", adjustable="datalim")
    plan.grid(visible=True)
    _way(plan, cycles["east"], cycles["north"], label, estimate, "-")
    plan.plot(0.0, 0.0, "P", color=MEASURED, markersize=9, label="pad")
    plan.plot(
        cycles["east"][-1], cycles["north"][-1], "s", color=estimate, markersize=6,
        label=f"end of {label}" if label != IS else "end",
    )  # fmt: skip


def _way(plan: Axes, east: Values, north: Values, label: str, colour: str, dashes: str) -> None:
    """Draw a way with as many points as can be seen."""
    step = len(east) // 8_000 + 1
    if np.isfinite(east).any():
        plan.plot(east[::step], north[::step], dashes, color=colour, label=label, lw=1.2)
