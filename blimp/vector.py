"""Numbers held in bounds, and 3-vectors on plain tuples."""

from blimp.types import Vec3


def within(value: float, limit: float) -> float:
    """Return `value` held within -limit to limit; NaN gives the limit."""
    if value < limit:
        return value if value > -limit else -limit
    return limit


def minus(a: Vec3, b: Vec3) -> Vec3:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


def dot(a: Vec3, b: Vec3) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a: Vec3, b: Vec3) -> Vec3:
    return (
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    )
