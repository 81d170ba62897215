"""BMP388 and BMP390: pressure and temperature on I2C.

Source: BST-BMP388-DS001 revision 1.7 and BST-BMP390-DS002: 3.4 and 3.9 (settings and their
times), 4.3 (registers), 8.4 to 8.6 (compensation in floating point).
"""

from struct import Struct
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.errors import DeviceError
from blimp.hardware.barometer import Barometer
from blimp.hardware.bus import Buses
from blimp.hardware.device import Steps, Wiring
from blimp.hardware.registers.barometers import BMP388 as R
from blimp.types import BaroSample

_CALIBRATION = Struct("<HHbhhbbHHbbhbb")
# What 8.4 subtracts from each coefficient, and the power of two it divides it by.
_SCALES = {
    "t1": (0, -8), "t2": (0, 30), "t3": (0, 48),
    "p1": (1 << 14, 20), "p2": (1 << 14, 29), "p3": (0, 32), "p4": (0, 37), "p5": (0, -3),
    "p6": (0, 6), "p7": (0, 8), "p8": (0, 15), "p9": (0, 48), "p10": (0, 48), "p11": (0, 65),
}  # fmt: skip
# Pressure eight times, temperature once: 19 ms (3.9.2), which 50 Hz leaves time for.
_SETTINGS = (
    (R.OSR, R.OSR_X1 << R.OSR_T_SHIFT | R.OSR_X8),
    (R.ODR, R.ODR_50_HZ),
    (R.CONFIG, R.IIR_3 << R.IIR_SHIFT),
    (R.PWR_CTRL, R.PRESS_EN | R.TEMP_EN | R.MODE_NORMAL),
)


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The coefficients of one chip, scaled as section 8.4 says."""

    t1: float
    t2: float
    t3: float
    p1: float
    p2: float
    p3: float
    p4: float
    p5: float
    p6: float
    p7: float
    p8: float
    p9: float
    p10: float
    p11: float

    @classmethod
    def from_bytes(cls, data: bytes) -> "Calibration":
        """Read the 21 bytes from 0x31."""
        raw = dict(zip(_SCALES, _CALIBRATION.unpack(data), strict=True))
        return cls(**{name: (raw[name] - o) * 2.0**-p for name, (o, p) in _SCALES.items()})

    def temperature_c(self, adc_t: int) -> float:
        """Section 8.5."""
        a = adc_t - self.t1
        return a * self.t2 + a * a * self.t3

    def pressure_pa(self, adc_p: int, t: float) -> float:
        """Section 8.6; `t` is the compensated temperature in °C."""
        offset = self.p5 + t * (self.p6 + t * (self.p7 + t * self.p8))
        slope = self.p1 + t * (self.p2 + t * (self.p3 + t * self.p4))
        curve = self.p9 + t * self.p10 + adc_p * self.p11
        return offset + adc_p * (slope + adc_p * curve)


class Bmp388(Barometer):
    """Reads in normal mode: the chip measures on its own and says when there is news."""

    CHIP_ID: ClassVar[int] = R.CHIP_ID_BMP388
    WIRING: ClassVar = Wiring(bus="i2c")
    LIMITS_PA: ClassVar = (30000.0, 125000.0)  # table 2
    STALE_ERROR: ClassVar[str] = "no new measurement"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._calibration: Calibration | None = None
        self._raw = b""

    def _start(self) -> Steps:
        bus = self._open()
        self._identify("chip_id", R.CHIP_ID, self.CHIP_ID)
        bus.write(self._address, R.CMD, bytes([R.CMD_SOFTRESET]))
        yield R.START_UP_S
        data = yield from self._calibration_bytes(R.CALIB, R.CALIB_LENGTH)
        calibration = Calibration.from_bytes(data)
        if calibration.t1 == 0.0 or calibration.t2 == 0.0:
            raise DeviceError(f"{self._where}: its calibration is empty: {data.hex(' ')}")
        self._calibration = calibration
        for register, value in _SETTINGS:
            self._set(register, bytes([value]))
        self._pressure.forget()
        yield 0.04  # the first conversion

    def _read(self, now_s: float) -> BaroSample | None:
        raw = self._bus.read(self._address, R.ERR_REG, 2 + R.DATA_LENGTH)
        errors, status, data = raw[0], raw[1], raw[2:]
        adc_p = int.from_bytes(data[:3], "little")
        adc_t = int.from_bytes(data[3:], "little")
        if errors & (R.ERR_FATAL | R.ERR_CONF):
            raise self._lost(f"err_reg reads 0x{errors:02X}: the chip is broken or misconfigured")
        if adc_p == adc_t == R.DATA_RESET:
            # What a power-cycled chip shows: it sleeps and has measured nothing yet.
            raise self._lost("no measurement (data 0x800000): the chip is asleep")
        if not status & R.STATUS_DRDY_PRESS or data == self._raw:
            return None
        self._raw = data
        assert self._calibration is not None  # read at the start
        temperature_c = self._calibration.temperature_c(adc_t)
        return self._sample(
            now_s,
            pressure_pa=self._calibration.pressure_pa(adc_p, temperature_c),
            temperature_c=temperature_c,
        )


class Bmp390(Bmp388):
    """The same registers and formulas, another identity."""

    CHIP_ID: ClassVar[int] = R.CHIP_ID_BMP390
