"""TE Connectivity MS5607 barometer: an MS5611 of other formulas. Source: MS5607-02BA03."""

from blimp.sim.chips.ms5611 import Ms5611

COEFFICIENTS = (46372, 43981, 29059, 27842, 31553, 28165)  # of the data sheet's example


class Ms5607(Ms5611):
    OFFSET_PA = 200.0  # accuracy ±2 mbar at 25 °C
    COEFFICIENTS = COEFFICIENTS

    def _temperature(self, d2: float) -> float:
        return temperature(d2)

    def _pressure(self, d1: float, d2: float) -> float:
        return pressure(d1, d2)


def temperature(d2: float) -> float:
    """Return °C, figures 2 and 3."""
    d_t = d2 - COEFFICIENTS[4] * 2**8
    first = 2000.0 + d_t * COEFFICIENTS[5] / 2**23
    return (first - d_t**2 / 2**31 if first < 2000.0 else first) / 100.0


def pressure(d1: float, d2: float) -> float:
    """Return Pa: the data sheet's hundredths of a millibar."""
    c1, c2, c3, c4, c5, c6 = COEFFICIENTS
    d_t = d2 - c5 * 2**8
    temp = 2000.0 + d_t * c6 / 2**23
    low, very_low = min(temp - 2000.0, 0.0), min(temp + 1500.0, 0.0)
    off = c2 * 2**17 + c4 * d_t / 2**6 - (61.0 * low**2 / 2**4 + 15.0 * very_low**2)
    sens = c1 * 2**16 + c3 * d_t / 2**7 - (2.0 * low**2 + 8.0 * very_low**2)
    return (d1 * sens / 2**21 - off) / 2**15
