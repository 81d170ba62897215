"""Pictures of a flight: events, track, and every quantity over one time axis.

Needs matplotlib, the extra `plot`; no display. Raises ConfigError when it is imported without.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from blimp.errors import LogError
from blimp.recording import pictures_events, pictures_motion, pictures_systems
from blimp.recording.flight_data import FlightData, read_flight
from blimp.recording.panels import LEFT_IN, WIDTH_IN, style
from blimp.recording.recording import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 110


def draw(
    log: Recording, directory: Path, *, progress: Callable[[float], object] = lambda _: None
) -> list[Path]:
    """Write a PNG for each picture into `directory`, which is made; return their paths.

    progress: called with the share of the pictures that is drawn, 0 to 1. Raises LogError if
    nothing can be drawn or written.
    """
    flight = read_flight(log)
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in PICTURES:
            path = directory / f"{name}.png"
            with style():
                picture(name, flight).savefig(path, dpi=DPI)
            written.append(path)
            progress(len(written) / len(PICTURES))
    except OSError as error:
        raise LogError(f"pictures in {directory}: {error.strerror}") from error
    return written


def picture(name: str, flight: FlightData, *, titled: bool = True) -> Figure:
    """Return a picture, drawn in the style that is in force: see `panels.style`."""
    figure = PICTURES[name](flight)
    if titled:
        simulated = " (simulated)" if flight.session.simulated else ""
        figure.text(
            LEFT_IN / WIDTH_IN, 1.0 - 0.12 / figure.get_figheight(),
            f"{flight.session.vehicle}{simulated}: {name}", fontsize=11, weight="bold", va="top",
        )  # fmt: skip
    return figure


PICTURES: dict[str, Callable[[FlightData], Figure]] = {
    "events": pictures_events.events,
    "track": pictures_events.track,
    "altitude": pictures_motion.altitude,
    "position": pictures_motion.position,
    "velocity": pictures_motion.velocity,
    "attitude": pictures_motion.attitude,
    "actuators": pictures_systems.actuators,
    "wind": pictures_systems.wind,
    "battery": pictures_systems.battery,
    "votes": pictures_systems.votes,
    "innovations": pictures_systems.innovations,
    "timing": pictures_systems.timing,
}
