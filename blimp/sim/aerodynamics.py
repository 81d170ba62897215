"""Forces of the air on hull, fins, wings and control surfaces, except those of added mass.

The arithmetic is that of single ships and, with arrays in place of floats, of `Batch`.
"""

from collections.abc import Sequence

from blimp.airframe import Airframe, Polar
from blimp.constants import AIR_DENSITY_KGM3
from blimp.sim.arithmetic import SCALARS, Arithmetic
from blimp.types import Vec3

# Beyond its stall a fin is a plate: its drag coefficient of 1.2 over a low aspect fin's lift
# slope of about 2.4 per radian. Blends lift at small angles into drag at 90 degrees.
PLATE_OVER_SLOPE = 0.5


class Aerodynamics:
    """Drag per axis, two pairs of fins astern, surfaces moved by servos, and a polar."""

    def __init__(self, *, airframe: Airframe, arithmetic: Arithmetic = SCALARS) -> None:
        aero = airframe.aero
        self._polar = Lift(aero.polar, arithmetic) if aero.polar else None
        self._linear = aero.linear_drag
        self._quadratic = aero.quadratic_drag
        self._fin = aero.fin_lift_per_rad
        self._has_fins = arithmetic is not SCALARS or aero.fin_lift_per_rad > 0.0
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
        if self._has_fins:
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
        if self._polar is not None:
            lx, ly, lz, mx, my, mz = self._polar.wrench(velocity_mps, rates_radps)
            fx, fy, fz = fx + lx, fy + ly, fz + lz
            nx, ny, nz = nx + mx, ny + my, nz + mz
        return fx, fy, fz, nx, ny, nz


class Lift:
    """Force and moment by a polar: a hull with wings at an angle to the flow.

    Source: G. Cheng, F. Zhang et al., RGBlimp (IEEE RA-L 8, 2023), whose polynomials these are.
    They hold to some 30 degrees; a ship pushed sideways is beyond them.
    """

    def __init__(self, polar: Polar, arithmetic: Arithmetic = SCALARS) -> None:
        self._sqrt, self._atan2 = arithmetic.sqrt, arithmetic.atan2
        self._half_rho_area = 0.5 * AIR_DENSITY_KGM3 * polar.area_m2
        self._polar = polar

    def wrench(
        self, velocity_mps: Vec3, rates_radps: Vec3
    ) -> tuple[float, float, float, float, float, float]:
        """Return force and torque about the hull's centre, body axes."""
        u, v, w = velocity_mps
        polar = self._polar
        square = u * u + w * w
        plane = self._sqrt(square)
        speed = self._sqrt(square + v * v)
        a, b = self._atan2(w, u), self._atan2(v, plane)
        # Cosines and sines of both angles; a ship at rest has a flow from ahead, of no force.
        at_rest, still = plane == 0.0, speed == 0.0
        ca, sa = (u + at_rest) / (plane + at_rest), w / (plane + at_rest)
        cb, sb = (plane + still) / (speed + still), v / (speed + still)
        scale = self._half_rho_area * (square + v * v)
        aa, bb = a * a, b * b
        drag = -scale * _sum(polar.drag, aa, bb)
        side = scale * _sum(polar.side, aa, b)
        lift = -scale * _sum(polar.lift, a, bb)
        p, q, r = rates_radps
        kp, kq, kr = polar.damping
        roll = scale * _sum(polar.roll, a, b) - kp * p
        pitch = scale * _sum(polar.pitch, a, bb * bb) - kq * q
        yaw = scale * _sum(polar.yaw, a, b) - kr * r
        return (
            ca * cb * drag - ca * sb * side - sa * lift,
            sb * drag + cb * side,
            sa * cb * drag - sa * sb * side + ca * lift,
            ca * cb * roll - ca * sb * pitch - sa * yaw,
            sb * roll + cb * pitch,
            sa * cb * roll - sa * sb * pitch + ca * yaw,
        )


def _sum(coefficients: Vec3, first: float, second: float) -> float:
    return coefficients[0] + coefficients[1] * first + coefficients[2] * second


def _cross(a: Vec3, b: Vec3) -> Vec3:
    return (
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    )
