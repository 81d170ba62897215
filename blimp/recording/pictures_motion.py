"""Pictures of how a ship moved: setpoint, estimate and truth, and how far they are apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blimp.distribution import needing
from blimp.recording.deviations import (
    at_truth,
    beside_deg,
    flown,
    place_error,
    place_estimate_error,
    speed_error,
    unwrapped_deg,
)
from blimp.recording.flight_data import ANGLES, AXES, FlightData
from blimp.recording.panels import (
    CONTROL_ERROR,
    ESTIMATE,
    ESTIMATE_ERROR,
    IS,
    SET,
    SETPOINT,
    TRUE,
    TRUTH,
    legend,
    line,
    say,
    timed,
)

with needing("plot", "pictures need"):
    import numpy as np
    from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TURN_DEG = 360.0
_COMPASS_STEPS = [1, 1.5, 3, 4.5, 9, 10]  # 15, 30, 45, 90 degrees


def altitude(flight: FlightData) -> Figure:
    figure, (height, error) = timed(flight, ["above the pad, m", "error, m"], height_in=2.0)
    _beside(height, flight, "down", sign=-1.0)
    difference = flight.cycles["set_down"] - flight.cycles["down"]
    line(error, flight.cycles.t_s, flown(flight, difference), "estimate - setpoint", CONTROL_ERROR)
    _estimate_error(error, flight, "down", sign=-1.0)
    legend(error)
    return figure


def position(flight: FlightData) -> Figure:
    figure, panels = timed(flight, ["north, m", "east, m", "distance, m"], height_in=1.6)
    if not flight.has_position:
        for panel in panels:
            say(panel, "no sensor gave a position in this flight")
        return figure
    for panel, axis in zip(panels, AXES[:2], strict=False):
        _beside(panel, flight, axis)
    line(
        panels[2], flight.cycles.t_s, flown(flight, place_error(flight)), "from setpoint",
        CONTROL_ERROR,
    )  # fmt: skip
    if len(flight.truth.t_s):
        line(
            panels[2], flight.truth.t_s, place_estimate_error(flight), "from truth", ESTIMATE_ERROR
        )
    panels[2].set_ylim(bottom=0.0)
    legend(panels[2])
    return figure


def velocity(flight: FlightData) -> Figure:
    labels = ["north, m/s", "east, m/s", "down, m/s", "error, m/s"]
    figure, panels = timed(flight, labels, height_in=1.35)
    for panel, axis in zip(panels, AXES, strict=False):
        _beside(panel, flight, f"v_{axis}")
    line(
        panels[3], flight.cycles.t_s, flown(flight, speed_error(flight)), "from setpoint",
        CONTROL_ERROR,
    )  # fmt: skip
    if len(flight.truth.t_s):
        apart = [at_truth(flight, f"v_{axis}") for axis in AXES]
        line(
            panels[3], flight.truth.t_s, np.sqrt(sum(one**2 for one in apart)), "from truth",
            ESTIMATE_ERROR,
        )  # fmt: skip
    panels[3].set_ylim(bottom=0.0)
    legend(panels[3])
    return figure


def attitude(flight: FlightData) -> Figure:
    labels = ["roll, °", "pitch, °", "heading, °", "yaw rate, °/s"]
    figure, panels = timed(flight, labels, height_in=1.35)
    cycles, truth = flight.cycles, flight.truth
    for panel, angle in zip(panels, ANGLES[:2], strict=False):
        line(panel, cycles.t_s, np.degrees(cycles[angle]), IS, ESTIMATE)
        if len(truth.t_s):
            line(panel, truth.t_s, np.degrees(truth[angle]), TRUE, TRUTH, ls=":")
        legend(panel)
    heading = unwrapped_deg(cycles["yaw"])
    line(panels[2], cycles.t_s, beside_deg(cycles["set_yaw"], heading), SET, SETPOINT, ls="--")
    line(panels[2], cycles.t_s, heading, IS, ESTIMATE)
    if len(truth.t_s):
        near = np.interp(truth.t_s, cycles.t_s, heading)
        line(panels[2], truth.t_s, beside_deg(truth["yaw"], near), TRUE, TRUTH, ls=":")
    panels[2].yaxis.set_major_locator(MaxNLocator(nbins=5, steps=_COMPASS_STEPS))
    panels[2].yaxis.set_major_formatter(lambda value, _: f"{value % _TURN_DEG:.0f}")
    legend(panels[2])
    line(panels[3], cycles.t_s, np.degrees(cycles["yaw_rate"]), IS, ESTIMATE)
    legend(panels[3])
    return figure


def _beside(panel: Axes, flight: FlightData, name: str, *, sign: float = 1.0) -> None:
    """Draw setpoint, estimate and truth of one quantity."""
    cycles, truth = flight.cycles, flight.truth
    wanted = cycles[f"set_{name}"]
    if name.startswith("v_"):  # beside a wanted place it is a feed-forward, and no wish
        wanted = np.where(np.isnan(cycles[f"set_{name[2:]}"]), wanted, np.nan)
    line(panel, cycles.t_s, sign * flown(flight, wanted), SET, SETPOINT, ls="--")
    line(panel, cycles.t_s, sign * cycles[name], IS, ESTIMATE)
    if len(truth.t_s):
        line(panel, truth.t_s, sign * truth[name], TRUE, TRUTH, ls=":")
    legend(panel)


def _estimate_error(panel: Axes, flight: FlightData, name: str, *, sign: float) -> None:
    if len(flight.truth.t_s):
        apart = sign * at_truth(flight, name)
        line(panel, flight.truth.t_s, apart, "estimate - truth", ESTIMATE_ERROR)
