"""A straight leg with a speed that rises, stays and falls: a reference moving along a line."""

from math import sqrt

import msgspec

from blimp.airframe import Limits
from blimp.types import ZERO3, Vec3
from blimp.vector import dot, minus

_LEASH_M = 0.5  # the ship may trail the reference by this much ...
_LEASH_END_M = 1.5  # ... and here the reference waits for it
_ASIDE_M = 0.35  # ... and it may be beside the line by this much
_ASIDE_END_M = 1.2  # ... and here the reference waits for it
_ASIDE_LEAST = 0.25  # of the speed, straight up or down: 60 s for the 4 m that a ship climbs in 15


class Reference(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where the ship should be now, and how fast it should move there."""

    position_ned_m: Vec3
    velocity_ned_mps: Vec3
    acceleration_ned_mps2: Vec3
    done: bool


def patience(lag: float, first: float, end: float) -> float:
    """Return at what share of its speed a reference goes on: 1 up to `first`, 0 from `end` on."""
    return max(0.0, min(1.0, (end - lag) / (end - first)))


class Leg:
    """From `start_ned_m` to `end_ned_m`, within the ship's limits.

    The reference waits for a ship that trails behind, so that wind stretches a leg in time
    and not sideways. Straight up or down it goes on slowly beside its line: in wind that the ship
    can only just hold a take-off stayed low for ever. Source: the trapezoidal profile of Biagiotti
    & Melchiorri, "Trajectory Planning for Automatic Machines and Robots", section 3.2.
    """

    def __init__(
        self,
        *,
        start_ned_m: Vec3,
        end_ned_m: Vec3,
        limits: Limits,
        velocity_ned_mps: Vec3 = ZERO3,
    ) -> None:
        """velocity_ned_mps: of the reference before it; its part along the leg goes on."""
        self._start = start_ned_m
        self.end_ned_m = end_ned_m
        delta = minus(end_ned_m, start_ned_m)
        self.length_m = sqrt(dot(delta, delta))
        self._along: Vec3 = ZERO3
        self._speed_mps = limits.speed_mps
        self._least = 0.0
        if self.length_m > 1e-6:
            n, e, d = delta
            self._along = (n / self.length_m, e / self.length_m, d / self.length_m)
            horizontal = sqrt(self._along[0] ** 2 + self._along[1] ** 2)
            vertical = abs(self._along[2])
            climb_mps = limits.climb_mps if d < 0.0 else limits.descent_mps
            if vertical > 1e-6:
                self._speed_mps = climb_mps / vertical
            if horizontal > 1e-6:
                self._speed_mps = min(self._speed_mps, limits.speed_mps / horizontal)
            if horizontal <= 1e-6:
                self._speed_mps = min(climb_mps, limits.column_mps)
                self._least = _ASIDE_LEAST
        self._acceleration_mps2 = limits.acceleration_mps2
        self._travelled_m = 0.0
        self._moving_mps = max(0.0, min(self._speed_mps, dot(velocity_ned_mps, self._along)))

    @property
    def along(self) -> Vec3:
        """Unit vector of the leg; zero for one of no length."""
        return self._along

    @property
    def fraction(self) -> float:
        return 1.0 if self.length_m < 1e-6 else self._travelled_m / self.length_m

    def resume(self, position_ned_m: Vec3) -> None:
        """Go on, from rest, at the point of the line that is next to `position_ned_m`."""
        on_line = dot(minus(position_ned_m, self._start), self._along)
        self._travelled_m = max(0.0, min(self._travelled_m, on_line))
        self._moving_mps = 0.0

    def advance(self, position_ned_m: Vec3, dt_s: float) -> Reference:
        """Move the reference on by `dt_s`; `position_ned_m` is where the ship is."""
        rest_m = self.length_m - self._travelled_m
        if rest_m == 0.0 == self._moving_mps:  # it stands at the end
            return self._reference(0.0, done=True)
        come = minus(position_ned_m, self._start)
        on_line_m = dot(come, self._along)
        lag_m = self._travelled_m - on_line_m
        aside_m = sqrt(max(0.0, dot(come, come) - on_line_m**2))
        share = min(
            patience(lag_m, _LEASH_M, _LEASH_END_M),
            max(self._least, patience(aside_m, _ASIDE_M, _ASIDE_END_M)),
        )
        a = self._acceleration_mps2
        wish_mps = min(self._speed_mps * share, sqrt(2.0 * a * max(0.0, rest_m)))
        step = a * dt_s
        speed = max(self._moving_mps - 2.0 * step, min(self._moving_mps + step, wish_mps))
        gained_mps2 = (speed - self._moving_mps) / dt_s if dt_s > 0.0 else 0.0
        self._moving_mps = speed
        self._travelled_m = min(self.length_m, self._travelled_m + speed * dt_s)
        done = rest_m < 0.02
        if done:
            self._travelled_m, self._moving_mps = self.length_m, 0.0
        return self._reference(gained_mps2, done=done)

    def _reference(self, gained_mps2: float, *, done: bool) -> Reference:
        x, y, z = self._along
        s, v = self._travelled_m, self._moving_mps
        n, e, d = self._start
        return Reference(
            position_ned_m=(n + s * x, e + s * y, d + s * z),
            velocity_ned_mps=(v * x, v * y, v * z),
            acceleration_ned_mps2=(gained_mps2 * x, gained_mps2 * y, gained_mps2 * z),
            done=done,
        )
