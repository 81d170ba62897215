"""The ground: feet and hull that push back, stick and slide.

Normal force is a spring with a damper that pulls no more than a foot's hold; stretched past
it, the foot lets go until it touches again. Friction is a spring to the spot where the point
first touched (a bristle), which is dragged along where the force would pass friction times
load plus grip: so a ship at rest stays at rest.
"""

from math import hypot, sqrt

from blimp.airframe import Airframe
from blimp.types import Vec3

STIFFNESS_RADPS = 25.0  # bounce frequency on the springs: soft enough for steps of 5 ms
NORMAL_DAMPING = 1.2  # of critical: it lands, it does not bounce
FRICTION_DAMPING = 0.7
SOFT_START_M = 2e-5  # the damper fades in over this depth, so that force has no step
AIRBORNE_M = 0.05  # a new touchdown is counted only after this clearance

Rows = tuple[Vec3, Vec3, Vec3]  # rotation from body to world, row by row


class Ground:
    """A level plane under the ship, at `stand_m` below the hull's centre at rest."""

    def __init__(self, *, airframe: Airframe) -> None:
        hull = airframe.hull
        self._feet = airframe.ground.feet_m
        self._semi_axes: Vec3 = (
            0.5 * hull.length_m,
            0.5 * hull.diameter_m,
            0.5 * (hull.height_m or hull.diameter_m),
        )
        self.stand_m = max([self._semi_axes[2], *(foot[2] for foot in self._feet)])
        reach = [hypot(*foot) for foot in self._feet]
        self._reach_m = max([*self._semi_axes, *reach])
        moved_kg = airframe.mass_kg + airframe.aero.added_mass_kg[2]
        self.stiffness_npm = moved_kg * STIFFNESS_RADPS**2
        self._damping = 2.0 * NORMAL_DAMPING * moved_kg * STIFFNESS_RADPS
        self._side_damping = 2.0 * FRICTION_DAMPING * moved_kg * STIFFNESS_RADPS
        self._friction = airframe.ground.friction
        count = len(self._feet)
        per_foot = 1.0 / max(count, 1)
        foot = (per_foot, per_foot * airframe.ground.grip_n, per_foot * airframe.ground.hold_n)
        # Of each point, the hull's last: share of stiffness, grip and hold in newtons.
        self._points_hold = (*[foot] * count, (1.0, 0.0, 0.0))
        self._hold_n = airframe.ground.hold_n if count else 0.0
        self._anchors: list[tuple[float, float] | None] = [None] * (count + 1)
        self._airborne = False
        self.touchdown_speed_mps = 0.0  # downward, at the last touchdown

    def stand(self, heavy_n: float) -> float:
        """Press the feet onto the mat; return how deep they then are under `heavy_n`.

        A ship lighter than its feet can hold, `heavy_n` below -hold_n, leaves at once.
        """
        for i, (north_m, east_m, _) in enumerate(self._feet):
            self._anchors[i] = (north_m, east_m)
        return max(heavy_n, -self._hold_n) / self.stiffness_npm

    def release(self) -> None:
        """Forget where the ship stood: it has been put elsewhere."""
        self._anchors = [None] * len(self._anchors)
        self._airborne = False

    def clearance_m(self, position_ned_m: Vec3, rotation: Rows) -> float:
        """Return the height of the ship's lowest point above the ground."""
        down = rotation[2]
        deepest_m = max([_dot(down, point) for point in self._points(down)])
        return self.stand_m - position_ned_m[2] - deepest_m

    def is_far(self, position_ned_m: Vec3) -> bool:
        """Whether no attitude could make the ship touch."""
        return self.stand_m - position_ned_m[2] > self._reach_m + AIRBORNE_M

    def wrench(
        self, position_ned_m: Vec3, rotation: Rows, velocity_ned_mps: Vec3, rates_radps: Vec3
    ) -> tuple[Vec3, Vec3] | None:
        """Return force and torque about the hull's centre in body axes; None when clear."""
        if self.is_far(position_ned_m):
            if not self._airborne:
                self.release()
                self._airborne = True
            return None
        height_m = self.stand_m - position_ned_m[2]
        down = rotation[2]
        force_x = force_y = force_z = torque_x = torque_y = torque_z = 0.0
        lowest_m = -1.0
        touching = False
        for i, point in enumerate(self._points(down)):
            depth_m = _dot(down, point) - height_m
            lowest_m = max(lowest_m, depth_m)
            if depth_m <= 0.0:
                share, _, hold_n = self._points_hold[i]
                if self._anchors[i] is None or depth_m * share * self.stiffness_npm <= -hold_n:
                    self._anchors[i] = None
                    continue
            touching = True
            fx, fy, fz = self._force(
                i, depth_m, point, position_ned_m, rotation, velocity_ned_mps, rates_radps
            )
            x, y, z = point
            force_x += fx
            force_y += fy
            force_z += fz
            torque_x += y * fz - z * fy
            torque_y += z * fx - x * fz
            torque_z += x * fy - y * fx
        if lowest_m < -AIRBORNE_M:
            self._airborne = True
        if not touching:
            return None
        if self._airborne:
            self._airborne = False
            self.touchdown_speed_mps = velocity_ned_mps[2]
        return (force_x, force_y, force_z), (torque_x, torque_y, torque_z)

    def _force(
        self,
        index: int,
        depth_m: float,
        point: Vec3,
        position_ned_m: Vec3,
        rotation: Rows,
        velocity_ned_mps: Vec3,
        rates_radps: Vec3,
    ) -> Vec3:
        """Return the force on one point, body axes."""
        share, grip_n, hold_n = self._points_hold[index]
        x, y, z = point
        p, q, r = rates_radps
        swing = (q * z - r * y, r * x - p * z, p * y - q * x)
        north_mps = velocity_ned_mps[0] + _dot(rotation[0], swing)
        east_mps = velocity_ned_mps[1] + _dot(rotation[1], swing)
        down_mps = velocity_ned_mps[2] + _dot(rotation[2], swing)
        soft = min(1.0, abs(depth_m) / SOFT_START_M)
        stiffness = share * self.stiffness_npm
        load_n = max(-hold_n, stiffness * depth_m + soft * share * self._damping * down_mps)

        north_m = position_ned_m[0] + _dot(rotation[0], point)
        east_m = position_ned_m[1] + _dot(rotation[1], point)
        anchor = self._anchors[index]
        if anchor is None:
            anchor = self._anchors[index] = (north_m, east_m)
        damping = soft * share * self._side_damping
        side_n = stiffness * (anchor[0] - north_m) - damping * north_mps
        side_e = stiffness * (anchor[1] - east_m) - damping * east_mps
        limit_n = self._friction * max(load_n, 0.0) + grip_n
        pull_n = hypot(side_n, side_e)
        if pull_n > limit_n:
            scale = limit_n / pull_n
            side_n *= scale
            side_e *= scale
            self._anchors[index] = (north_m + side_n / stiffness, east_m + side_e / stiffness)
        (a, b, c), (d, e, f), (g, h, i) = rotation
        return (
            a * side_n + d * side_e - g * load_n,
            b * side_n + e * side_e - h * load_n,
            c * side_n + f * side_e - i * load_n,
        )

    def _points(self, down: Vec3) -> tuple[Vec3, ...]:
        """Return the feet, and last the hull's lowest point (an ellipsoid's support point)."""
        a, b, c = (s * s * n for s, n in zip(self._semi_axes, down, strict=True))
        scale = 1.0 / sqrt(a * down[0] + b * down[1] + c * down[2])
        return (*self._feet, (a * scale, b * scale, c * scale))


def _dot(a: Vec3, b: Vec3) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
