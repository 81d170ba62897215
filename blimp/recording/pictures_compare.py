"""Pictures of two flights over each other: their tracks, and what they did since take-off."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from blimp.distribution import needing
from blimp.recording.deviations import flown, place_error
from blimp.recording.flight_data import FlightData, Values
from blimp.recording.panels import legend, line, say, stacked
from blimp.recording.pictures_events import draw_track

with needing("plot", "pictures need"):
    import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST, SECOND = "#2f7ed8", "#c2478f"


class Named(NamedTuple):
    """A flight with the name that it has in a comparison, and its colour there."""

    name: str
    colour: str
    flight: FlightData

    @property
    def since_takeoff_s(self) -> Values:
        """The times of its cycles since it first left the ground; since the begin if it did not."""
        cycles = self.flight.cycles
        in_air = np.flatnonzero((cycles["armed"] > 0) & (cycles["on_ground"] == 0))
        found: Values = cycles.t_s - (cycles.t_s[in_air[0]] if len(in_air) else 0.0)
        return found


def tracks(flights: tuple[Named, Named]) -> Figure:
    """Return both tracks from above."""
    figure, (plan,) = stacked([6.0], strip=False)
    placed = [one for one in flights if one.flight.has_position]
    for one in placed:
        draw_track(plan, one.flight, estimate=one.colour, label=one.name)
    if not placed:
        say(plan, "no sensor gave a position in these flights")
    legend(plan)
    return figure


def over_time(flights: tuple[Named, Named]) -> Figure:
    """Return height, distance from the setpoint and battery of both, since take-off."""
    labels = ("above the pad, m", "from setpoint, m", "battery, V")
    figure, panels = stacked([1.6] * len(labels), strip=False)
    for one in flights:
        flight, t_s = one.flight, one.since_takeoff_s
        line(panels[0], t_s, -flight.cycles["down"], one.name, one.colour)
        if flight.has_position:
            line(panels[1], t_s, flown(flight, place_error(flight)), one.name, one.colour)
        status = flight.status
        begin_s = flight.cycles.t_s[0] - t_s[0]
        line(panels[2], status.t_s - begin_s, status["battery_v"], one.name, one.colour)
    for panel, label in zip(panels, labels, strict=True):
        panel.set_ylabel(label)
        panel.grid(visible=True)
        panel.sharex(panels[0])
        panel.tick_params(labelbottom=panel is panels[-1])
        legend(panel)
    panels[-1].set_xlabel("since take-off, s")
    return figure
