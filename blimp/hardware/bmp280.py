"""BMP280 and BME280: pressure and temperature on I2C.

Source: BST-BMP280-DS001 revision 1.26: 3.11 and 4.2 (readings), 8.1 (compensation in
floating point), 3.4 (settings). BST-BME280-DS002 1.6 has the same registers, settings and formulas
for them, and measures no humidity after a reset.
"""

from struct import Struct
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.errors import DeviceError
from blimp.hardware.barometer import Barometer
from blimp.hardware.bus import Buses
from blimp.hardware.device import Steps, Wiring
from blimp.hardware.registers.barometers import BMP280 as R
from blimp.types import BaroSample

# The data sheet says 2 ms. Reports of boards that needed 10 to 20 ms:
# https://github.com/BoschSensortec/BMP280_driver/pull/28
COPY_WAIT_S = 0.01
COPY_TRIES = 10

_CALIBRATION = Struct("<HhhHhhhhhhhh")
# Temperature once, pressure eight times: 20 ms a reading, noise about 0.5 Pa before the filter.
_CTRL_MEAS = R.OSRS_X1 << R.OSRS_T_SHIFT | R.OSRS_X8 << R.OSRS_P_SHIFT | R.MODE_NORMAL
_CONFIG = R.T_SB_0_5_MS << R.T_SB_SHIFT | R.FILTER_4 << R.FILTER_SHIFT


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The twelve coefficients of one chip, datasheet table 17."""

    t1: int
    t2: int
    t3: int
    p1: int
    p2: int
    p3: int
    p4: int
    p5: int
    p6: int
    p7: int
    p8: int
    p9: int

    @classmethod
    def from_bytes(cls, data: bytes) -> "Calibration":
        """Read the 24 bytes from 0x88."""
        values = _CALIBRATION.unpack(data)
        return cls(**dict(zip(cls.__struct_fields__, values, strict=True)))

    def fine_temperature(self, adc_t: int) -> float:
        """Return t_fine, which is 5120 a degree Celsius."""
        a = (adc_t / 16384.0 - self.t1 / 1024.0) * self.t2
        b = adc_t / 131072.0 - self.t1 / 8192.0
        return a + b * b * self.t3

    def pressure_pa(self, adc_p: int, fine: float) -> float:
        """Return the pressure. Raises ZeroDivisionError where P1 is 0."""
        a = fine / 2.0 - 64000.0
        b = a * a * self.p6 / 32768.0
        b += a * self.p5 * 2.0
        b = b / 4.0 + self.p4 * 65536.0
        a = (self.p3 * a * a / 524288.0 + self.p2 * a) / 524288.0
        a = (1.0 + a / 32768.0) * self.p1
        p = (1048576.0 - adc_p - b / 4096.0) * 6250.0 / a
        c = self.p9 * p * p / 2147483648.0
        d = p * self.p8 / 32768.0
        return p + (c + d + self.p7) / 16.0


class Bmp280(Barometer):
    """Reads in normal mode: the chip measures on its own, the driver takes what is there.

    Either chip passes for either name: boards are sold as one with the other on them.
    """

    WIRING: ClassVar = Wiring(bus="i2c")
    STALE_S: ClassVar[float] = 2.0
    STALE_ERROR: ClassVar[str] = f"frozen: the same {R.DATA_LENGTH} bytes"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._calibration: Calibration | None = None
        self._raw = b""

    def _start(self) -> Steps:
        bus = self._open()
        self._identify("id", R.ID, R.CHIP_ID, R.CHIP_ID_BME280, *R.SAMPLES)
        bus.write(self._address, R.RESET, bytes([R.RESET_WORD]))
        yield R.START_UP_S
        for tries in range(COPY_TRIES + 1):
            status = bus.read(self._address, R.STATUS, 1)[0]
            if not status & R.STATUS_IM_UPDATE:
                break
            if tries == COPY_TRIES:
                raise DeviceError(
                    f"{self._where}: status (0x{R.STATUS:02X}) reads 0x{status:02X}: "
                    "its calibration is still being copied"
                )
            yield COPY_WAIT_S
        data = yield from self._calibration_bytes(R.CALIB00, R.CALIB_LENGTH)
        calibration = Calibration.from_bytes(data)
        if calibration.t1 == 0 or calibration.p1 == 0:
            raise DeviceError(f"{self._where}: its calibration is empty: {data.hex(' ')}")
        self._calibration = calibration
        # The filter first: in normal mode a write to it may be lost (datasheet 4.3.5).
        bus.write(self._address, R.CONFIG, bytes([_CONFIG]))
        bus.write(self._address, R.CTRL_MEAS, bytes([_CTRL_MEAS]))
        self._check_kept(R.CTRL_MEAS, bytes([_CTRL_MEAS, _CONFIG]))
        self._pressure.forget()
        yield 0.05  # the first conversion

    def _read(self, now_s: float) -> BaroSample | None:
        raw = self._bus.read(self._address, R.PRESS_MSB, R.DATA_LENGTH)
        adc_p = raw[0] << 12 | raw[1] << 4 | raw[2] >> 4
        adc_t = raw[3] << 12 | raw[4] << 4 | raw[5] >> 4
        if adc_p == R.DATA_RESET and adc_t == R.DATA_RESET:
            # What a power-cycled chip shows: it sleeps and has measured nothing yet.
            raise self._lost("no measurement (data 0x80000): the chip is asleep")
        if raw == self._raw:
            return None
        self._raw = raw
        assert self._calibration is not None  # read at the start
        fine = self._calibration.fine_temperature(adc_t)
        return self._sample(
            now_s,
            pressure_pa=self._calibration.pressure_pa(adc_p, fine),
            temperature_c=fine / 5120.0,
        )
