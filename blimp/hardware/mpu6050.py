"""MPU-6050: three-axis accelerometer and gyro on I2C.

Source: RM-MPU-6000A-00 revision 4.2 (register map) and PS-MPU-6000A-00 (specification).
"""

from struct import Struct
from typing import ClassVar

from blimp.hardware.device import Steps, Wiring
from blimp.hardware.inertial import InertialSensor
from blimp.hardware.registers import MPU6050 as R
from blimp.types import ImuSample

_DATA = Struct(">7h")


class Mpu6050(InertialSensor):
    WIRING: ClassVar = Wiring(bus="i2c", addresses=R.ADDRESSES)
    RANGES_DPS: ClassVar = {250: (R.FS_250_DPS, 131.0), 500: (R.FS_500_DPS, 65.5)}
    FILTERS_HZ: ClassVar = {
        184: R.DLPF_184_HZ, 94: R.DLPF_94_HZ, 44: R.DLPF_44_HZ, 21: R.DLPF_21_HZ,
    }  # fmt: skip
    FILTER_HZ: ClassVar[int] = 44

    def _start(self) -> Steps:
        bus = self._open()
        self._identify("WHO_AM_I", R.WHO_AM_I, R.CHIP_ID)
        bus.write(self._address, R.PWR_MGMT_1, bytes([R.DEVICE_RESET]))
        yield R.RESET_S
        bus.write(self._address, R.PWR_MGMT_1, bytes([R.CLKSEL_PLL_X_GYRO]))
        yield R.GYRO_START_UP_S
        # SMPLRT_DIV and what follows.
        self._set(R.SMPLRT_DIV, bytes([0, self._filter, self._range, R.AFS_2_G]))
        self._temperature.forget()

    def _read(self, now_s: float) -> ImuSample | None:
        raw = self._bus.read(self._address, R.ACCEL_XOUT_H, R.DATA_LENGTH)
        ax, ay, az, temperature, gx, gy, gz = _DATA.unpack(raw)
        if not self._is_news(raw, (ax, ay, az)):
            return None
        return self._sample(
            now_s,
            accel=(ax, ay, az),
            gyro=(gx, gy, gz),
            temperature_c=temperature / 340.0 + 36.53,  # register map 4.18
        )
