"""TE Connectivity MS5611 barometer. Source: MS5611-01BA03 data sheet, AN520.

The chip carries the coefficients of the data sheet's example. Raw readings are found by
solving its formulas (second order included) for the true temperature and pressure.
"""

from blimp.hardware.registers.barometers import MS5611
from blimp.sim.chips.barometer import Barometer, solve
from blimp.sim.chips.chip import Fitting, clamp

COEFFICIENTS = (40127, 36924, 23317, 23282, 33464, 28312)
_FACTORY_WORD = 0x0042
_SERIAL = 0x1230
_CONVERSION_S = (0.0006, 0.00117, 0.00228, 0.00454, 0.00904)  # at most, by OSR
_NOISE_PA = (6.5, 4.2, 2.7, 1.8, 1.2)  # "Resolution RMS" by OSR
_NOISE_COUNTS = 30.0  # of the temperature
_TOP = float((1 << 24) - 2)


class Ms5611(Barometer):
    """A conversion runs from its command on; its result can be read once."""

    DEFAULT_ADDRESS = 0x77
    OFFSET_PA = 150.0  # accuracy ±1.5 mbar at 25 °C
    OFFSET_C = 0.8
    COEFFICIENTS = COEFFICIENTS

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        words = (_FACTORY_WORD, *self.COEFFICIENTS, _SERIAL)
        self._prom = (*words[:-1], _SERIAL | crc4(words))
        self._raw = (8.5e6, 8.5e6)  # D1, D2: where the last solution was
        self._command = 0
        self._reset()

    def _reset(self) -> None:
        self._conversion = 0  # the command that runs or has ended
        self._ready_s = 0.0
        self._up_s = self.timeline.now_s + MS5611.RELOAD_S

    def write(self, data: bytes) -> None:
        # One byte is a command; it takes no data.
        command = self._command = data[0]
        if command == MS5611.RESET:
            self._reset()
        elif command & 0xF0 in (MS5611.CONVERT_D1, MS5611.CONVERT_D2) and command & 0xF <= 8:
            self._conversion = command
            self._ready_s = self.timeline.now_s + _CONVERSION_S[(command & 0xF) // 2]

    def read(self, length: int) -> bytes:
        if self.faults.wrong_identity:  # some other chip: it has no such words
            return b"\x5a" * length
        command = self._command
        if command == MS5611.ADC_READ:
            return self._result().to_bytes(3, "big")[:length] + bytes(max(length - 3, 0))
        index = (command - MS5611.PROM) // 2
        if 0 <= index < MS5611.PROM_WORDS and self.timeline.now_s >= self._up_s:
            return self._prom[index].to_bytes(2, "big")[:length] + bytes(max(length - 2, 0))
        return bytes(length)

    def _result(self) -> int:
        conversion, self._conversion = self._conversion, 0
        if not conversion or self.timeline.now_s < self._ready_s:
            return 0
        if not self.faults.frozen:
            self._measure((conversion & 0xF) // 2)
        value = self._raw[0 if conversion & 0xF0 == MS5611.CONVERT_D1 else 1]
        return round(clamp(value, 1.0, _TOP))

    def _measure(self, osr: int) -> None:
        celsius, pascal = self._felt()
        d1, d2 = self._raw
        d2, _ = solve(self._temperature, celsius, d2, top=_TOP)
        d1, slope = solve(lambda raw: self._pressure(raw, d2), pascal, d1, top=_TOP)
        gauss = self.random.gauss
        self._raw = (
            d1 + gauss(0.0, _NOISE_PA[osr] / slope),
            d2 + gauss(0.0, _NOISE_COUNTS),
        )

    def _temperature(self, d2: float) -> float:
        return temperature(d2)

    def _pressure(self, d1: float, d2: float) -> float:
        return pressure(d1, d2)


def _below(d2: float) -> tuple[float, float, float]:
    """Return dT, and TEMP of the first order in 0.01 °C below 20 and below -15 °C, or 0."""
    d_t = d2 - COEFFICIENTS[4] * 2**8
    temp = 2000.0 + d_t * COEFFICIENTS[5] / 2**23
    return d_t, min(temp - 2000.0, 0.0), min(temp + 1500.0, 0.0)


def temperature(d2: float) -> float:
    """Return °C."""
    d_t, low, _ = _below(d2)
    second = d_t**2 / 2**31 if low else 0.0
    return (2000.0 + d_t * COEFFICIENTS[5] / 2**23 - second) / 100.0


def pressure(d1: float, d2: float) -> float:
    """Return Pa: the data sheet's hundredths of a millibar."""
    c1, c2, c3, c4 = COEFFICIENTS[:4]
    d_t, low, very_low = _below(d2)
    off2 = 5.0 * low**2 / 2 + 7.0 * very_low**2
    sens2 = 5.0 * low**2 / 4 + 11.0 * very_low**2 / 2
    off = c2 * 2**16 + c4 * d_t / 2**7 - off2
    sens = c1 * 2**15 + c3 * d_t / 2**8 - sens2
    return (d1 * sens / 2**21 - off) / 2**15


def crc4(words: tuple[int, ...]) -> int:
    """Return the remainder of the PROM by x^4 + x + 1: the CRC of AN520 as a division."""
    message = b"".join(word.to_bytes(2, "big") for word in words)[:-1]  # without its own byte
    rest = int.from_bytes(message, "big") << 4
    for bit in range(rest.bit_length() - 1, 3, -1):
        if rest >> bit & 1:
            rest ^= 0x13 << (bit - 4)
    return rest
