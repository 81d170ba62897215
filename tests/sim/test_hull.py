from math import pi

import pytest

from blimp.sim import hull


@pytest.mark.parametrize(
    ("fineness", "k1", "k2", "k_prime"),
    [
        (1.0, 0.5, 0.5, 0.0),
        (1.5, 0.3037, 0.6221, 0.0951),
        (2.0, 0.2100, 0.7042, 0.2394),
        (2.99, 0.1225, 0.8032, 0.4639),
        (4.99, 0.0593, 0.8940, 0.6991),
        (9.97, 0.0208, 0.9601, 0.8830),
    ],
)
def test_lambs_table(fineness: float, k1: float, k2: float, k_prime: float) -> None:
    factors = hull.added_mass_factors(fineness)
    assert factors == pytest.approx((k1, k2, k_prime), abs=6e-5)


def test_no_factors_for_an_oblate_hull() -> None:
    with pytest.raises(ValueError, match=r"fineness 0\.5"):
        hull.added_mass_factors(0.5)
    with pytest.raises(ValueError, match="fineness nan"):
        hull.added_mass_factors(float("nan"))


def test_factors_have_no_step_near_the_sphere() -> None:
    assert hull.added_mass_factors(1.0011) == pytest.approx((0.5, 0.5, 0.0), abs=1e-3)


def test_a_sphere_is_a_sphere() -> None:
    assert hull.volume_m3(2.0, 2.0) == pytest.approx(4.0 / 3.0 * pi)
    assert hull.surface_m2(2.0, 2.0) == pytest.approx(4.0 * pi)
    assert hull.surface_m2(2.001, 2.0) == pytest.approx(4.0 * pi, rel=1e-3)
    assert hull.solid_inertia_kg_m2(5.0, 2.0, 2.0) == pytest.approx((2.0, 2.0, 2.0))
    assert hull.solid_inertia_kg_m2(5.0, 4.0, 2.0) == pytest.approx((2.0, 5.0, 5.0))
    assert hull.shell_inertia_kg_m2(3.0, 2.0, 2.0) == pytest.approx((2.0, 2.0, 2.0), rel=1e-5)


def test_hull_drag() -> None:
    assert hull.drag_coefficient(1.09, 0.52, 0.5) == pytest.approx(0.0804, abs=1e-4)
    assert hull.drag_coefficient(3.0, 1.0, 1.0) == pytest.approx(0.0481, abs=1e-4)


def test_the_flat_hull_meets_the_sphere_and_the_ellipsoids_of_lamb() -> None:
    """Between the closed forms of both sides of the sphere; and a disc moves 8/3 r^3 of air."""
    flat, slim = hull.oblate_added_mass_factors(0.995), hull.added_mass_factors(1.005)
    assert flat.axial - 0.5 == pytest.approx(0.5 - slim.axial, rel=0.02)
    assert flat.lateral - 0.5 == pytest.approx(0.5 - slim.lateral, rel=0.02)
    assert hull.oblate_added_mass_factors(1.0) == (0.5, 0.5, 0.0)
    thin = 1e-3
    displaced = 4.0 / 3.0 * pi * thin
    assert hull.oblate_added_mass_factors(thin).axial * displaced == pytest.approx(8.0 / 3.0, 0.01)
    turned = hull.oblate_added_mass_factors(thin).rotation * displaced / 5.0 * (1.0 + thin**2)
    assert turned == pytest.approx(16.0 / 45.0, rel=0.01)
    with pytest.raises(ValueError, match="a flat hull"):
        hull.oblate_added_mass_factors(1.2)
