"""How an inertial chip sits on the ship: from chip axes to body axes."""

from collections.abc import Callable

from blimp.errors import BoardError
from blimp.types import Vec3

FLAT = ("x", "-y", "-z")  # lying flat, its x forward and its z up; y is then to the left
_AXES = {"x": (1, 0, 0), "y": (0, 1, 0), "z": (0, 0, 1)}


class Mounting:
    """The chip axis, with its sign, that points forward, right and down.

    Raises BoardError where they are no right-handed set: a mirrored IMU flies upside down.
    """

    def __init__(self, axes: tuple[str, str, str], *, who: str) -> None:
        rows: list[Vec3] = []
        for text in axes:
            axis = _AXES.get(text.removeprefix("-").removeprefix("+"))
            if axis is None:
                raise BoardError(f"{who}: mounting {text!r} is none of x, y, z, -x, -y, -z")
            rows.append(_scale(axis, -1.0 if text.startswith("-") else 1.0))
        (a, b, c), (d, e, f), (g, h, i) = rows
        if a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g) != 1.0:
            raise BoardError(
                f"{who}: mounting {', '.join(axes)} is not right-handed: "
                "forward cross right must give down"
            )
        self._rows = (rows[0], rows[1], rows[2])

    def turn(self, by: float) -> Callable[[float, float, float], Vec3]:
        """Return a function from counts along the chip's axes to body axes, times `by`."""
        (fx, fy, fz), (rx, ry, rz), (dx, dy, dz) = (_scale(row, by) for row in self._rows)

        def turned(x: float, y: float, z: float) -> Vec3:
            return (
                fx * x + fy * y + fz * z,
                rx * x + ry * y + rz * z,
                dx * x + dy * y + dz * z,
            )

        return turned


def _scale(axis: tuple[float, float, float], by: float) -> Vec3:
    return (axis[0] * by, axis[1] * by, axis[2] * by)
