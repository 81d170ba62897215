"""Forces of the air on hull, fins and control surfaces, except those of added mass."""

from collections.abc import Sequence

from blimp.airframe import Airframe
from blimp.types import Vec3

# Beyond its stall a fin is a plate: its drag coefficient of 1.2 over a low aspect fin's lift
# slope of about 2.4 per radian. Blends lift at small angles into drag at 90 degrees.
PLATE_OVER_SLOPE = 0.5


class Aerodynamics:
    """Drag per axis, two pairs of fins astern, and surfaces moved by servos."""

    def __init__(self, *, airframe: Airframe) -> None:
        aero = airframe.aero
        self._linear = aero.linear_drag
        self._quadratic = aero.quadratic_drag
        self._fin = aero.fin_lift_per_rad
        self._fin_x = aero.fin_position_m
        servos = airframe.servo_names
        self._surfaces = tuple(
            (servos.index(s.servo), s.force_per_rad, s.axis, _cross(s.position_m, s.axis))
            for s in airframe.surface
        )

    def wrench(
        self, velocity_mps: Vec3, rates_radps: Vec3, servo_angles_rad: Sequence[float]
    ) -> tuple[float, float, float, float, float, float]:
        """Return force and torque about the hull's centre, body axes.

        velocity_mps: relative to the air.
        """
        u, v, w = velocity_mps
        p, q, r = rates_radps
        l0, l1, l2, l3, l4, l5 = self._linear
        q0, q1, q2, q3, q4, q5 = self._quadratic
        fx = -(l0 + q0 * abs(u)) * u
        fy = -(l1 + q1 * abs(v)) * v
        fz = -(l2 + q2 * abs(w)) * w
        nx = -(l3 + q3 * abs(p)) * p
        ny = -(l4 + q4 * abs(q)) * q
        nz = -(l5 + q5 * abs(r)) * r
        if self._fin:
            x = self._fin_x
            side, down = v + r * x, w - q * x  # the flow at the fins
            speed = abs(u)
            side_n = -self._fin * (speed + PLATE_OVER_SLOPE * abs(side)) * side
            down_n = -self._fin * (speed + PLATE_OVER_SLOPE * abs(down)) * down
            fy += side_n
            fz += down_n
            ny -= x * down_n
            nz += x * side_n
        for servo, force_per_rad, axis, arm in self._surfaces:
            force_n = force_per_rad * u * abs(u) * servo_angles_rad[servo]
            fx += force_n * axis[0]
            fy += force_n * axis[1]
            fz += force_n * axis[2]
            nx += force_n * arm[0]
            ny += force_n * arm[1]
            nz += force_n * arm[2]
        return fx, fy, fz, nx, ny, nz


def _cross(a: Vec3, b: Vec3) -> Vec3:
    return (
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    )
