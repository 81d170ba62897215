"""MS5611 and MS5607: pressure and temperature on I2C.

Source: MS5611-01BA03, "Pressure and temperature calculation" (figures 2 and 3, second order
included), "Commands"; AN520 for the CRC-4. Checked with the data sheet's example: 20.07 °C and
1000.09 mbar. MS5607-02BA03 likewise: 20.00 °C and 1100.02 mbar.
"""

from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.errors import DeviceError
from blimp.hardware.barometer import Barometer
from blimp.hardware.bus import Buses
from blimp.hardware.device import Steps, Wiring
from blimp.hardware.registers.barometers import MS5611 as R
from blimp.types import BaroSample

PRESSURES_A_TEMPERATURE = 8  # temperature moves slowly, and takes as long to measure


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """C1 to C6 of one chip."""

    c1: int
    c2: int
    c3: int
    c4: int
    c5: int
    c6: int

    def compensated(self, d1: int, d2: int) -> tuple[float, float]:
        """Return pressure in Pa and temperature in °C."""
        dt = d2 - self.c5 * 256
        centi_c = 2000.0 + dt * self.c6 / 2**23
        offset = self.c2 * 2.0**16 + self.c4 * dt / 2**7
        sensitivity = self.c1 * 2.0**15 + self.c3 * dt / 2**8
        cold = centi_c - 2000.0
        very_cold = centi_c + 1500.0
        if cold < 0.0:
            centi_c -= dt * dt / 2**31
            offset -= 2.5 * cold * cold
            sensitivity -= 1.25 * cold * cold
        if very_cold < 0.0:
            offset -= 7.0 * very_cold * very_cold
            sensitivity -= 5.5 * very_cold * very_cold
        return (d1 * sensitivity / 2**21 - offset) / 2**15, centi_c / 100.0


class Calibration5607(Calibration, frozen=True, kw_only=True):
    """Those of an MS5607: other powers of two, other second order."""

    def compensated(self, d1: int, d2: int) -> tuple[float, float]:
        """Return pressure in Pa and temperature in °C."""
        dt = d2 - self.c5 * 256
        centi_c = 2000.0 + dt * self.c6 / 2**23
        offset = self.c2 * 2.0**17 + self.c4 * dt / 2**6
        sensitivity = self.c1 * 2.0**16 + self.c3 * dt / 2**7
        cold = centi_c - 2000.0
        very_cold = centi_c + 1500.0
        if cold < 0.0:
            centi_c -= dt * dt / 2**31
            offset -= 61.0 * cold * cold / 16.0
            sensitivity -= 2.0 * cold * cold
        if very_cold < 0.0:
            offset -= 15.0 * very_cold * very_cold
            sensitivity -= 8.0 * very_cold * very_cold
        return (d1 * sensitivity / 2**21 - offset) / 2**15, centi_c / 100.0


def crc4(words: tuple[int, ...]) -> int:
    """Return the CRC of the eight PROM words, AN520. Its own place, the last byte, counts as 0."""
    rest = 0
    for i, word in enumerate(words):
        for byte in (word >> 8, word & 0xFF if i < R.PROM_WORDS - 1 else 0):
            rest ^= byte
            for _ in range(8):
                rest = (rest << 1) ^ (0x3000 if rest & 0x8000 else 0)
            rest &= 0xFFFF
    return rest >> 12


class Ms5611(Barometer):
    """Each poll takes the conversion that the poll before ordered, and orders the next."""

    WIRING: ClassVar = Wiring(bus="i2c")
    LIMITS_PA: ClassVar = (1000.0, 120000.0)
    STALE_ERROR: ClassVar[str] = "frozen: the same conversion"
    CALIBRATION: ClassVar[type[Calibration]] = Calibration
    # What the air has 5,000 m up. By these formulas an MS5607 shows half of the true pressure: at
    # sea level 43.5 to 54.2 kPa, the lowest and the highest ever measured.
    LEAST_PA: ClassVar[float] = 54_200.0

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._calibration: Calibration | None = None
        self._ordered = R.CONVERT_D2
        self._ordered_s = 0.0
        self._pressures = 0  # since the last temperature
        self._d1 = self._d2 = 0  # kept through a restart: the same again is frozen

    def _start(self) -> Steps:
        bus = self._open()
        bus.command(self._address, R.RESET)
        yield R.RELOAD_S
        words: tuple[int, ...] = ()
        while len(words) < R.PROM_WORDS:
            words += (self._word(R.PROM + 2 * len(words)),)
            yield 0.0
        # It has no identity register: a PROM with its CRC right stands for one.
        if crc4(words) != words[-1] & 0xF or not all(words[1:7]):
            shown = " ".join(f"{word:04x}" for word in words)
            raise DeviceError(
                f"{self._where}: PROM {shown} has CRC {crc4(words):x}, expected {words[-1] & 0xF:x}"
                f" and no coefficient 0{self._instead()}"
            )
        c1, c2, c3, c4, c5, c6 = words[1:7]
        self._calibration = self.CALIBRATION(c1=c1, c2=c2, c3=c3, c4=c4, c5=c5, c6=c6)
        self._pressure.forget()
        self._pressures = self._ordered = 0

    def _read(self, now_s: float) -> BaroSample | None:
        if not self._ordered:
            self._order(R.CONVERT_D2, now_s)
            return None
        if now_s - self._ordered_s < R.CONVERSION_S:
            return None
        done = self._ordered
        self._ordered = 0  # whatever follows, the next poll has to order again
        raw = int.from_bytes(self._bus.read(self._address, R.ADC_READ, 3), "big")
        if raw == 0:
            # What a power-cycled chip shows, too: it knows of no conversion.
            raise DeviceError(f"{self.name}: the conversion was not done: the chip was reset")
        if done == R.CONVERT_D2:
            self._d2, self._pressures = raw, 0
            self._order(R.CONVERT_D1, now_s)
            return None
        self._pressures += 1
        again = self._pressures >= PRESSURES_A_TEMPERATURE
        self._order(R.CONVERT_D2 if again else R.CONVERT_D1, now_s)
        if raw == self._d1:
            return None
        self._d1 = raw
        assert self._calibration is not None  # read at the start
        pressure_pa, temperature_c = self._calibration.compensated(raw, self._d2)
        if pressure_pa < self.LEAST_PA:
            raise DeviceError(
                f"{self._where}: {pressure_pa:.0f} Pa is less than the air has where people live: "
                'an MS5607, which so reads half, is sold as MS5611; it is chip = "ms5607"'
            )
        return self._sample(now_s, pressure_pa=pressure_pa, temperature_c=temperature_c)

    def _order(self, conversion: int, now_s: float) -> None:
        self._bus.command(self._address, conversion | R.OSR_4096)
        self._ordered, self._ordered_s = conversion, now_s


class Ms5607(Ms5611):
    """The same commands, other formulas. An MS5611 in its place reads twice: above the range."""

    CALIBRATION: ClassVar[type[Calibration]] = Calibration5607
    LEAST_PA: ClassVar[float] = 0.0
