"""What follows from the shape of a hull alone: volume, surface, inertia, added mass, drag.

The hull is a prolate spheroid of a length and a diameter; its fineness is their ratio.
Airframe files quote these numbers; the tests hold the files to them.
"""

from math import asin, cos, log, pi, sin, sqrt
from typing import NamedTuple

from blimp.types import Vec3

AIR_VISCOSITY_M2PS = 1.48e-5  # kinematic, at 15 to 20 degrees
SURFACE_SLICES = 2000  # of the shell's numerical integrals: five digits


class AddedMassFactors(NamedTuple):
    """Added mass over displaced mass, and added inertia over the displaced air's inertia."""

    axial: float  # k1, along the long axis
    lateral: float  # k2, across it
    rotation: float  # k', about an axis across it


def added_mass_factors(fineness: float) -> AddedMassFactors:
    """Return Lamb's factors of a prolate spheroid.

    Source: H. Lamb, Hydrodynamics, art. 114 and 121; NACA Report 210, table III.
    Raises ValueError for a fineness below 1, which is not prolate.
    """
    if not fineness >= 1.0:
        raise ValueError(f"fineness {fineness!r} is below 1: the hull is not prolate")
    if fineness < 1.0 + 1e-3:  # the closed form is 0/0 at the sphere
        return AddedMassFactors(0.5, 0.5, 0.0)
    e2 = 1.0 - 1.0 / fineness**2
    e = sqrt(e2)
    logarithm = log((1.0 + e) / (1.0 - e))
    alpha = 2.0 * (1.0 - e2) / e**3 * (0.5 * logarithm - e)
    beta = 1.0 / e2 - (1.0 - e2) / (2.0 * e**3) * logarithm
    difference = beta - alpha
    return AddedMassFactors(
        axial=alpha / (2.0 - alpha),
        lateral=beta / (2.0 - beta),
        rotation=e2**2 * difference / ((2.0 - e2) * (2.0 * e2 - (2.0 - e2) * difference)),
    )


def oblate_added_mass_factors(flatness: float) -> AddedMassFactors:
    """Return Lamb's factors of an oblate spheroid; axial is along its short axis.

    flatness: short axis over long axis. Source: H. Lamb, Hydrodynamics, art. 114, 115 and 373.
    Raises ValueError for a flatness that is not above 0 and at most 1.
    """
    if not 0.0 < flatness <= 1.0:
        raise ValueError(f"flatness {flatness!r} must be above 0 and at most 1: a flat hull")
    if flatness > 1.0 - 1e-3:  # the closed form is 0/0 at the sphere
        return AddedMassFactors(0.5, 0.5, 0.0)
    e2 = 1.0 - flatness**2
    gamma = 2.0 / e2 * (1.0 - flatness / sqrt(e2) * asin(sqrt(e2)))
    alpha = 0.5 * (2.0 - gamma)  # alpha + beta + gamma is 2
    # Of the displaced air's inertia, m/5 (long^2 + short^2), with (long^2 - short^2) as e2.
    total, difference = 1.0 + flatness**2, gamma - alpha
    return AddedMassFactors(
        axial=gamma / (2.0 - gamma),
        lateral=alpha / (2.0 - alpha),
        rotation=e2**2 * difference / (total * (2.0 * e2 - total * difference)),
    )


def volume_m3(length_m: float, diameter_m: float) -> float:
    return pi / 6.0 * length_m * diameter_m**2


def surface_m2(length_m: float, diameter_m: float) -> float:
    """Return the surface of a prolate spheroid."""
    a, b = 0.5 * length_m, 0.5 * diameter_m
    if a <= b:
        return 4.0 * pi * b * b
    e = sqrt(1.0 - (b / a) ** 2)
    return 2.0 * pi * b * b * (1.0 + a / (b * e) * asin(e))


def solid_inertia_kg_m2(mass_kg: float, length_m: float, diameter_m: float) -> Vec3:
    """Return the inertia of a spheroid filled evenly, about its centre."""
    a, b = 0.5 * length_m, 0.5 * diameter_m
    across = mass_kg / 5.0 * (a * a + b * b)
    return (mass_kg / 5.0 * 2.0 * b * b, across, across)


def shell_inertia_kg_m2(mass_kg: float, length_m: float, diameter_m: float) -> Vec3:
    """Return the inertia of an even skin, about its centre (midpoint rule over slices)."""
    a, b = 0.5 * length_m, 0.5 * diameter_m
    area = axial = across = 0.0
    for i in range(SURFACE_SLICES):
        angle = 0.5 * pi * (i + 0.5) / SURFACE_SLICES  # x = a cos(angle), r = b sin(angle)
        x, r = a * cos(angle), b * sin(angle)
        strip = r * sqrt((a * sin(angle)) ** 2 + (b * cos(angle)) ** 2)
        area += strip
        axial += strip * r * r
        across += strip * (0.5 * r * r + x * x)
    return (mass_kg * axial / area, mass_kg * across / area, mass_kg * across / area)


def drag_coefficient(length_m: float, diameter_m: float, speed_mps: float) -> float:
    """Return the turbulent drag coefficient on V^(2/3), a lower bound for a clean hull.

    Source: Hoerner, Fluid-Dynamic Drag, ch. 6; Khoury, Airship Technology, ch. 3.
    """
    reynolds = speed_mps * length_m / AIR_VISCOSITY_M2PS
    slim = diameter_m / length_m
    shape = 0.172 * (1.0 / slim) ** (1.0 / 3.0) + 0.252 * slim**1.2 + 1.032 * slim**2.7
    return float(shape * reynolds ** (-1.0 / 6.0))
