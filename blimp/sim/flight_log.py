"""Logs of flights that others flew: motion capture and inputs, as arrays.

Two kinds are read, recognised by their columns. RGBlimp (github.com/zhu-yj/ABNODE): 60 Hz without
a column of time, thrusts of two propellers and the gondola's place. GT-MAB (github.com/evannsm/
blimp_work): a column of time, force and torque of all thrusters together. Both are SI, north-east-
down and forward-right-down, angles roll, pitch, yaw.
"""

import csv
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blimp.errors import ConfigError

Floats = NDArray[np.float64]
LARGEST_BYTES = 50_000_000  # an hour of these logs has 50 MB
LARGEST = 1e6  # of a number: nothing of a flight in a hall comes near
RGBLIMP_HZ = 60.0
FEWEST_ROWS = 2

_XYZ = ("1", "2", "3")
_RGBLIMP = (
    *(f"p_{i}" for i in _XYZ),
    *(f"e_{i}" for i in _XYZ),
    *(f"vb_{i}" for i in _XYZ),
    *(f"wb_{i}" for i in _XYZ),
    *(f"vb_dot_{i}" for i in _XYZ),
    *(f"wb_dot_{i}" for i in _XYZ),
    *("Fl_series", "Fr_series"),
    *(f"rb_series_{i}" for i in _XYZ),
)
_GTMAB = (
    *("x", "y", "z", "phi", "theta", "psi", "vx", "vy", "vz", "wx", "wy", "wz"),
    *("vxdot", "vydot", "vzdot", "wxdot", "wydot", "wzdot"),
    *("fx", "fy", "fz", "tauz", "time"),
)


@dataclass(frozen=True, kw_only=True)
class FlightLog:
    """One flight; every array has one column a sample.

    accelerations: rates of change of body velocity and body rates. What drove it is one of three:
    thrusts_n, by thruster; `wrench`, the commanded fx, fy, fz (N) and torque about z (N m); or
    `throttles`, by thruster. moving_m: where the part that a servo moves is, from the centre of
    buoyancy; angles_rad: what the servos were asked, by name.
    """

    path: Path
    t_s: Floats
    position_ned_m: Floats
    euler_rad: Floats
    velocity_body_mps: Floats
    rates_body_radps: Floats
    accelerations: Floats
    thrusts_n: dict[str, Floats]
    wrench: Floats | None
    moving_m: Floats | None
    throttles: dict[str, Floats] = field(default_factory=dict)
    angles_rad: dict[str, Floats] = field(default_factory=dict)


def read(path: Path) -> FlightLog:
    """Read a log. Raises ConfigError naming file, line, column and limit where it is no good."""
    try:
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            raise ConfigError(
                f"log {path}: {size / 1e6:.0f} MB, at most {LARGEST_BYTES / 1e6:.0f} MB are read"
            )
        with path.open(encoding="utf-8", newline="") as file:
            names, values = _columns(path, csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"log {path}: {error}") from error
    if names is _RGBLIMP:
        return FlightLog(
            path=path,
            t_s=np.arange(values.shape[1]) / RGBLIMP_HZ,
            position_ned_m=values[0:3],
            euler_rad=values[3:6],
            velocity_body_mps=values[6:9],
            rates_body_radps=values[9:12],
            accelerations=values[12:18],
            thrusts_n={"left": values[18], "right": values[19]},
            wrench=None,
            moving_m=values[20:23],
        )
    t_s = values[22]
    back = np.flatnonzero(np.diff(t_s) <= 0.0)
    if back.size:
        i = int(back[0])
        raise ConfigError(
            f"log {path}: line {i + 3}: time {t_s[i + 1]:g} s does not come after {t_s[i]:g} s"
        )
    return FlightLog(
        path=path,
        t_s=t_s - t_s[0],
        position_ned_m=values[0:3],
        euler_rad=values[3:6],
        velocity_body_mps=values[6:9],
        rates_body_radps=values[9:12],
        accelerations=values[12:18],
        thrusts_n={},
        wrench=values[18:22],
        moving_m=None,
    )


def _columns(path: Path, rows: Any, /) -> tuple[tuple[str, ...], Floats]:
    """Return the names of a kind of log and its numbers, one row a column of the file."""
    header = [name.strip() for name in next(rows, [])]
    if not header:
        raise ConfigError(f"log {path}: is empty")
    kinds = {"RGBlimp": _RGBLIMP, "GT-MAB": _GTMAB}
    missing = {kind: [n for n in names if n not in header] for kind, names in kinds.items()}
    kind = min(missing, key=lambda k: len(missing[k]))
    if missing[kind]:
        raise ConfigError(
            f"log {path}: is no log of RGBlimp or GT-MAB: of {kind}'s columns it lacks "
            f"{', '.join(missing[kind])}"
        )
    names = kinds[kind]
    places = [header.index(name) for name in names]
    found: list[list[float]] = []
    for row in rows:
        if not row:
            continue
        line = rows.line_num
        if len(row) < len(header):
            raise ConfigError(
                f"log {path}: line {line} has {len(row)} of {len(header)} columns: cut off?"
            )
        try:
            numbers = [float(row[place]) for place in places]
        except ValueError as error:
            raise ConfigError(f"log {path}: line {line}: {error}") from error
        for name, number in zip(names, numbers, strict=True):
            if not (isfinite(number) and abs(number) <= LARGEST):
                raise ConfigError(
                    f"log {path}: line {line}: {name} is {number!r}, must be finite and at most "
                    f"{LARGEST:g}"
                )
        found.append(numbers)
    if len(found) < FEWEST_ROWS:
        raise ConfigError(f"log {path}: {len(found)} samples, at least {FEWEST_ROWS} are needed")
    return names, np.array(found).T
