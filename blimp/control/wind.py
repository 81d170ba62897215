"""The wind, from the force it takes to hold against it.

On each body axis the thrusters give the mass its acceleration and balance the drag of the
air-relative velocity. What they give beyond what the present estimate explains moves the
estimate, about as fast as `_SETTLE_S`. It is exact where it matters: with the nose in the
air stream no side force is left, whatever the drag coefficients really are.
"""

from math import hypot

from blimp.airframe import Aero

_SETTLE_S = 6.0
_FLOOR_MPS = 0.15  # drag is so flat below this airspeed that its slope tells nothing
_TURNING_RADPS = 0.25  # turning makes side forces of its own: no update from here on


class WindObserver:
    """Horizontal wind over ground, north and east, in m/s."""

    def __init__(self, *, aero: Aero, limit_mps: float) -> None:
        self._linear = aero.linear_drag
        self._quadratic = aero.quadratic_drag
        self._limit_mps = limit_mps
        self.north_mps = 0.0
        self.east_mps = 0.0

    def reset(self) -> None:
        self.north_mps = self.east_mps = 0.0

    def drag(self, axis: int, airspeed_mps: float) -> float:
        """Return the force that keeps this airspeed up along one body axis, in N."""
        return airspeed_mps * (self._linear[axis] + self._quadratic[axis] * abs(airspeed_mps))

    def update(
        self,
        *,
        force_n: tuple[float, float],
        velocity_mps: tuple[float, float],
        heading: tuple[float, float],
        yaw_rate_radps: float,
        dt_s: float,
    ) -> None:
        """Learn from one cycle.

        force_n: what the thrusters give along and across the heading, the part that
        accelerates the ship taken out. velocity_mps: over ground, likewise.
        heading: its cosine and sine.
        """
        c, s = heading
        share = max(0.0, 1.0 - abs(yaw_rate_radps) / _TURNING_RADPS) * dt_s / _SETTLE_S
        if share == 0.0:
            return
        wind = (c * self.north_mps + s * self.east_mps, c * self.east_mps - s * self.north_mps)
        learnt = []
        for axis in (0, 1):
            airspeed = velocity_mps[axis] - wind[axis]
            slope = self._linear[axis] + 2.0 * self._quadratic[axis] * max(
                _FLOOR_MPS, abs(airspeed)
            )
            unexplained = force_n[axis] - self.drag(axis, airspeed)
            learnt.append(wind[axis] - share * unexplained / max(slope, 1e-6))
        x, y = learnt
        north, east = c * x - s * y, s * x + c * y
        shrink = self._limit_mps / max(self._limit_mps, hypot(north, east))
        self.north_mps, self.east_mps = north * shrink, east * shrink
