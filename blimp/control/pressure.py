"""Height from pressure."""

from math import exp, isfinite, log

from blimp.constants import GRAVITY_MPS2


def baro_height_m(pressure_pa: float, temperature_c: float, reference_pa: float) -> float:
    """Return the height above the level of `reference_pa`, hypsometric equation.

    Uses the ISA temperature (ISO 2533) if the chip's own, warmed by its board, is not
    believable. Returns NaN for an impossible pressure.
    """
    if not (isfinite(pressure_pa) and 3e4 < pressure_pa < 1.2e5):
        return float("nan")
    kelvin = 273.15 + (temperature_c if -30.0 < temperature_c < 45.0 else 15.0)
    return 287.053 * kelvin / GRAVITY_MPS2 * log(reference_pa / pressure_pa)


def pad_ratio(height_m: float) -> float:
    """Return the pressure on the pad over that at `height_m` above it, at 15 degrees."""
    return exp(height_m * GRAVITY_MPS2 / (287.053 * 288.15))
