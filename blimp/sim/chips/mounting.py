"""How an inertial chip sits on the ship: the `mounting` option of its row.

`mounting` names the chip axis, with its sign, that points forward, right and down.
"""

from collections.abc import Callable

from blimp.airframe import Device
from blimp.errors import BoardError
from blimp.types import Vec3

FLAT = ("x", "-y", "-z")  # lying flat, chip x forward, chip z up
_AXES = {"x": 0, "y": 1, "z": 2}


def body_to_chip(device: Device) -> Callable[[Vec3], Vec3]:
    """Return a function from body vectors to chip vectors. Raises BoardError, naming the row."""
    mounting = device.options.get("mounting", FLAT)
    where: dict[int, tuple[int, float]] = {}  # chip axis -> body axis, sign
    for body_axis, text in enumerate(mounting):
        axis = _AXES.get(str(text).lstrip("+-"))
        if axis is None or axis in where:
            raise BoardError(
                f"{device.name}: mounting {list(mounting)} must name the axes x, y and z once each"
            )
        where[axis] = (body_axis, -1.0 if str(text).startswith("-") else 1.0)
    if len(where) != 3:
        raise BoardError(f"{device.name}: mounting {list(mounting)} has not three axes")
    (i, a), (j, b), (k, c) = where[0], where[1], where[2]

    def turn(v: Vec3) -> Vec3:
        return (a * v[i], b * v[j], c * v[k])

    return turn
