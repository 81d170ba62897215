"""The file of our own ship holds what its formulas give, and the ship can do its work."""

from math import hypot, pi

import pytest

from blimp.constants import AIR_DENSITY_KGM3 as AIR
from blimp.sim import hull
from blimp.sim.aerodynamics import Aerodynamics
from blimp.sim.atmosphere import gas_density_kg_m3
from tests.sim.ships import gtmab, twin

SHIP = twin()
LENGTH_M, DIAMETER_M = SHIP.hull.length_m, SHIP.hull.diameter_m
DISPLACED_KG = AIR * SHIP.hull.volume_m3
BLIMP2B_VOLUME_M3 = hull.volume_m3(1.09, 0.52)
BLIMP2B_SIDE_M2 = pi / 4.0 * 1.09 * 0.52
SIDE_M2 = pi / 4.0 * LENGTH_M * DIAMETER_M


def test_volume_and_mass() -> None:
    assert SHIP.hull.volume_m3 == pytest.approx(hull.volume_m3(LENGTH_M, DIAMETER_M), abs=1e-4)
    assert sum(item.mass_kg for item in SHIP.mass.item) == pytest.approx(SHIP.mass_kg, abs=1e-4)


def test_hull_and_gas_in_the_mass_budget() -> None:
    budget = {item.name: item for item in SHIP.mass.item}
    envelope, gas = budget["envelope"], budget["helium"]
    surface_m2 = hull.surface_m2(LENGTH_M, DIAMETER_M)
    assert envelope.mass_kg == pytest.approx(0.062 * surface_m2, abs=1e-3)
    assert envelope.inertia_kg_m2 == pytest.approx(
        hull.shell_inertia_kg_m2(envelope.mass_kg, LENGTH_M, DIAMETER_M), abs=1e-4
    )
    assert SHIP.hull.helium_purity is not None
    density = gas_density_kg_m3(SHIP.hull.helium_purity)
    assert gas.mass_kg == pytest.approx(density * SHIP.hull.volume_m3, abs=1e-4)
    assert gas.inertia_kg_m2 == pytest.approx(
        hull.solid_inertia_kg_m2(gas.mass_kg, LENGTH_M, DIAMETER_M), abs=1e-4
    )


def test_balance_and_inertia_are_the_budgets() -> None:
    items = SHIP.mass.item
    mass_kg = sum(item.mass_kg for item in items)
    center = [sum(i.mass_kg * i.position_m[k] for i in items) / mass_kg for k in range(3)]
    assert SHIP.mass.center_of_gravity_m == pytest.approx(center, abs=2e-4)
    for k, found in enumerate(SHIP.mass.inertia_kg_m2):
        expected = 0.0
        for item in items:
            arms = [item.position_m[j] - center[j] for j in range(3) if j != k]
            expected += item.inertia_kg_m2[k] + item.mass_kg * hypot(*arms) ** 2
        assert found == pytest.approx(expected, abs=1.5e-3)


def test_added_mass_is_lambs() -> None:
    factors = hull.added_mass_factors(LENGTH_M / DIAMETER_M)
    a, b = 0.5 * LENGTH_M, 0.5 * DIAMETER_M
    axial, lateral = factors.axial * DISPLACED_KG, factors.lateral * DISPLACED_KG
    turning = factors.rotation * DISPLACED_KG / 5.0 * (a * a + b * b)
    assert SHIP.aero.added_mass_kg == pytest.approx((axial, lateral, lateral), abs=1e-4)
    assert SHIP.aero.added_inertia_kg_m2 == pytest.approx((0.0, turning, turning), abs=1e-4)


def test_quadratic_drag_is_scaled_from_blimp2b() -> None:
    def lower_bound(length_m: float, diameter_m: float, volume_m3: float) -> float:
        coefficient = hull.drag_coefficient(length_m, diameter_m, 0.5)
        return float(0.5 * AIR * volume_m3 ** (2.0 / 3.0) * coefficient)

    worse = 0.070 / lower_bound(1.09, 0.52, BLIMP2B_VOLUME_M3)
    surge = worse * lower_bound(LENGTH_M, DIAMETER_M, SHIP.hull.volume_m3)
    sway = 0.22 * SIDE_M2 / BLIMP2B_SIDE_M2
    crossflow = 0.22 / (0.5 * AIR * BLIMP2B_SIDE_M2)
    a, b = 0.5 * LENGTH_M, 0.5 * DIAMETER_M
    turning = 0.5 * AIR * crossflow * 4.0 * b * a**4 * 2.0 / 15.0
    rolling = 0.5 * AIR * 1.2 * 0.48 * 0.55**3
    assert SHIP.aero.quadratic_drag == pytest.approx(
        (surge, sway, sway, rolling, turning, turning), rel=2e-3
    )


def test_linear_drag_is_scaled_from_gtmab() -> None:
    gtmab_side_m2 = pi / 4.0 * 0.77 * 0.51
    speed_mps = gtmab().aero.linear_drag[0] / (AIR * gtmab_side_m2)
    surge = AIR * speed_mps * pi / 4.0 * DIAMETER_M**2
    sway = AIR * speed_mps * SIDE_M2
    turning = AIR * speed_mps * pi / 8.0 * DIAMETER_M * (0.5 * LENGTH_M) ** 3
    rolling = turning * 0.005 / 0.0079
    assert SHIP.aero.linear_drag == pytest.approx(
        (surge, sway, sway, rolling, turning, turning), rel=3e-3
    )


def test_fins_and_surfaces() -> None:
    slope = 2.0 * pi * 1.3 / (1.3 + 2.0)
    assert SHIP.aero.fin_lift_per_rad == pytest.approx(0.5 * AIR * 0.24 * slope, rel=2e-3)
    for surface in SHIP.surface:
        assert surface.force_per_rad == pytest.approx(0.6 * SHIP.aero.fin_lift_per_rad, rel=2e-3)


def test_shares_of_thrust_against_a_crosswind() -> None:
    """0.3 m/s from the side takes half of the tail; what its moment takes, the pair has."""
    drag = Aerodynamics(airframe=SHIP).wrench((0.0, -0.3, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    gust = Aerodynamics(airframe=SHIP).wrench((0.0, -0.42, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    left, right, tail = SHIP.thruster
    assert drag[1] == pytest.approx(0.15, abs=0.01)
    assert gust[1] < tail.max_thrust_n
    moment_nm = tail.max_thrust_n * -tail.position_m[0]
    pair_nm = left.reverse_thrust_n * (right.position_m[1] - left.position_m[1])
    assert moment_nm < pair_nm


def test_no_drv8833_channel_carries_more_than_it_can() -> None:
    assert all(thruster.max_current_a <= 1.5 for thruster in SHIP.thruster)
    assert SHIP.battery.cells * 4.2 <= 10.8
