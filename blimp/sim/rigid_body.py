"""The six equations of motion of a rigid body in a fluid.

Kirchhoff's equations about the centre of the hull, in body axes: with P and L the linear
and angular momentum of ship and moved air,

    dP/dt + w x P = F - m dW/dt
    dL/dt + w x L + v x P = N - r x m dW/dt

Velocities are relative to the air, whose own acceleration dW/dt (in body axes) the ship's
mass feels and the added mass does not. v x P holds the Munk moment. Source: H. Lamb,
Hydrodynamics, art. 124; T. Fossen, Marine Craft Hydrodynamics, ch. 6 and 10.

The arithmetic is that of single ships and, with arrays in place of floats, of `Batch`.
"""

from collections.abc import Sequence
from typing import Any

from blimp.airframe import Airframe
from blimp.types import ZERO3, Vec3

Matrix = list[list[float]]


class RigidBody:
    """Mass, balance and added mass, and the accelerations that follow from forces.

    center_of_gravity_m: from the hull's centre. inertia_kg_m2 and products_kg_m2 (sums of m x y,
    m x z and m y z): about the centre of gravity. shifts: masses that are `by` off their
    place `at` in that balance.
    """

    def __init__(
        self,
        *,
        mass_kg: float,
        inertia_kg_m2: Vec3,
        center_of_gravity_m: Vec3,
        added_mass_kg: Vec3,
        added_inertia_kg_m2: Vec3,
        products_kg_m2: Vec3 = ZERO3,
        shifts: Sequence[tuple[float, Vec3, Vec3]] = (),
    ) -> None:
        m = self.mass_kg = mass_kg
        xy, xz, yz = products_kg_m2
        products = ((0.0, xy, xz), (xy, 0.0, yz), (xz, yz, 0.0))
        own = [i + added for i, added in zip(inertia_kg_m2, added_inertia_kg_m2, strict=True)]
        point = _point_inertia(m, center_of_gravity_m)
        inertia = [
            [point[i][j] - products[i][j] + own[i] * (i == j) for j in range(3)] for i in range(3)
        ]
        x, y, z = center_of_gravity_m
        for mass, at, by in shifts:
            moved = (at[0] + by[0], at[1] + by[1], at[2] + by[2])
            there, here = _point_inertia(mass, moved), _point_inertia(mass, at)
            inertia = [
                [inertia[i][j] + there[i][j] - here[i][j] for j in range(3)] for i in range(3)
            ]
            x, y, z = x + mass / m * by[0], y + mass / m * by[1], z + mass / m * by[2]
        self.center_of_gravity_m = (x, y, z)
        lever = [[0.0, -m * z, m * y], [m * z, 0.0, -m * x], [-m * y, m * x, 0.0]]
        self._moved_kg = tuple(m + added for added in added_mass_kg)
        self.matrix: Matrix = [
            [self._moved_kg[i] * (i == j) for j in range(3)] + [-lever[i][j] for j in range(3)]
            for i in range(3)
        ] + [lever[i] + inertia[i] for i in range(3)]
        self._inverse: Any = tuple(tuple(row) for row in _inverse(self.matrix))
        self._inertia: Any = tuple(tuple(row) for row in inertia)

    @classmethod
    def of(cls, airframe: Airframe, *, mass_kg: float, angles_rad: Sequence[float]) -> "RigidBody":
        """Return the body of a ship of this mass whose servos stand at these angles."""
        mass, names = airframe.mass, airframe.servo_names
        return cls(
            mass_kg=mass_kg,
            inertia_kg_m2=mass.inertia_kg_m2,
            products_kg_m2=mass.products_kg_m2,
            center_of_gravity_m=mass.center_of_gravity_m,
            added_mass_kg=airframe.aero.added_mass_kg,
            added_inertia_kg_m2=airframe.aero.added_inertia_kg_m2,
            shifts=[
                (
                    part.mass_kg,
                    part.position_m,
                    _times(part.travel_m_per_rad, angles_rad[names.index(part.servo)]),
                )
                for part in mass.moving
            ],
        )

    def momentum(self, velocity_mps: Vec3, rates_radps: Vec3) -> tuple[Vec3, Vec3]:
        """Return linear and angular momentum P and L about the hull's centre."""
        u, v, w = velocity_mps
        p, q, r = rates_radps
        m = self.mass_kg
        x, y, z = self.center_of_gravity_m
        ax, ay, az = self._moved_kg
        (ixx, ixy, ixz), (_, iyy, iyz), (_, _, izz) = self._inertia
        return (
            ax * u + m * (q * z - r * y),
            ay * v + m * (r * x - p * z),
            az * w + m * (p * y - q * x),
        ), (
            ixx * p + ixy * q + ixz * r + m * (y * w - z * v),
            ixy * p + iyy * q + iyz * r + m * (z * u - x * w),
            ixz * p + iyz * q + izz * r + m * (x * v - y * u),
        )

    def energy_j(self, velocity_mps: Vec3, rates_radps: Vec3) -> float:
        """Return the kinetic energy of ship and moved air, relative to the air."""
        linear, angular = self.momentum(velocity_mps, rates_radps)
        return 0.5 * (
            sum(a * b for a, b in zip(linear, velocity_mps, strict=True))
            + sum(a * b for a, b in zip(angular, rates_radps, strict=True))
        )

    def accelerations(
        self,
        velocity_mps: Vec3,
        rates_radps: Vec3,
        force_n: Vec3,
        torque_nm: Vec3,
        air_acceleration_mps2: Vec3,
    ) -> tuple[float, float, float, float, float, float]:
        """Return the rates of change of air-relative velocity and of body rates.

        Everything in body axes; torque about the hull's centre.
        """
        (px, py, pz), (lx, ly, lz) = self.momentum(velocity_mps, rates_radps)
        u, v, w = velocity_mps
        p, q, r = rates_radps
        m = self.mass_kg
        x, y, z = self.center_of_gravity_m
        ax, ay, az = air_acceleration_mps2
        ax, ay, az = m * ax, m * ay, m * az
        f0 = force_n[0] - (q * pz - r * py) - ax
        f1 = force_n[1] - (r * px - p * pz) - ay
        f2 = force_n[2] - (p * py - q * px) - az
        f3 = torque_nm[0] - (q * lz - r * ly) - (v * pz - w * py) - (y * az - z * ay)
        f4 = torque_nm[1] - (r * lx - p * lz) - (w * px - u * pz) - (z * ax - x * az)
        f5 = torque_nm[2] - (p * ly - q * lx) - (u * py - v * px) - (x * ay - y * ax)
        a, b, c, d, e, g = self._inverse
        return (
            a[0] * f0 + a[1] * f1 + a[2] * f2 + a[3] * f3 + a[4] * f4 + a[5] * f5,
            b[0] * f0 + b[1] * f1 + b[2] * f2 + b[3] * f3 + b[4] * f4 + b[5] * f5,
            c[0] * f0 + c[1] * f1 + c[2] * f2 + c[3] * f3 + c[4] * f4 + c[5] * f5,
            d[0] * f0 + d[1] * f1 + d[2] * f2 + d[3] * f3 + d[4] * f4 + d[5] * f5,
            e[0] * f0 + e[1] * f1 + e[2] * f2 + e[3] * f3 + e[4] * f4 + e[5] * f5,
            g[0] * f0 + g[1] * f1 + g[2] * f2 + g[3] * f3 + g[4] * f4 + g[5] * f5,
        )


def _point_inertia(mass_kg: float, at: Vec3) -> Matrix:
    """Return the inertia of a point about the origin, products negative as in a tensor."""
    square = at[0] * at[0] + at[1] * at[1] + at[2] * at[2]
    return [[mass_kg * (square * (i == j) - at[i] * at[j]) for j in range(3)] for i in range(3)]


def _times(v: Vec3, k: float) -> Vec3:
    return (k * v[0], k * v[1], k * v[2])


def _inverse(matrix: Matrix) -> Matrix:
    """Return the inverse by Gauss-Jordan elimination; a mass matrix needs no pivoting."""
    n = len(matrix)
    work = [row[:] + [float(i == j) for j in range(n)] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = work[i][i]
        work[i] = [value / pivot for value in work[i]]
        for k in range(n):
            if k != i:
                factor = work[k][i]
                work[k] = [a - factor * b for a, b in zip(work[k], work[i], strict=True)]
    return [row[n:] for row in work]
