"""An accelerometer's bias and scale from six positions.

Source: the six-position test (Titterton and Weston, Strapdown Inertial Navigation Technology,
section 8.3): with an axis up and down, half the sum is its bias, half the difference over g is
its scale. Specific force in the body frame: (0, 0, -g) level and at rest.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from blimp.types import Vec3

G_MPS2 = 9.80665
TOLERANCE_MPS2 = 2.0  # of a reading to its position: more is another position, or a fault
_DIGITS = 5


class Position(msgspec.Struct, frozen=True):
    """axis: of the body, along the vertical. sign: of the specific force on it."""

    name: str
    axis: int
    sign: float

    def problem(self, accel: Vec3) -> str:
        """Return why a reading cannot be of this position, "" if it can."""
        for axis, value in enumerate(accel):
            expected = self.sign * G_MPS2 if axis == self.axis else 0.0
            if abs(value - expected) > TOLERANCE_MPS2:
                return (
                    f"reads {accel[0]:.1f}, {accel[1]:.1f}, {accel[2]:.1f} m/s², which is not "
                    f"{self.name}"
                )
        return ""


POSITIONS = (
    Position("level", 2, -1.0),
    Position("upside down", 2, 1.0),
    Position("nose up", 0, 1.0),
    Position("nose down", 0, -1.0),
    Position("on its left side", 1, 1.0),
    Position("on its right side", 1, -1.0),
)


class Calibration(msgspec.Struct, frozen=True):
    """True is (read - bias) times scale, on each axis of the body."""

    bias_mps2: Vec3 = (0.0, 0.0, 0.0)
    scale: Vec3 = (1.0, 1.0, 1.0)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Calibration":
        """Return what a driver's options say."""
        bias = tuple(options.get("accel_bias_mps2", (0.0, 0.0, 0.0)))
        return cls(bias_mps2=bias, scale=tuple(options.get("accel_scale", (1.0, 1.0, 1.0))))

    def after(self, other: "Calibration") -> "Calibration":
        """Return both in one: this one was found on what `other` had made."""
        bias = [
            was + now / scale
            for was, now, scale in zip(other.bias_mps2, self.bias_mps2, other.scale, strict=True)
        ]
        scale = [a * b for a, b in zip(self.scale, other.scale, strict=True)]
        return Calibration(bias_mps2=_vector(bias), scale=_vector(scale))

    def bias_list(self) -> list[float]:
        return [round(value, _DIGITS) for value in self.bias_mps2]

    def scale_list(self) -> list[float]:
        return [round(value, _DIGITS) for value in self.scale]


def solve(readings: Mapping[str, Vec3]) -> Calibration:
    """Return the calibration from the mean reading of every position."""
    bias, scale = [0.0] * 3, [0.0] * 3
    for axis in range(3):
        plus, minus = (
            next(readings[p.name][axis] for p in POSITIONS if (p.axis, p.sign) == (axis, sign))
            for sign in (1.0, -1.0)
        )
        bias[axis] = 0.5 * (plus + minus)
        scale[axis] = 2.0 * G_MPS2 / (plus - minus)
    return Calibration(bias_mps2=_vector(bias), scale=_vector(scale))


def _vector(values: list[float]) -> Vec3:
    x, y, z = values
    return x, y, z
