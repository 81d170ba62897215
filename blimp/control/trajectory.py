"""A path in time: points of position, velocity and heading, and the curve through them."""

from collections.abc import Sequence
from math import hypot, isfinite

import msgspec

from blimp.airframe import Airframe, Limits
from blimp.types import TrajectoryPoint as TrajectoryPoint
from blimp.types import Vec3

MIN_ALTITUDE_M = 0.3  # lower, its feet may touch the ground
MAX_POINTS = 4000  # that wait to be flown, all chunks together
MAX_CHUNK = 64  # points of one command
MAX_STEP_S = 5.0  # between two points: a lost chunk is a longer gap
_SLACK = 1.1  # of a limit of speed: the mean over a step, of rounded numbers


class TrajectorySample(msgspec.Struct, frozen=True, gc=False):
    """Where the ship should be at one time, and how it should move there."""

    position_ned_m: Vec3
    velocity_ned_mps: Vec3
    acceleration_ned_mps2: Vec3
    yaw_rad: float | None
    yaw_rate_radps: float


class Trajectory:
    """Points in order of time, of which the newest win, and the cubic between each two.

    Source: the cubic Hermite interpolant of Fritsch & Carlson, "Monotone piecewise cubic
    interpolation" (1980), equation 2, which passes through each point at its velocity.
    """

    def __init__(self, points: Sequence[TrajectoryPoint]) -> None:
        self._points = list(points)
        self._index = 0

    @property
    def first(self) -> TrajectoryPoint:
        return self._points[0]

    @property
    def last(self) -> TrajectoryPoint:
        return self._points[-1]

    def extend(self, points: Sequence[TrajectoryPoint], *, flown_s: float, limits: Limits) -> None:
        """Replace everything from the first of `points` on; forget what was flown.

        Raises ValueError, and changes nothing, for a gap, a jump, a time that has passed, or
        too many points.
        """
        first_s = points[0].t_s
        if first_s < flown_s:
            raise ValueError(
                f"points: the first, at {first_s:g} s, is in the past: the ship is at {flown_s:g} s"
            )
        kept = [p for p in self._points[max(0, self._index - 1) :] if p.t_s < first_s]
        if len(kept) + len(points) > MAX_POINTS:
            raise ValueError(
                f"points: {len(kept) + len(points)} would wait, the limit is {MAX_POINTS}: "
                "send the rest later"
            )
        problem = step_problem(kept[-1], points[0], limits) if kept else ""
        if problem:
            raise ValueError(f"points: number 1, at {first_s:g} s: {problem}")
        self._points, self._index = kept + list(points), 0

    def at(self, t_s: float) -> TrajectorySample:
        """Return the curve at `t_s`: before its first point that point, at rest; so after it."""
        points = self._points
        if not points[0].t_s < t_s < points[-1].t_s:
            return _at_rest(points[0] if t_s <= points[0].t_s else points[-1])
        index = self._index if points[self._index].t_s <= t_s else 0
        while points[index + 1].t_s <= t_s:
            index += 1
        self._index = index
        a, b = points[index], points[index + 1]
        h = b.t_s - a.t_s
        u = (t_s - a.t_s) / h
        n, vn, an = _hermite(u, h, a.north_m, a.north_mps, b.north_m, b.north_mps)
        e, ve, ae = _hermite(u, h, a.east_m, a.east_mps, b.east_m, b.east_mps)
        z, vz, az = _hermite(u, h, a.altitude_m, a.up_mps, b.altitude_m, b.up_mps)
        yaw, rate = a.yaw_rad, a.yaw_rate_radps
        if yaw is not None and b.yaw_rad is not None:
            yaw, rate, _ = _hermite(u, h, yaw, rate, b.yaw_rad, b.yaw_rate_radps)
        return TrajectorySample((n, e, -z), (vn, ve, -vz), (an, ae, -az), yaw, rate)


