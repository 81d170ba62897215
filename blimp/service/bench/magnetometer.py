"""A magnetometer's hard and soft iron, from readings in every direction.

They lie on an ellipsoid; true ones lie on a sphere about 0. Source: NXP AN5019, "Magnetic
Calibration Algorithms", the ten-element model: a quadric by least squares, whose centre is the hard
iron, and the root of whose matrix undoes the soft iron.
A turn that all directions share cannot be seen, so the root is the symmetric one.
"""

from collections.abc import Sequence
from math import hypot, sqrt

import msgspec

from blimp.hardware.calibration import (
    UNIT3,
    Matrix3,
    determinant,
    inverse,
    scaled,
    times,
    transposed,
)
from blimp.linear import solve
from blimp.service.bench.airframe_file import AirframeFile
from blimp.service.bench.inertial import Sensor, rounded, sensor
from blimp.service.bench.person import Person
from blimp.service.bench.ship import BenchShip
from blimp.types import Vec3

EARTH_T = (20e-6, 70e-6)  # the Earth's field has 22 to 67 µT: World Magnetic Model 2020
RESIDUAL_T = 1.6e-6  # rms; ArduPilot's COMPASS_CAL_FIT, 16 mG
DIRECTIONS = [
    (float(x), float(y), float(z))
    for x in (-1, 0, 1)
    for y in (-1, 0, 1)
    for z in (-1, 0, 1)
    if abs(x) + abs(y) + abs(z) in (1, 3)
]  # of a cube: its faces and its corners
LEAST_DIRECTIONS, LEAST_READINGS = 12, 3  # so many directions with so many readings each
ROUND_SAMPLES = 200  # 20 s
_SCALE_T = 50e-6  # keeps the numbers near 1
_ROOT_STEPS = 30


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """True is matrix * (reading - bias_t), a sphere of radius field_t about 0.

    directions: how many of `DIRECTIONS` were seen often enough. residual_t: from the sphere, rms.
    """

    bias_t: Vec3
    matrix: Matrix3
    field_t: float
    directions: int
    residual_t: float

    def problem(self) -> str:
        """Return why this is not to be used, "" if it may."""
        if self.directions < LEAST_DIRECTIONS:
            return (
                f"{self.directions} of {len(DIRECTIONS)} directions were seen, "
                f"{LEAST_DIRECTIONS} are needed"
            )
        if self.residual_t > RESIDUAL_T:
            return (
                f"the readings miss the ellipsoid by {1e6 * self.residual_t:.1f} µT, "
                f"{1e6 * RESIDUAL_T:.1f} are allowed: iron or a current moved beside it"
            )
        if not EARTH_T[0] <= self.field_t <= EARTH_T[1]:
            return (
                f"the field is {1e6 * self.field_t:.0f} µT, the Earth's {1e6 * EARTH_T[0]:.0f} to "
                f"{1e6 * EARTH_T[1]:.0f}: iron or a current is near"
            )
        return ""


