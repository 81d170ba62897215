"""Where a ship that is weak sideways should point its nose if nobody says."""

from math import atan2, hypot

from blimp.control.modes.mode import Ship
from blimp.rotation import wrap_pi

_CALM_MPS = 0.12  # less air than this along the hull: any heading will do
_SLEW = 0.7  # of the yaw rate limit


class Nose:
    """A heading that follows the air stream: crab on a leg, into the wind at rest.

    There the whole force is along the hull: there drag is least and thrust is greatest. A
    ship that is as strong sideways points along its course and leaves it there.
    """

    def __init__(self, *, ship: Ship, yaw_rad: float) -> None:
        self._ship = ship
        self.yaw_rad = yaw_rad

    def wanted(self, north_mps: float, east_mps: float) -> float:
        """Return the heading for this velocity over ground in the wind as estimated."""
        wind_north, wind_east = self._ship.wind_mps() if self._ship.steers else (0.0, 0.0)
        north, east = north_mps - wind_north, east_mps - wind_east
        return atan2(east, north) if hypot(north, east) > _CALM_MPS else self.yaw_rad

    def follow(self, north_mps: float, east_mps: float, dt_s: float) -> float:
        """Turn towards it, no faster than the ship can, and return the heading now."""
        step = _SLEW * self._ship.airframe.limits.yaw_rate_radps * dt_s
        off = wrap_pi(self.wanted(north_mps, east_mps) - self.yaw_rad)
        self.yaw_rad = wrap_pi(self.yaw_rad + max(-step, min(step, off)))
        return self.yaw_rad
