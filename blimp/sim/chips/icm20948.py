"""TDK InvenSense ICM-20948 with its AK09916 magnetometer. Source: DS-000189 rev 1.3.

Not simulated: FIFO, DMP, interrupts, low-power modes, bypass of the auxiliary bus and its
slaves 1 to 3; the low-pass filter's delay (its bandwidth sets the noise).
"""

import math
import struct

from blimp.hardware.registers.inertial import AK09916, ICM20948
from blimp.sim.chips import ak09916, inertial
from blimp.sim.chips.ak09916 import Ak09916
from blimp.sim.chips.chip import Fitting, I2CChip
from blimp.sim.chips.inertial import Inertial, Noise, counts

_SIZE = 0x80
_GYRO_BANDWIDTH_HZ = (196.6, 151.8, 119.5, 51.2, 23.9, 11.6, 5.7, 361.4)  # table 16
_ACCEL_BANDWIDTH_HZ = (246.0, 246.0, 111.4, 50.4, 23.9, 11.5, 5.7, 473.0)  # table 18
_GYRO_NOISE_DPS = 0.015  # per root Hz, table 1
_ACCEL_NOISE_G = 230e-6  # per root Hz, table 2
_GYRO_BIAS_DPS = 1.0  # of a part that was turned on at 25 °C; the data sheet allows ±5
_GYRO_DPS_PER_C = 0.05  # table 1: zero rate over temperature, typical
_ACCEL_BIAS_G = 0.004
_WRONG_ID = 0xE1  # an ICM-20649
_WRITABLE = (
    frozenset({0x03, 0x05, 0x06, 0x07, 0x0F, 0x10, 0x11, 0x12, 0x13, *range(0x66, 0x6A)}),
    frozenset(range(0x14, 0x29)),
    frozenset((*range(0x16), 0x52, 0x53, 0x54)),
    frozenset(range(0x18)),
)


