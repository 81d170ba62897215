"""What `blimp bench` finds out about an inertial chip, and how its readings are corrected.

true = level * (scale * (read - bias)): errors of the chip first, along the axes of its mounting;
then the board's tilt against the ship, for all its sensors alike.
"""

import msgspec

from blimp.errors import BoardError
from blimp.rotation import from_euler, rotate
from blimp.types import ZERO3, Vec3

Matrix3 = tuple[Vec3, Vec3, Vec3]
UNIT3: Matrix3 = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))

# Beyond these a chip is broken or mounted wrong, not uncalibrated.
ACCEL_BIAS_MPS2, ACCEL_SCALE = (-2.0, 2.0), (0.8, 1.25)
GYRO_BIAS_RADPS = (-0.35, 0.35)  # MPU-6050 datasheet, 6.1: 20 degrees/s; the others have less
MAGNETIC_BIAS_T = (-200e-6, 200e-6)  # four times the Earth's field
MAGNETIC_DIAGONAL, MAGNETIC_OTHERS = (0.6, 1.6), (-0.4, 0.4)
MAGNETIC_DETERMINANT = (0.5, 2.0)
LEVEL_RAD = (-0.262, 0.262)  # 15 degrees


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of every inertial chip.

    accel_bias_mps2, accel_scale, gyro_bias_radps: by axis. magnetic_bias_t: hard iron.
    magnetic_matrix: soft iron, row by row. level_rad: roll and pitch of the board while the ship is
    level.
    """

    accel_bias_mps2: Vec3 = ZERO3
    accel_scale: Vec3 = (1.0, 1.0, 1.0)
    gyro_bias_radps: Vec3 = ZERO3
    magnetic_bias_t: Vec3 = ZERO3
    magnetic_matrix: Matrix3 = UNIT3
    level_rad: tuple[float, float] = (0.0, 0.0)

    def check(self, *, who: str) -> None:
        """Raise BoardError naming device, key and limit for what no chip needs."""
        matrix = self.magnetic_matrix
        diagonal = tuple(matrix[i][i] for i in range(3))
        others = tuple(matrix[i][j] for i in range(3) for j in range(3) if i != j)
        for key, values, (low, high) in (
            ("accel_bias_mps2", self.accel_bias_mps2, ACCEL_BIAS_MPS2),
            ("accel_scale", self.accel_scale, ACCEL_SCALE),
            ("gyro_bias_radps", self.gyro_bias_radps, GYRO_BIAS_RADPS),
            ("magnetic_bias_t", self.magnetic_bias_t, MAGNETIC_BIAS_T),
            ("magnetic_matrix: its diagonal", diagonal, MAGNETIC_DIAGONAL),
            ("magnetic_matrix: beside its diagonal", others, MAGNETIC_OTHERS),
            ("magnetic_matrix: its determinant", (determinant(matrix),), MAGNETIC_DETERMINANT),
            ("level_rad", self.level_rad, LEVEL_RAD),
        ):
            if not all(low <= value <= high for value in values):  # refuses NaN as well
                raise BoardError(f"{who}: {key} {values} is outside {low:g} to {high:g}")


class Correction:
    """A calibration, ready to be applied at every sample."""

    def __init__(self, calibration: Calibration, *, who: str) -> None:
        calibration.check(who=who)
        self._calibration = calibration
        roll, pitch = calibration.level_rad
        tilt = from_euler(roll, pitch, 0.0)
        columns = [rotate(tilt, axis) for axis in UNIT3]
        self._level = transposed((columns[0], columns[1], columns[2])) if roll or pitch else None

    def acceleration(self, read: Vec3) -> Vec3:
        (x, y, z), (bx, by, bz) = read, self._calibration.accel_bias_mps2
        sx, sy, sz = self._calibration.accel_scale
        return self.turned(((x - bx) * sx, (y - by) * sy, (z - bz) * sz))

    def rates(self, read: Vec3) -> Vec3:
        (x, y, z), (bx, by, bz) = read, self._calibration.gyro_bias_radps
        return self.turned((x - bx, y - by, z - bz))

    def field(self, read: Vec3) -> Vec3:
        (x, y, z), (bx, by, bz) = read, self._calibration.magnetic_bias_t
        return self.turned(times(self._calibration.magnetic_matrix, (x - bx, y - by, z - bz)))

    def field_back(self, true: Vec3) -> Vec3:
        """Return what was read: the inverse of `field`."""
        matrix = self._calibration.magnetic_matrix
        x, y, z = times(inverse(matrix), self.turned_back(true))
        bx, by, bz = self._calibration.magnetic_bias_t
        return (x + bx, y + by, z + bz)

    def turned(self, v: Vec3) -> Vec3:
        """Return a vector along the board's axes as one along the ship's."""
        return v if self._level is None else times(self._level, v)

    def turned_back(self, v: Vec3) -> Vec3:
        return v if self._level is None else times(transposed(self._level), v)


def times(matrix: Matrix3, v: Vec3) -> Vec3:
    (a, b, c), (d, e, f), (g, h, i) = matrix
    x, y, z = v
    return (a * x + b * y + c * z, d * x + e * y + f * z, g * x + h * y + i * z)


def transposed(matrix: Matrix3) -> Matrix3:
    (a, b, c), (d, e, f), (g, h, i) = matrix
    return (a, d, g), (b, e, h), (c, f, i)


def inverse(matrix: Matrix3) -> Matrix3:
    """Return the inverse. Raises ValueError if there is none."""
    (a, b, c), (d, e, f), (g, h, i) = matrix
    whole = determinant(matrix)
    if abs(whole) < 1e-12:
        raise ValueError("the matrix is singular")
    adjugate = (
        (e * i - f * h, c * h - b * i, b * f - c * e),
        (f * g - d * i, a * i - c * g, c * d - a * f),
        (d * h - e * g, b * g - a * h, a * e - b * d),
    )
    return scaled(adjugate, 1.0 / whole)


def scaled(matrix: Matrix3, by: float) -> Matrix3:
    (a, b, c), (d, e, f), (g, h, i) = matrix
    return (by * a, by * b, by * c), (by * d, by * e, by * f), (by * g, by * h, by * i)


def determinant(matrix: Matrix3) -> float:
    (a, b, c), (d, e, f), (g, h, i) = matrix
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