def fit(readings_t: Sequence[Vec3]) -> Fit:
    """Return the best ellipsoid. Raises ValueError with the reason if there is none."""
    points = [(x / _SCALE_T, y / _SCALE_T, z / _SCALE_T) for x, y, z in readings_t]
    rows = [(x * x, y * y, z * z, 2 * x * y, 2 * x * z, 2 * y * z, x, y, z) for x, y, z in points]
    normal = [[sum(row[i] * row[j] for row in rows) for j in range(9)] for i in range(9)]
    try:
        solved = solve(normal, [[sum(row[i] for row in rows)] for i in range(9)])
        a, b, c, d, e, f, g, h, i = (value for (value,) in solved)
        quadric: Matrix3 = ((a, d, e), (d, b, f), (e, f, c))
        centre = times(inverse(quadric), (-0.5 * g, -0.5 * h, -0.5 * i))
    except ValueError:
        raise ValueError(
            f"{len(points)} readings are of too few directions for an ellipsoid"
        ) from None
    squared = 1.0 + sum(p * q for p, q in zip(centre, times(quadric, centre), strict=True))
    shape = scaled(quadric, 1.0 / squared) if squared else quadric
    first, second = shape[0][0], shape[0][0] * shape[1][1] - shape[0][1] ** 2
    if not (first > 0.0 and second > 0.0 and determinant(shape) > 0.0):
        raise ValueError(
            f"{len(points)} readings lie on no ellipsoid: they are of too few directions"
        )
    root = _root(shape)
    radius = determinant(root) ** (-1.0 / 3.0)
    on_sphere = [times(root, _minus(point, centre)) for point in points]
    misses = [hypot(*point) - 1.0 for point in on_sphere]
    return Fit(
        bias_t=(centre[0] * _SCALE_T, centre[1] * _SCALE_T, centre[2] * _SCALE_T),
        matrix=scaled(root, radius),
        field_t=radius * _SCALE_T,
        directions=_seen(on_sphere),
        residual_t=radius * _SCALE_T * sqrt(sum(miss * miss for miss in misses) / len(misses)),
    )


def magnetometer(file: AirframeFile, ship: BenchShip, person: Person) -> None:
    """Hard and soft iron, while a person turns the ship, or the board, every way."""
    device = sensor(file, ship, person)
    if device is None:
        return
    readings: list[Vec3] = []
    question = (
        "Far from iron and wires with current, turn the board slowly so that each side has "
        f"pointed up, down and all round; for {ROUND_SAMPLES // 10} s"
    )
    while person.choose(question, "ready", "stop") == "ready":
        fresh = _fields(device)
        if not fresh:
            person.note(f"{device.name} measures no magnetic field")
            return
        readings += fresh
        try:
            found = fit(readings)
            problem = found.problem()
        except ValueError as error:
            problem = str(error)
        else:
            bias = rounded(found.bias_t, digits=9)
            matrix = [rounded(row) for row in found.matrix]
            if not problem and device.set(person, magnetic_bias_t=bias, magnetic_matrix=matrix):
                person.note(
                    f"{len(readings)} readings, {found.directions} directions; they miss the "
                    f"ellipsoid by {1e6 * found.residual_t:.2f} µT; the field has "
                    f"{1e6 * found.field_t:.1f} µT"
                )
                return
        if (
            problem
            and person.choose(f"{problem}: nothing changed", "go on", "start again")
            == "start again"
        ):
            readings.clear()


def _fields(device: Sensor) -> list[Vec3]:
    """Return the raw fields of one round, in tesla."""
    return [
        device.raw_field_t((1e-6 * row[6], 1e-6 * row[7], 1e-6 * row[8]))
        for row in device.read(ROUND_SAMPLES)
        if len(row) == 9
    ]


def _seen(points: Sequence[Vec3]) -> int:
    counts = dict.fromkeys(DIRECTIONS, 0)
    for point in points:
        nearest = max(
            DIRECTIONS,
            key=lambda d: sum(a * b for a, b in zip(d, point, strict=True)) / hypot(*d),
        )
        counts[nearest] += 1
    return sum(count >= LEAST_READINGS for count in counts.values())


def _root(matrix: Matrix3) -> Matrix3:
    """Return the symmetric root of a positive matrix: Denman and Beavers' iteration."""
    root, other = matrix, UNIT3
    for _ in range(_ROOT_STEPS):
        root, other = _mean(root, inverse(other)), _mean(other, inverse(root))
    return _mean(root, transposed(root))


def _mean(one: Matrix3, other: Matrix3) -> Matrix3:
    rows = [
        [0.5 * (p + q) for p, q in zip(a, b, strict=True)] for a, b in zip(one, other, strict=True)
    ]
    (a, b, c), (d, e, f), (g, h, i) = rows
    return (a, b, c), (d, e, f), (g, h, i)


def _minus(one: Vec3, other: Vec3) -> Vec3:
    return (one[0] - other[0], one[1] - other[1], one[2] - other[2])
