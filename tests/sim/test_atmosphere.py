import pytest

from blimp.sim.atmosphere import gas_density_kg_m3, isa, net_lift_kg_m3


@pytest.mark.parametrize(
    ("height_m", "pressure_pa", "density_kg_m3"),
    [
        (0.0, 101325.0, 1.22498),
        (100.0, 100129.5, 1.21326),
        (500.0, 95460.9, 1.16725),
        (1000.0, 89874.8, 1.11163),
    ],
)
def test_isa_table(height_m: float, pressure_pa: float, density_kg_m3: float) -> None:
    air = isa(height_m)
    assert isa(height_m, 10.0).temperature_c == pytest.approx(air.temperature_c + 10.0)
    assert air.pressure_pa == pytest.approx(pressure_pa, abs=0.06)
    assert air.density_kg_m3 == pytest.approx(density_kg_m3, abs=1.1e-5)
    assert air.temperature_c == pytest.approx(15.0 - 0.0065 * height_m)


def test_helium_lift() -> None:
    assert net_lift_kg_m3(1.0) == pytest.approx(1.0557, abs=1e-4)
    assert net_lift_kg_m3(1.0, temperature_c=20.0) == pytest.approx(1.0377, abs=1e-4)


def test_impure_helium_lifts_in_proportion() -> None:
    assert net_lift_kg_m3(0.95) == pytest.approx(0.95 * net_lift_kg_m3(1.0))
    assert gas_density_kg_m3(0.98) == pytest.approx(0.1904, abs=1e-4)
