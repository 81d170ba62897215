"""The gas in the hull: how much air it displaces as it warms, leaks and rises.

The gas has the pressure of the air around it and its temperature plus the superheat, so that by
the ideal gas law it takes V = V0 (p0 / p) (T / T0). Latex stretches to that volume. Foil takes it
only while it is slack: taut, it keeps its volume, and the pressure in it rises.
"""

from math import inf, isfinite

from blimp.airframe import Hull
from blimp.sim.arithmetic import SCALARS, Arithmetic
from blimp.sim.atmosphere import (
    SEA_LEVEL_PRESSURE_PA,
    SEA_LEVEL_TEMPERATURE_K,
    ZERO_CELSIUS_K,
    Air,
    gas_density_kg_m3,
)

DAY_S = 86_400.0
COLDEST_C, WARMEST_C = -60.0, 60.0  # than the standard air, or than the air around


class Envelope:
    """superheat_c: how much warmer than the air the gas is, from sun or a lamp."""

    def __init__(self, *, hull: Hull, arithmetic: Arithmetic = SCALARS) -> None:
        self._arithmetic = arithmetic
        self._gas_m3 = hull.volume_m3  # at ISA sea level
        full_m3 = arithmetic.choose(hull.taut_m3 > 0.0, hull.taut_m3, hull.volume_m3)
        self._taut_m3 = full_m3 if hull.envelope == "foil" else inf
        self._leak_m3ps = hull.leak_m3_per_day / DAY_S
        self._leaks = arithmetic is not SCALARS or hull.leak_m3_per_day > 0.0
        self._gas_kg_m3 = gas_density_kg_m3(hull.helium_purity or 1.0)
        self.superheat_c = 0.0
        self.lost_kg = 0.0  # gas that has leaked, and weighs on the ship no more

    def leak(self, m3_per_day: float) -> None:
        """Let gas escape at this rate, at sea level pressure, from now on."""
        if not (isfinite(m3_per_day) and m3_per_day >= 0.0):
            raise ValueError(f"a leak of {m3_per_day!r} m3 a day: must be finite, not negative")
        self._leak_m3ps = m3_per_day / DAY_S
        self._leaks = True

    def step(self, dt_s: float) -> None:
        if self._leaks:
            gone_m3 = self._arithmetic.clamp(self._leak_m3ps * dt_s, 0.0, self._gas_m3)
            self._gas_m3 -= gone_m3
            self.lost_kg += gone_m3 * self._gas_kg_m3

    def volume_m3(self, air: Air) -> float:
        """Return the volume of air that the hull displaces."""
        warmth = (air.temperature_c + ZERO_CELSIUS_K + self.superheat_c) / SEA_LEVEL_TEMPERATURE_K
        free_m3 = self._gas_m3 * warmth * SEA_LEVEL_PRESSURE_PA / air.pressure_pa
        volume_m3: float = self._arithmetic.clamp(free_m3, 0.0, self._taut_m3)
        return volume_m3


def checked_c(name: str, warmer_c: float) -> float:
    """Return a temperature difference. Raises ValueError beyond what happens to ships."""
    if not COLDEST_C <= warmer_c <= WARMEST_C:
        raise ValueError(f"{name} is {warmer_c!r}, must be from {COLDEST_C:g} to {WARMEST_C:g}")
    return warmer_c
