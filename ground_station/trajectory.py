"""Trajectories from a file: its reader, the points that a ship is sent, and the sending.

The file is CSV with a header: `time,x_ref,y_ref,z_ref,psi_ref` in seconds, metres north, east
and down of the pad, and radians (not wrapped at a turn). `vx_ref,vy_ref,vz_ref,psi_rate_ref`
may follow; else the velocities are those of the curve.
"""

import csv
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from blimp.errors import MissionError

COLUMNS = ("time", "x_ref", "y_ref", "z_ref", "psi_ref")
RATES = ("vx_ref", "vy_ref", "vz_ref", "psi_rate_ref")
MAX_ROWS = 200_000
CHUNK = 36  # points in one command, which is one datagram of 4096 bytes
STEP_S = 0.1  # between the points that are sent
AHEAD_S = 20.0  # how far ahead of the ship's time they are sent
_HALF_S = 0.1  # to each side of a point, for its velocity: a file is rounded

Row = tuple[float, ...]


def example() -> str:
    """Return a trajectory file: a circle of 4 m in a minute, 3 m above the pad, from the pad."""
    lines = [",".join(COLUMNS)]
    for t_s in range(61):
        angle = math.tau * t_s / 60.0
        lines.append(f"{t_s},{2.0 * math.sin(angle):.3f},{2.0 - 2.0 * math.cos(angle):.3f},-3,0")
    return "\n".join(lines) + "\n"


class ReferenceCurve:
    """The rows of a file, times from 0 on: `at` lies between two of them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self._times = [row[0] for row in rows]
        self.duration_s = self._times[-1]

    def at(self, t_s: float) -> Row:
        """Return north, east, down and yaw, and what other columns there are."""
        index = max(0, min(len(self.rows) - 2, bisect_right(self._times, t_s) - 1))
        a, b = self.rows[index], self.rows[index + 1]
        share = max(0.0, min(1.0, (t_s - a[0]) / (b[0] - a[0])))
        return tuple(p + share * (q - p) for p, q in zip(a[1:], b[1:], strict=True))

    def points(self) -> list[list[float]]:
        """Return the points to send, as the command's argument has them."""
        count = max(1, math.ceil(self.duration_s / STEP_S - 1e-6))
        times = [min(self.duration_s, number * STEP_S) for number in range(count + 1)]
        return [self._point(t_s) for t_s in times]

    def _point(self, t_s: float) -> list[float]:
        n, e, d, yaw, *rates = self.at(t_s)
        if not rates:
            low, high = max(0.0, t_s - _HALF_S), min(self.duration_s, t_s + _HALF_S)
            pairs = zip(self.at(low), self.at(high), strict=True)
            rates = [(b - a) / (high - low) for a, b in pairs]
        vn, ve, vd, turn = rates
        return [round(x, 4) for x in (t_s, n, e, -d, vn, ve, -vd, yaw, turn)]


def read_curve(path: Path) -> ReferenceCurve:
    """Read a trajectory file. Raises MissionError naming file, line, column and limit."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return ReferenceCurve(_rows(csv.reader(file), str(path)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MissionError(f"trajectory {path}: {error}") from error


def _rows(lines: Iterator[list[str]], where: str) -> list[Row]:
    header = [word.strip() for word in next(lines, [])]
    if tuple(header) not in (COLUMNS, COLUMNS + RATES):
        raise MissionError(
            f"trajectory {where}: the first line is {','.join(header)[:80]!r}, must be "
            f"{','.join(COLUMNS)!r}, and may go on with {','.join(RATES)!r}"
        )
    rows: list[Row] = []
    for number, words in enumerate(lines, start=2):
        if not words:
            continue
        if len(words) != len(header):
            raise MissionError(
                f"trajectory {where}, line {number}: {len(words)} columns, must be {len(header)}"
            )
        row = tuple(_number(w, c, number, where) for w, c in zip(words, header, strict=True))
        if rows and not row[0] > rows[-1][0]:
            raise MissionError(
                f"trajectory {where}, line {number}: time {row[0]:g} is not later than "
                f"{rows[-1][0]:g}, the one before"
            )
        rows.append(row)
        if len(rows) > MAX_ROWS:
            raise MissionError(f"trajectory {where}: more than {MAX_ROWS} lines, the limit")
    if len(rows) < 2:
        raise MissionError(f"trajectory {where}: {len(rows)} points, must be at least 2")
    first_s = rows[0][0]
    return [(row[0] - first_s, *row[1:]) for row in rows]


def _number(word: str, column: str, line: int, where: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise MissionError(
            f"trajectory {where}, line {line}: {column} is {word.strip()[:40]!r}, "
            "must be a finite number"
        )
    return value


def chunks(name: str, points: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Return the arguments of the commands that carry `points`, in order."""
    parts = [points[first : first + CHUNK] for first in range(0, len(points), CHUNK)]
    return [
        {"name": name, "points": part, "last": number == len(parts)}
        for number, part in enumerate(parts, start=1)
    ]
