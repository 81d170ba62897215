"""The top-down picture: home, the mission's legs, where the ship has been and where it is.

North is up and east is right, to one scale.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from ground_station.braille import Canvas, Cell
from ground_station.track import TrackLeg

MIN_SPAN_M = 6.0
FARTHEST_M = 1e6
MARGIN = 1.15
# Scales are steps of Renard's R10 series, so that a drifting ship does not breathe the map.
_SERIES = (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0, 10.0)
_ARROWS = "↑↗→↘↓↙←↖"

Point = tuple[float, float]  # north, east in metres


class MapPicture(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of cells, and the scale bar that belongs to them."""

    rows: list[list[Cell]]
    bar_columns: int
    bar_m: float


def draw_map(
    *,
    columns: int,
    rows: int,
    ship: Point,
    yaw_rad: float,
    legs: Sequence[TrackLeg] = (),
    current: TrackLeg | None = None,
    trail: Sequence[Point] = (),
) -> MapPicture:
    """Draw everything that matters into `columns` by `rows` characters."""
    canvas = Canvas(columns=columns, rows=rows)
    fixed: list[Point] = [(0.0, 0.0)]
    for leg in legs:
        fixed += [leg.start[:2], leg.end[:2]]
    north, east, span_n, span_e = _bounds([*fixed, ship, *trail])
    dot_m = _round_up(max(span_e / canvas.width_dots, span_n / canvas.height_dots))

    def place(point: Point) -> Point:
        x = 0.5 * (canvas.width_dots - 1) + (point[1] - east) / dot_m
        y = 0.5 * (canvas.height_dots - 1) - (point[0] - north) / dot_m
        return x, y

    for leg in legs:
        canvas.line(place(leg.start[:2]), place(leg.end[:2]), "bright_black", every=3)
    if current is not None:
        canvas.line(place(current.start[:2]), place(current.end[:2]), "yellow", every=2)
    for before, after in pairwise(filter(_on_a_map, trail)):
        canvas.line(place(before), place(after), "cyan")
    canvas.mark(*place((0.0, 0.0)), "H", "bold green")
    if current is not None:
        canvas.mark(*place(current.end[:2]), "x", "bold yellow")
    if _on_a_map(ship) and math.isfinite(yaw_rad):
        canvas.mark(
            *place(ship), _ARROWS[round(yaw_rad % math.tau / (math.pi / 4.0)) % 8], "bold magenta"
        )
    bar_m = _round_down_125(dot_m * 2.0 * max(4.0, columns / 4.0))
    return MapPicture(
        rows=canvas.cells(), bar_columns=max(1, round(bar_m / (2.0 * dot_m))), bar_m=bar_m
    )


def _bounds(points: Iterable[Point]) -> tuple[float, float, float, float]:
    """Return the centre (north, east) and the spans, with a margin."""
    good = list(filter(_on_a_map, points))
    norths, easts = [p[0] for p in good], [p[1] for p in good]
    return (
        0.5 * (min(norths) + max(norths)),
        0.5 * (min(easts) + max(easts)),
        MARGIN * max(MIN_SPAN_M, max(norths) - min(norths)),
        MARGIN * max(MIN_SPAN_M, max(easts) - min(easts)),
    )


def _on_a_map(point: Point) -> bool:
    """Say whether a map can hold `point`; nothing else may break the view."""
    return all(abs(part) <= FARTHEST_M for part in point)  # False for NaN


def _round_up(value: float) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    return next(decade * step for step in _SERIES if decade * step >= value * 0.999)


def _round_down_125(value: float) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    return max(decade * step for step in (1.0, 2.0, 5.0) if decade * step <= value * 1.001)