def check(points: Sequence[TrajectoryPoint], airframe: Airframe) -> None:
    """Raise ValueError naming the point, its value and the limit, if a ship cannot fly them."""
    if not 1 <= len(points) <= MAX_CHUNK:
        raise ValueError(f"points: {len(points)} of them, the limits are 1 to {MAX_CHUNK}")
    for number, point in enumerate(points, start=1):
        problem = _problem(point, airframe)
        if not problem and number > 1:
            problem = step_problem(points[number - 2], point, airframe.limits)
        if problem:
            raise ValueError(f"points: number {number}: {problem}")


def step_problem(a: TrajectoryPoint, b: TrajectoryPoint, limits: Limits) -> str:
    """Return why no ship can fly from `a` to `b`, or ""."""
    h = b.t_s - a.t_s
    if not 0.0 < h <= MAX_STEP_S:
        return f"is {h:g} s after the one before, must be more than 0 to {MAX_STEP_S:g} s"
    speed_mps = hypot(b.north_m - a.north_m, b.east_m - a.east_m) / h
    if speed_mps > _SLACK * limits.speed_mps:
        return f"needs {speed_mps:.2f} m/s to be reached, the limit is {limits.speed_mps:g}"
    up_mps = (b.altitude_m - a.altitude_m) / h
    if not -_SLACK * limits.descent_mps <= up_mps <= _SLACK * limits.climb_mps:
        return (
            f"needs {up_mps:.2f} m/s upwards, the limits are {-limits.descent_mps:g} to "
            f"{limits.climb_mps:g}"
        )
    if (a.yaw_rad is None) != (b.yaw_rad is None):
        return "yaw_rad: some points have one and others do not"
    if a.yaw_rad is not None and b.yaw_rad is not None:
        rate = abs(b.yaw_rad - a.yaw_rad) / h
        if rate > _SLACK * limits.yaw_rate_radps:
            return f"needs a turn of {rate:.2f} rad/s, the limit is {limits.yaw_rate_radps:g}"
    return ""


def _problem(point: TrajectoryPoint, airframe: Airframe) -> str:
    limits = airframe.limits
    for name in point.__struct_fields__:
        value = getattr(point, name)
        if value is not None and not isfinite(value):
            return f"{name} is {value}, must be a finite number"
    if not MIN_ALTITUDE_M <= point.altitude_m <= limits.max_altitude_m:
        return (
            f"altitude_m is {point.altitude_m:g}, must be within {MIN_ALTITUDE_M:g} to "
            f"{limits.max_altitude_m:g} m"
        )
    distance_m = hypot(point.north_m, point.east_m)
    if distance_m > limits.max_distance_m:
        return (
            f"is {distance_m:g} m from the pad, the limit is {limits.max_distance_m:g} m "
            f"(max_distance_m of {airframe.name})"
        )
    speed_mps = hypot(point.north_mps, point.east_mps)
    if speed_mps > _SLACK * limits.speed_mps:
        return f"flies at {speed_mps:.2f} m/s, the limit is {limits.speed_mps:g}"
    if not -_SLACK * limits.descent_mps <= point.up_mps <= _SLACK * limits.climb_mps:
        return (
            f"up_mps is {point.up_mps:g}, must be within {-limits.descent_mps:g} to "
            f"{limits.climb_mps:g}"
        )
    if abs(point.yaw_rate_radps) > _SLACK * limits.yaw_rate_radps:
        return f"turns at {point.yaw_rate_radps:g} rad/s, the limit is {limits.yaw_rate_radps:g}"
    return ""


def _at_rest(point: TrajectoryPoint) -> TrajectorySample:
    place = (point.north_m, point.east_m, -point.altitude_m)
    return TrajectorySample(place, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), point.yaw_rad, 0.0)


def _hermite(
    u: float, h: float, a: float, va: float, b: float, vb: float
) -> tuple[float, float, float]:
    """Return value, slope and curvature at the share `u` of a step of `h`."""
    va, vb = va * h, vb * h
    c2 = 3.0 * (b - a) - 2.0 * va - vb
    c3 = 2.0 * (a - b) + va + vb
    return (
        a + u * (va + u * (c2 + u * c3)),
        (va + u * (2.0 * c2 + u * 3.0 * c3)) / h,
        (2.0 * c2 + 6.0 * u * c3) / (h * h),
    )
