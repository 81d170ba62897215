"""Is what a ship is asked to fly within the fence of its flight? Each raises ValueError if not."""

from collections.abc import Sequence
from math import hypot

from blimp.actions import SetVelocity
from blimp.airframe import Limits
from blimp.control.trajectory import TrajectoryPoint
from blimp.geofence import KEEP_M, Geofence, Place
from blimp.types import VehicleState


def check_leg(
    what: str, fence: Geofence, state: VehicleState, place: Place, altitude_m: float
) -> None:
    """The straight way from where the ship is. what: the command, for the error."""
    north, east, _ = state.position_ned_m
    _refuse(what, fence.way_problem((north, east, state.altitude_m), (*place, altitude_m)))


def check_velocity(fence: Geofence, state: VehicleState, wish: SetVelocity, limits: Limits) -> None:
    """A velocity for its time, and the way that braking takes after it."""
    north, east, _ = state.position_ned_m
    speed_mps = hypot(wish.north_mps, wish.east_mps)
    flown_s = wish.seconds + 0.5 * speed_mps / limits.acceleration_mps2
    end = (north + flown_s * wish.north_mps, east + flown_s * wish.east_mps)
    end_m = state.altitude_m + wish.seconds * wish.up_mps
    _refuse("velocity", fence.line_problem((north, east), end) if speed_mps > 0.0 else "")
    if wish.up_mps > 0.0 and (fence.floor_m is None or end_m > fence.floor_m):
        _refuse("velocity", fence.height_problem(end_m))
    if wish.up_mps < 0.0 and (fence.ceiling_m is None or end_m < fence.ceiling_m):
        _refuse("velocity", fence.height_problem(end_m))


def check_points(
    fence: Geofence, points: Sequence[TrajectoryPoint], *, before: TrajectoryPoint | None
) -> None:
    """The way through the points of a trajectory, from `before`, which they go on from.

    Far from every line nothing needs to be computed until the way is as long as that.
    """
    last, free_m = before, 0.0
    for number, point in enumerate(points, start=1):
        place = (point.north_m, point.east_m)
        problem = fence.height_problem(point.altitude_m)
        start = place if last is None else (last.north_m, last.east_m)
        free_m -= hypot(place[0] - start[0], place[1] - start[1])
        if not problem and free_m < KEEP_M:
            problem = fence.line_problem(start, place)
            free_m = fence.clearance_m(place)
        _refuse(f"trajectory: points: number {number}", problem)
        last = point


def _refuse(what: str, problem: str) -> None:
    if problem:
        raise ValueError(f"{what}: {problem}")
