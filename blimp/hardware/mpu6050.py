"""MPU-6050: three-axis accelerometer and gyro on I2C.

Source: RM-MPU-6000A-00 revision 4.2 (register map) and PS-MPU-6000A-00 (specification).
"""

import math
from struct import Struct
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.errors import BoardError
from blimp.hardware.bus import Buses
from blimp.hardware.device import Steps, Wiring, read_options
from blimp.hardware.i2c_sensor import I2CSensor
from blimp.hardware.mounting import FLAT, Mounting
from blimp.hardware.plausible import Plausible
from blimp.hardware.registers import MPU6050 as R
from blimp.types import ImuSample

G_MPS2 = 9.80665
RANGES_DPS = {250: (R.FS_250_DPS, 131.0), 500: (R.FS_500_DPS, 65.5)}  # bits, LSB per degree/s
ACCEL_LSB_PER_G = 16384.0  # at ±2 g
FILTERS_HZ = {184: R.DLPF_184_HZ, 94: R.DLPF_94_HZ, 44: R.DLPF_44_HZ, 21: R.DLPF_21_HZ}
FROZEN_READS = 25
MAX_TEMPERATURE_STEP_C = 5.0

_DATA = Struct(">7h")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """mounting: which chip axis, with its sign, points forward, right and down."""

    gyro_range_dps: int = 250
    filter_hz: int = 44
    mounting: tuple[str, str, str] = FLAT


class Mpu6050(I2CSensor[ImuSample]):
    """Samples in the body frame (forward-right-down): (0, 0, -9.81) m/s² level and at rest."""

    ROLE: ClassVar[str] = "imu"
    UNIT: ClassVar[str] = "m/s², rad/s"
    WIRING: ClassVar = Wiring(bus="i2c", addresses=R.ADDRESSES)
    STALE_ERROR: ClassVar[str] = f"frozen: the same {R.DATA_LENGTH} bytes"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._stale_s = FROZEN_READS / row.rate_hz
        options = read_options(row.options, Options, who=row.name)
        if options.gyro_range_dps not in RANGES_DPS:
            raise BoardError(
                f"{row.name}: gyro_range_dps {options.gyro_range_dps} is none of "
                f"{', '.join(map(str, RANGES_DPS))}"
            )
        if options.filter_hz not in FILTERS_HZ:
            raise BoardError(
                f"{row.name}: filter_hz {options.filter_hz} is none of "
                f"{', '.join(map(str, FILTERS_HZ))}"
            )
        self._filter = FILTERS_HZ[options.filter_hz]
        self._range, lsb_per_dps = RANGES_DPS[options.gyro_range_dps]
        mounting = Mounting(options.mounting, who=row.name)
        self._accel = mounting.turn(G_MPS2 / ACCEL_LSB_PER_G)
        self._gyro = mounting.turn(math.radians(1.0) / lsb_per_dps)
        self._raw = b""
        self._temperature = Plausible(
            f"{self.name}: its temperature", "°C", low=-40.0, high=85.0, step=MAX_TEMPERATURE_STEP_C
        )

    def _start(self) -> Steps:
        bus = self._open()
        self._identify("WHO_AM_I", R.WHO_AM_I, R.CHIP_ID)
        bus.write(self._address, R.PWR_MGMT_1, bytes([R.DEVICE_RESET]))
        yield R.RESET_S
        bus.write(self._address, R.PWR_MGMT_1, bytes([R.CLKSEL_PLL_X_GYRO]))
        yield R.GYRO_START_UP_S
        settings = bytes([0, self._filter, self._range, R.AFS_2_G])  # SMPLRT_DIV and what follows
        self._set(R.SMPLRT_DIV, settings)
        self._temperature.forget()

    def _read(self, now_s: float) -> ImuSample | None:
        raw = self._bus.read(self._address, R.ACCEL_XOUT_H, R.DATA_LENGTH)
        ax, ay, az, temperature, gx, gy, gz = _DATA.unpack(raw)
        if ax == ay == az == 0:
            # Not even free fall reads so: a power-cycled chip sleeps, and its registers are 0.
            raise self._lost("all accelerometer axes read 0: the chip is asleep")
        if raw == self._raw:
            return None
        self._raw = raw
        temperature_c = self._temperature.check(temperature / 340.0 + 36.53)  # register map 4.18
        self._alive(now_s)
        return ImuSample(
            t_s=now_s,
            accel_body_mps2=self._accel(ax, ay, az),
            gyro_body_radps=self._gyro(gx, gy, gz),
            temperature_c=temperature_c,
        )

    def _value(self, sample: ImuSample) -> tuple[float, ...]:
        return sample.accel_body_mps2 + sample.gyro_body_radps
