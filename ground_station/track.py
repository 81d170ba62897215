"""The lines a mission draws, and how far a ship is from them."""

from math import hypot
from typing import NamedTuple

from blimp.types import Vec3

Place = tuple[float, float, float]  # north, east, altitude: metres, altitude up-positive


class TrackLeg(NamedTuple):
    """A straight line from one place to another; `start == end` if the ship waits."""

    start: Place
    end: Place


def cross_track_m(leg: TrackLeg, position_ned_m: Vec3) -> float:
    """Return the horizontal distance from a position to the line of `leg`.

    The line ends where the leg ends: before its start and past its end the distance is that
    to the end point, so an overshoot counts. On a vertical leg it is the distance from the
    vertical.
    """
    (n0, e0, _), (n1, e1, _) = leg
    north, east = position_ned_m[0] - n0, position_ned_m[1] - e0
    along_n, along_e = n1 - n0, e1 - e0
    length2 = along_n * along_n + along_e * along_e
    if length2 == 0.0:
        return hypot(north, east)
    share = max(0.0, min(1.0, (north * along_n + east * along_e) / length2))
    return hypot(north - share * along_n, east - share * along_e)
