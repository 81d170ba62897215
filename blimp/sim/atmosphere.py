"""Air and helium: the International Standard Atmosphere below 11 km, and a lifting gas.

Source: ISO 2533 (ISA). Heights are above mean sea level.
"""

from typing import NamedTuple

from blimp.constants import AIR_DENSITY_KGM3
from blimp.sim.arithmetic import SCALARS, Arithmetic

SEA_LEVEL_PRESSURE_PA = 101325.0
SEA_LEVEL_TEMPERATURE_K = 288.15
LAPSE_KPM = 0.0065
GAS_CONSTANT_JPKGK = 287.058  # of dry air
GRAVITY_MPS2 = 9.80665
PRESSURE_EXPONENT = GRAVITY_MPS2 / (GAS_CONSTANT_JPKGK * LAPSE_KPM)  # 5.2558: in equilibrium
LOWEST_M, HIGHEST_M = -5_000.0, 11_000.0
ZERO_CELSIUS_K = 273.15
HELIUM_DENSITY_KG_M3 = 0.1693  # pure, at 15 degrees and 101325 Pa


class Air(NamedTuple):
    pressure_pa: float
    temperature_c: float
    density_kg_m3: float


def isa(height_m: float, warmer_c: float = 0.0, arithmetic: Arithmetic = SCALARS) -> Air:
    """Return the air at `height_m` above sea level; beyond the troposphere, that at its edge.

    warmer_c: than the standard, at the standard's pressure; a hall at 25 degrees is 10 warmer.
    """
    height_m = arithmetic.clamp(height_m, LOWEST_M, HIGHEST_M)
    temperature_k = SEA_LEVEL_TEMPERATURE_K - LAPSE_KPM * height_m
    pressure_pa = (
        SEA_LEVEL_PRESSURE_PA * (temperature_k / SEA_LEVEL_TEMPERATURE_K) ** PRESSURE_EXPONENT
    )
    temperature_k += warmer_c
    return Air(
        pressure_pa,
        temperature_k - ZERO_CELSIUS_K,
        pressure_pa / (GAS_CONSTANT_JPKGK * temperature_k),
    )


def gas_density_kg_m3(purity: float, *, temperature_c: float = 15.0) -> float:
    """Return the density of helium with air in it, at sea level pressure.

    purity: share of helium by volume; 1 - purity is air.
    """
    cold = purity * HELIUM_DENSITY_KG_M3 + (1.0 - purity) * AIR_DENSITY_KGM3
    return cold * SEA_LEVEL_TEMPERATURE_K / (temperature_c + ZERO_CELSIUS_K)


def net_lift_kg_m3(purity: float, *, temperature_c: float = 15.0) -> float:
    """Return what a cubic metre of gas carries in air of the same temperature."""
    air = AIR_DENSITY_KGM3 * SEA_LEVEL_TEMPERATURE_K / (temperature_c + ZERO_CELSIUS_K)
    return air - gas_density_kg_m3(purity, temperature_c=temperature_c)
