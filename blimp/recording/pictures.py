"""Pictures of a flight for a report: altitude, track, attitude, actuators, timings.

Needs matplotlib, the extra `plot`; no display. Raises ConfigError when it is imported without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import degrees
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from blimp.distribution import needing
from blimp.errors import LogError
from blimp.recording.recording import Entry, Recording, mark_of

with needing("plot", "pictures need"):
    from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 20_000  # more than any picture has pixels
MAX_MARKS = 30
_SIZE_INCHES = (10.0, 5.0)
_DPI = 120


class Flight(NamedTuple):
    """What is drawn: cycles, and marks of commands and faults with their times."""

    log: Recording
    cycles: list[Entry]
    marks: list[tuple[float, str, bool]]  # time, words, whether it is a fault

    @property
    def t_s(self) -> list[float]:
        return [one.t_s for one in self.cycles]

    def of(self, get: Callable[[dict[str, Any]], float | None]) -> list[float]:
        values = (get(one.data) for one in self.cycles)
        return [float("nan") if value is None else value for value in values]


def draw(log: Recording, directory: Path) -> list[Path]:
    """Write a PNG for each picture into `directory`, which is made; return their paths.

    Raises LogError if nothing can be drawn or written.
    """
    cycles = list(log.entries(("/snapshot",)))
    if not cycles:
        raise LogError(f"log {log.path}: no cycle is in it")
    flight = Flight(log, cycles[:: len(cycles) // MAX_POINTS + 1], _marks(log))
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, picture in PICTURES.items():
            figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
            picture(figure, flight)
            simulated = " (simulated)" if log.session.simulated else ""
            figure.suptitle(f"{log.session.vehicle}{simulated}: {name}")
            path = directory / f"{name}.png"
            figure.savefig(path, dpi=_DPI)
            written.append(path)
    except OSError as error:
        raise LogError(f"pictures in {directory}: {error.strerror}") from error
    return written


def _altitude(figure: Figure, flight: Flight) -> None:
    axes = _axes(figure, flight, "m above the pad")
    axes.plot(flight.t_s, flight.of(lambda one: _up(one["setpoint"].get("down_m"))), label="set")
    axes.plot(flight.t_s, flight.of(lambda one: -one["position_ned_m"][2]), label="is")
    axes.legend()


def _track(figure: Figure, flight: Flight) -> None:
    axes = figure.add_subplot()
    axes.plot(
        flight.of(lambda one: one["position_ned_m"][1]),
        flight.of(lambda one: one["position_ned_m"][0]),
        label="is",
    )
    axes.plot(
        flight.of(lambda one: one["setpoint"].get("east_m")),
        flight.of(lambda one: one["setpoint"].get("north_m")),
        linestyle="--", label="set",
    )  # fmt: skip
    axes.plot(0.0, 0.0, marker="$H$", markersize=10, color="black", linestyle="none", label="pad")
    axes.set(xlabel="east, m", ylabel="north, m", aspect="equal")
    axes.grid(visible=True)
    axes.legend()


def _attitude(figure: Figure, flight: Flight) -> None:
    axes = _axes(figure, flight, "degrees")
    for angle in ("roll", "pitch"):
        values = [degrees(one.data["attitude_rad"][angle]) for one in flight.cycles]
        axes.plot(flight.t_s, values, label=angle)
    headings = flight.of(lambda one: degrees(one["attitude_rad"]["yaw"]) % 360.0)
    axes.plot(flight.t_s, _broken_at_north(headings), label="heading")
    axes.legend()


def _actuators(figure: Figure, flight: Flight) -> None:
    session = flight.log.session
    motors = [name for name in session.actuators if name not in session.servos]
    rows = [(motors, "throttle"), (session.servos, "rad")]
    rows = [(names, unit) for names, unit in rows if names]
    for number, (names, unit) in enumerate(rows, start=1):
        axes = _axes(figure, flight, unit, place=(len(rows), 1, number))
        for name in names:
            axes.plot(
                flight.t_s, [one.data["actuators"][name] for one in flight.cycles], label=name
            )
        axes.legend()


def _timings(figure: Figure, flight: Flight) -> None:
    axes = _axes(figure, flight, "ms for a cycle")
    axes.plot(flight.t_s, flight.of(lambda one: one["step_ms"]), ".", markersize=2)
    axes.axhline(1e3 / flight.log.session.rate_hz, color="red", label="the loop's period")
    axes.legend()


PICTURES: dict[str, Callable[[Figure, Flight], None]] = {
    "altitude": _altitude,
    "track": _track,
    "attitude": _attitude,
    "actuators": _actuators,
    "timings": _timings,
}


def _axes(figure: Figure, flight: Flight, unit: str, *, place: Sequence[int] = (1, 1, 1)) -> Axes:
    """Return axes over time with the marks of commands and faults."""
    axes = figure.add_subplot(*place)
    axes.set(xlabel="s", ylabel=unit)
    axes.grid(visible=True)
    for t_s, words, is_fault in flight.marks:
        color = "tab:red" if is_fault else "tab:gray"
        axes.axvline(t_s, color=color, linewidth=0.8, linestyle=":")
        axes.text(
            t_s, 1.0, words, transform=axes.get_xaxis_transform(), rotation=90, fontsize=6,
            color=color, verticalalignment="top", parse_math=False,
        )  # fmt: skip
    return axes


def _marks(log: Recording) -> list[tuple[float, str, bool]]:
    entries = log.entries(("/command", "/fault", "/event"))
    found = [(one.t_s, *mark) for one in entries if (mark := mark_of(one)) is not None]
    return found[:MAX_MARKS]


def _broken_at_north(headings_deg: list[float]) -> list[float]:
    """Return them with a gap where they step from 360 to 0: no ship turned through all of them."""
    before = [headings_deg[0], *headings_deg]
    return [
        float("nan") if abs(now - last) > 180.0 else now
        for last, now in zip(before, headings_deg, strict=False)
    ]


def _up(down_m: float | None) -> float | None:
    return None if down_m is None else -down_m
