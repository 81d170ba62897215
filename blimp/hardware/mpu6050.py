"""MPU-6050, and what is sold as one: three-axis accelerometer and gyro on I2C.

Sources: RM-MPU-6000A-00 revision 4.2 (register map) and PS-MPU-6000A-00 (specification);
RM-MPU-6500A-00 revision 2.1, RM-MPU-9250A-00 and DS-000143 (ICM-20689). Ranges, filters and data
are the same. The later ones have a filter for the accelerometer alone, and another temperature.
"""

from struct import Struct
from typing import ClassVar, NamedTuple

from blimp.airframe import Device as Row
from blimp.hardware.bus import Buses
from blimp.hardware.device import Steps, Wiring
from blimp.hardware.inertial import InertialSensor
from blimp.hardware.registers.inertial import MPU6050 as R
from blimp.hardware.registers.inertial import MPU6500
from blimp.types import ImuSample

SETTINGS_EVERY = 10  # reads, between two looks at the settings

_DATA = Struct(">7h")


class Model(NamedTuple):
    """What an identity stands for. `is_later`: registers as those of the MPU-6500."""

    counts_per_c: float
    zero_c: float  # where the temperature reads 0
    is_later: bool


_MPU6500 = Model(333.87, 21.0, is_later=True)
MODELS = {
    R.CHIP_ID: Model(340.0, 36.53, is_later=False),  # register map 4.18
    MPU6500.CHIP_ID: _MPU6500,
    MPU6500.CHIP_ID_MPU9250: _MPU6500,
    MPU6500.CHIP_ID_MPU9255: _MPU6500,
    MPU6500.CHIP_ID_MPU6515: _MPU6500,
    MPU6500.CHIP_ID_ICM20689: Model(326.8, 25.0, is_later=True),
}


class Mpu6050(InertialSensor):
    """Any of the models passes for any of their names."""

    WIRING: ClassVar = Wiring(bus="i2c")
    RANGES_DPS: ClassVar = {250: (R.FS_250_DPS, 131.0), 500: (R.FS_500_DPS, 65.5)}
    FILTERS_HZ: ClassVar = {
        184: R.DLPF_184_HZ, 94: R.DLPF_94_HZ, 44: R.DLPF_44_HZ, 21: R.DLPF_21_HZ,
    }  # fmt: skip
    FILTER_HZ: ClassVar[int] = 44

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._model = MODELS[R.CHIP_ID]
        self._settings = b""
        self._reads = 0

    def _start(self) -> Steps:
        bus = self._open()
        self._model = MODELS[self._identify("WHO_AM_I", R.WHO_AM_I, *MODELS)]
        bus.write(self._address, R.PWR_MGMT_1, bytes([R.DEVICE_RESET]))
        yield R.RESET_S
        bus.write(self._address, R.PWR_MGMT_1, bytes([R.CLKSEL_PLL_X_GYRO]))
        yield R.GYRO_START_UP_S
        # SMPLRT_DIV and what follows, to ACCEL_CONFIG_2 where there is one.
        own_filter = [self._filter] if self._model.is_later else []
        self._settings = bytes([0, self._filter, self._range, R.AFS_2_G, *own_filter])
        self._set(R.SMPLRT_DIV, self._settings)
        self._reads = 0
        self._temperature.forget()

    def _read(self, now_s: float) -> ImuSample | None:
        if self._model.is_later:
            self._check_settings()
        raw = self._bus.read(self._address, R.ACCEL_XOUT_H, R.DATA_LENGTH)
        ax, ay, az, temperature, gx, gy, gz = _DATA.unpack(raw)
        if not self._is_news(raw, (ax, ay, az)):
            return None
        return self._sample(
            now_s,
            accel=(ax, ay, az),
            gyro=(gx, gy, gz),
            temperature_c=temperature / self._model.counts_per_c + self._model.zero_c,
        )

    def _check_settings(self) -> None:
        """After a power cut an MPU-6050 sleeps; a later one measures on, in another range."""
        self._reads += 1
        if self._reads % SETTINGS_EVERY:
            return
        kept = self._bus.read(self._address, R.SMPLRT_DIV, len(self._settings))
        if kept != self._settings:
            raise self._lost(
                f"its settings read {kept.hex(' ')}, expected {self._settings.hex(' ')}: "
                "the chip was reset"
            )