class Icm20948(I2CChip):
    """Channels: those of `Inertial`, and magnetic_x/y/z in T along the chip's axes."""

    KINDS = I2CChip.KINDS | {"wrong_identity"}
    CHANNELS = (*inertial.CHANNELS, *ak09916.CHANNELS)
    DEFAULT_ADDRESS = 0x69

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._inertial = Inertial(
            fitting, random=self.random, gyro_bias_dps=_GYRO_BIAS_DPS, accel_bias_g=_ACCEL_BIAS_G,
            gyro_dps_per_c=_GYRO_DPS_PER_C,
        )  # fmt: skip
        self.compass = Ak09916(chip=self, inertial=self._inertial)
        self._pointer = 0
        self._reset()

    def _reset(self) -> None:
        self._banks = [bytearray(_SIZE) for _ in range(4)]
        self._bank = 0
        self._banks[0][ICM20948.WHO_AM_I] = ICM20948.CHIP_ID
        self._banks[0][ICM20948.PWR_MGMT_1] = ICM20948.PWR_MGMT_1_RESET
        self._banks[2][ICM20948.GYRO_CONFIG_1] = ICM20948.CONFIG_RESET
        self._banks[2][ICM20948.ACCEL_CONFIG] = ICM20948.CONFIG_RESET
        self._woke_s = math.inf
        self._index = -1
        self._configure()

    def _configure(self) -> None:
        settings = self._banks[2]
        gyro, accel = settings[ICM20948.GYRO_CONFIG_1], settings[ICM20948.ACCEL_CONFIG]
        self._rate_hz = ICM20948.RATE_HZ / (1 + settings[ICM20948.GYRO_SMPLRT_DIV])
        self._gyro_scale = 131.072 / (1 << (gyro >> ICM20948.FS_SHIFT & 3))
        self._accel_scale = 16384.0 / (1 << (accel >> ICM20948.FS_SHIFT & 3))
        gyro_hz = _GYRO_BANDWIDTH_HZ[gyro >> ICM20948.DLPF_SHIFT & 7]
        accel_hz = _ACCEL_BANDWIDTH_HZ[accel >> ICM20948.DLPF_SHIFT & 7]
        self._noise = Noise(
            accel_g=_ACCEL_NOISE_G * math.sqrt(accel_hz),
            gyro_dps=_GYRO_NOISE_DPS * math.sqrt(gyro_hz),
        )

    def write(self, data: bytes) -> None:
        self._sample()  # by the orders that held until now
        pointer = data[0] & 0x7F
        for value in data[1:]:
            self._store(pointer, value)
            pointer = (pointer + 1) & 0x7F
        self._pointer = pointer

    def _store(self, register: int, value: int) -> None:
        if register == ICM20948.REG_BANK_SEL:
            self._bank = value >> ICM20948.BANK_SHIFT & 3
            return
        if register not in _WRITABLE[self._bank]:
            return
        if self._bank == 0 and register == ICM20948.PWR_MGMT_1:
            if value & ICM20948.DEVICE_RESET:
                self._reset()
                return
            if value & ICM20948.SLEEP:
                self._woke_s = math.inf
            elif self._woke_s == math.inf:
                self._woke_s = self.timeline.now_s
                self._index = -1
        elif self._bank == 0 and register == ICM20948.USER_CTRL:
            value &= ~ICM20948.I2C_MST_RST & 0xFF
        self._banks[self._bank][register] = value
        if (self._bank, register) == (0, ICM20948.USER_CTRL):
            self._turn_auxiliary()  # a master that was switched on does not wait for a sample
        elif (self._bank, register) == (3, ICM20948.I2C_SLV4_CTRL):
            self._transfer_once()
        self._configure()

    def read(self, length: int) -> bytes:
        start = self._pointer
        if self._bank == 0:
            self._sample()
        memory = self._banks[self._bank]
        data = bytearray(memory[start : start + length])
        data += bytes(length - len(data))
        if self._bank == 0 and start <= ICM20948.I2C_MST_STATUS < start + length:
            memory[ICM20948.I2C_MST_STATUS] = 0
        if self._bank == 0 and start == ICM20948.WHO_AM_I and self.faults.wrong_identity:
            data[0] = _WRONG_ID
        self._pointer = (start + length) & 0x7F
        return bytes(data)

    def _sample(self) -> None:
        """Bring the data registers up to the newest sample, the auxiliary bus with it."""
        now_s = self.timeline.now_s
        if now_s < self._woke_s or self.faults.frozen:
            return
        index = int((now_s - self._woke_s) * self._rate_hz + 1e-6)
        if index == self._index:
            return
        self._index = index
        self._turn_auxiliary()
        if now_s < self._woke_s + ICM20948.GYRO_START_UP_S:
            return
        force, rates, celsius = self._inertial.felt(self.faults, now_s, self._noise)
        struct.pack_into(
            ">7h",
            self._banks[0],
            ICM20948.ACCEL_XOUT_H,
            *counts(force, self._accel_scale),
            *counts(rates, self._gyro_scale),
            *counts((celsius - 21.0,), 333.87),
        )

    def _turn_auxiliary(self) -> None:
        """One round of the auxiliary bus, section 5: slave 0."""
        orders, memory = self._banks[3], self._banks[0]
        control = orders[ICM20948.I2C_SLV0_CTRL]
        if not self._is_master or not control & ICM20948.SLV_EN:
            return
        slave, register = orders[ICM20948.I2C_SLV0_ADDR], orders[ICM20948.I2C_SLV0_REG]
        if slave & 0x7F != AK09916.ADDRESS:
            return
        if slave & ICM20948.SLV_READ:
            length = control & 0x0F
            at = ICM20948.EXT_SLV_SENS_DATA_00
            memory[at : at + length] = self.compass.read(register, length)
        else:
            self.compass.write(register, orders[ICM20948.I2C_SLV0_DO])

    @property
    def _is_master(self) -> bool:
        return bool(self._banks[0][ICM20948.USER_CTRL] & ICM20948.I2C_MST_EN)

    def _transfer_once(self) -> None:
        """Slave 4: one byte there or back, and a flag when it is done."""
        orders = self._banks[3]
        slave, register = orders[ICM20948.I2C_SLV4_ADDR], orders[ICM20948.I2C_SLV4_REG]
        if not self._is_master or not orders[ICM20948.I2C_SLV4_CTRL] & ICM20948.SLV_EN:
            return
        orders[ICM20948.I2C_SLV4_CTRL] &= ~ICM20948.SLV_EN & 0xFF
        if slave & 0x7F == AK09916.ADDRESS:
            if slave & ICM20948.SLV_READ:
                (orders[ICM20948.I2C_SLV4_DI],) = self.compass.read(register, 1)
            else:
                self.compass.write(register, orders[ICM20948.I2C_SLV4_DO])
        self._banks[0][ICM20948.I2C_MST_STATUS] |= ICM20948.SLV4_DONE
