"""The ground: feet and hull that push back, stick and slide.

Normal force is a spring with a damper that pulls no more than a foot's hold; stretched past
it, the foot lets go until it touches again. Friction is a spring to the spot where the point
first touched (a bristle), which is dragged along where the force would pass friction times
load plus grip: so a ship at rest stays at rest.
"""

from math import hypot, sqrt
from typing import NamedTuple

from blimp.airframe import Airframe
from blimp.types import Vec3

# Rates at which a point's own share of the ship's inertia is stopped: explicit steps of up
# to 10 ms stay stable with them, whatever lever the point has on the ship.
DAMPING_PER_S = 70.0
SIDE_DAMPING_PER_S = 28.0
SIDE_STIFFNESS_RADPS = 20.0
SOFT_START_M = 2e-5  # the damper fades in over this depth, so that force has no step
AIRBORNE_M = 0.05  # a new touchdown is counted only after this clearance

Rows = tuple[Vec3, Vec3, Vec3]  # rotation from body to world, row by row


class ContactPoint(NamedTuple):
    """What one point of the ship does on the ground."""

    stiffness_npm: float
    damping: float  # N per m/s, as the next but one
    side_stiffness_npm: float
    side_damping: float
    grip_n: float
    hold_n: float


class Ground:
    """A level plane under the ship, at `stand_m` below the hull's centre at rest."""

    def __init__(self, *, airframe: Airframe) -> None:
        hull, ground = airframe.hull, airframe.ground
        self._feet = ground.feet_m
        self._friction = ground.friction
        self._semi_axes: Vec3 = (
            0.5 * hull.length_m,
            0.5 * hull.diameter_m,
            0.5 * (hull.height_m or hull.diameter_m),
        )
        self.stand_m = max([self._semi_axes[2], *(foot[2] for foot in self._feet)])
        self.reach_m = max([*self._semi_axes, *(hypot(*foot) for foot in self._feet)])

        heave_kg = airframe.mass_kg + airframe.aero.added_mass_kg[2]
        share = 1.0 / max(len(self._feet), 1)
        a, b, c = self._semi_axes
        ends: tuple[Vec3, ...] = ((a, 0.0, 0.0), (0.0, b, 0.0), (0.0, 0.0, c))
        self._contacts = (
            *(
                _contact(
                    heave_kg,
                    share,
                    _felt_kg(airframe, foot),
                    grip_n=ground.grip_n,
                    hold_n=ground.hold_n,
                )
                for foot in self._feet
            ),
            _contact(heave_kg, 1.0, min(_felt_kg(airframe, end) for end in ends)),
        )
        self._anchors: list[tuple[float, float] | None] = [None] * len(self._contacts)
        self._airborne = False
        self.touchdown_speed_mps = 0.0  # downward, at the last touchdown

    def stand(self, heavy_n: float) -> float:
        """Press the feet onto the mat; return how deep they then are under `heavy_n`.

        A ship lighter than its feet can hold, `heavy_n` below -hold_n, leaves at once.
        """
        if not self._feet:
            return max(heavy_n, 0.0) / self._contacts[-1].stiffness_npm
        for i, (north_m, east_m, _) in enumerate(self._feet):
            self._anchors[i] = (north_m, east_m)
        feet = self._contacts[:-1]
        lightest_n = -sum(foot.hold_n for foot in feet)
        return max(heavy_n, lightest_n) / sum(foot.stiffness_npm for foot in feet)

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
        return self.stand_m - position_ned_m[2] > self.reach_m + AIRBORNE_M

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
                contact = self._contacts[i]
                if self._anchors[i] is None or depth_m * contact.stiffness_npm <= -contact.hold_n:
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
        stiffness, damping, side_stiffness, side_damping, grip_n, hold_n = self._contacts[index]
        x, y, z = point
        p, q, r = rates_radps
        swing = (q * z - r * y, r * x - p * z, p * y - q * x)
        north_mps = velocity_ned_mps[0] + _dot(rotation[0], swing)
        east_mps = velocity_ned_mps[1] + _dot(rotation[1], swing)
        down_mps = velocity_ned_mps[2] + _dot(rotation[2], swing)
        soft = min(1.0, abs(depth_m) / SOFT_START_M)
        load_n = max(-hold_n, stiffness * depth_m + soft * damping * down_mps)

        north_m = position_ned_m[0] + _dot(rotation[0], point)
        east_m = position_ned_m[1] + _dot(rotation[1], point)
        anchor = self._anchors[index]
        if anchor is None:
            anchor = self._anchors[index] = (north_m, east_m)
        side_damping *= soft
        side_n = side_stiffness * (anchor[0] - north_m) - side_damping * north_mps
        side_e = side_stiffness * (anchor[1] - east_m) - side_damping * east_mps
        limit_n = self._friction * max(load_n, 0.0) + grip_n
        pull_n = hypot(side_n, side_e)
        if pull_n > limit_n:
            scale = limit_n / pull_n
            side_n *= scale
            side_e *= scale
            self._anchors[index] = (
                north_m + side_n / side_stiffness,
                east_m + side_e / side_stiffness,
            )
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


def _contact(
    heave_kg: float, share: float, felt_kg: float, *, grip_n: float = 0.0, hold_n: float = 0.0
) -> ContactPoint:
    """Return one of 1/share equal contacts, together critically damped for the whole ship."""
    damping = DAMPING_PER_S * felt_kg
    return ContactPoint(
        stiffness_npm=share * damping**2 / (4.0 * heave_kg),
        damping=share * damping,
        side_stiffness_npm=share * SIDE_STIFFNESS_RADPS**2 * felt_kg,
        side_damping=share * SIDE_DAMPING_PER_S * felt_kg,
        grip_n=share * grip_n,
        hold_n=share * hold_n,
    )


def _felt_kg(airframe: Airframe, point: Vec3) -> float:
    """Return the least mass that a push on `point` along any axis meets."""
    aero = airframe.aero
    center = airframe.mass.center_of_gravity_m
    x, y, z = (a - b for a, b in zip(point, center, strict=True))
    ix, iy, iz = (
        own + added
        for own, added in zip(airframe.mass.inertia_kg_m2, aero.added_inertia_kg_m2, strict=True)
    )
    lightness = (y * y / iz + z * z / iy, z * z / ix + x * x / iz, x * x / iy + y * y / ix)
    return 1.0 / (max(lightness) + 1.0 / (airframe.mass_kg + min(aero.added_mass_kg)))


def _dot(a: Vec3, b: Vec3) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
