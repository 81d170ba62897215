"""InvenSense MPU-6050, -6500 and -9250. Sources: PS-MPU-6000A-00 rev 3.4, RM-MPU-6000A-00
rev 4.2; PS-MPU-6500A-01 rev 1.3, RM-MPU-6500A-00 rev 2.1; RM-MPU-9250A-00.

Not simulated: the FIFO (its count stays 0), the auxiliary bus, motion interrupts, the self-test and
the low-pass filter's delay (its bandwidth sets the noise); of the last its magnetometer, which is a
chip on that bus.
"""

import math
import struct

from blimp.hardware.registers.inertial import MPU6050, MPU6500
from blimp.sim.chips import inertial
from blimp.sim.chips.chip import Fitting, I2CChip
from blimp.sim.chips.inertial import Inertial, Noise

_SIZE = 0x80  # registers 0 to 117, then nothing
_WRITABLE = frozenset(
    (*range(0x0D, 0x11), *range(0x19, 0x29), 0x37, 0x38, *range(0x63, 0x6D), 0x72, 0x73, 0x74)
)
_DATA = struct.Struct(">hhhhhhh")
_BANDWIDTH_HZ = (256.0, 188.0, 98.0, 42.0, 20.0, 10.0, 5.0, 256.0)  # gyro by DLPF_CFG, 4.3
_ACCEL_BANDWIDTH_HZ = (460.0, 184.0, 92.0, 41.0, 20.0, 10.0, 5.0, 460.0)  # by A_DLPF_CFG
_GYRO_BIAS_DPS = 1.0  # of a part that was turned on at 25 °C; the datasheet allows ±20
_GYRO_DPS_PER_C = 0.05  # the datasheet, 6.1, allows ±20 °/s from -40 to 85 °C
_ACCEL_BIAS_G = 0.004  # left over after trimming; the datasheet allows ±0.05
_WRONG_ID = 0xAF  # an ICM-20608-G


class Mpu6050(I2CChip):
    """Channels: those of `Inertial`."""

    KINDS = I2CChip.KINDS | {"wrong_identity"}
    CHANNELS = inertial.CHANNELS
    DEFAULT_ADDRESS = 0x68
    IDENTITY = MPU6050.CHIP_ID
    POWER_ON = MPU6050.PWR_MGMT_1_RESET
    CELSIUS = (340.0, 36.53)  # counts a degree, and where they are 0: register map 4.18
    GYRO_NOISE = 0.05 / math.sqrt(98.0)  # 0.05 °/s rms at DLPF_CFG 2, datasheet 6.1
    ACCEL_NOISE = 400e-6  # g per root Hz, datasheet 6.2

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._inertial = Inertial(
            fitting, random=self.random, gyro_bias_dps=_GYRO_BIAS_DPS, accel_bias_g=_ACCEL_BIAS_G,
            gyro_dps_per_c=_GYRO_DPS_PER_C,
        )  # fmt: skip
        self._memory = bytearray(_SIZE)
        self._pointer = 0
        self._reset()

    def _reset(self) -> None:
        self._memory[:] = bytes(_SIZE)
        self._memory[MPU6050.PWR_MGMT_1] = self.POWER_ON
        self._memory[MPU6050.WHO_AM_I] = self.IDENTITY
        asleep = bool(self.POWER_ON & MPU6050.SLEEP)
        self._awake_s = math.inf if asleep else self.timeline.now_s + MPU6050.GYRO_START_UP_S
        self._index = -1
        self._configure()

    def _configure(self) -> None:
        """Work out what the settings mean; done on writes, so that reads stay cheap."""
        memory = self._memory
        dlpf = memory[MPU6050.CONFIG] & 7
        gyro_rate_hz = 8000.0 if dlpf in (0, 7) else 1000.0
        self._rate_hz = gyro_rate_hz / (1 + memory[MPU6050.SMPLRT_DIV])
        bandwidth_hz = _BANDWIDTH_HZ[dlpf]
        self._noise = Noise(
            accel_g=self.ACCEL_NOISE * math.sqrt(self._accel_bandwidth_hz()),
            gyro_dps=self.GYRO_NOISE * math.sqrt(bandwidth_hz),
        )
        self._gyro_scale = 131.072 / (1 << (memory[MPU6050.GYRO_CONFIG] >> 3 & 3))
        self._accel_scale = 16384.0 / (1 << (memory[MPU6050.ACCEL_CONFIG] >> 3 & 3))

    def _accel_bandwidth_hz(self) -> float:
        return _BANDWIDTH_HZ[self._memory[MPU6050.CONFIG] & 7]

    def write(self, data: bytes) -> None:
        pointer = data[0]
        for value in data[1:]:
            self._store(pointer, value)
            if pointer != 0x74:  # the FIFO port stays where it is
                pointer = (pointer + 1) & 0x7F
        self._pointer = pointer & 0x7F

    def _store(self, register: int, value: int) -> None:
        if register not in _WRITABLE:
            return
        if register == MPU6050.PWR_MGMT_1:
            if value & MPU6050.DEVICE_RESET:
                self._reset()
                return
            asleep = bool(value & MPU6050.SLEEP)
            if asleep:
                self._awake_s = math.inf
            elif self._awake_s == math.inf:
                self._awake_s = self.timeline.now_s + MPU6050.GYRO_START_UP_S
                self._index = -1
        elif register == MPU6050.SIGNAL_PATH_RESET:
            value = 0  # clears itself
        elif register == MPU6050.USER_CTRL:
            value &= 0xF0  # the reset bits clear themselves
        self._memory[register] = value
        self._configure()

    def read(self, length: int) -> bytes:
        start = self._pointer
        end = start + length
        if start < MPU6050.GYRO_XOUT_H + 6 and end > MPU6050.INT_STATUS:
            self._sample()
        memory = self._memory
        if end > _SIZE:
            data = bytes(memory[start:]) + bytes(end - _SIZE)
        else:
            data = bytes(memory[start:end])
        if start <= MPU6050.INT_STATUS < end:
            memory[MPU6050.INT_STATUS] = 0  # cleared by reading
        if self.faults.wrong_identity and start <= MPU6050.WHO_AM_I < end:
            at = MPU6050.WHO_AM_I - start
            data = data[:at] + bytes((_WRONG_ID,)) + data[at + 1 :]
        self._pointer = end & 0x7F
        return data

    def _sample(self) -> None:
        """Bring the data registers up to the newest sample that has been taken."""
        now_s = self.timeline.now_s
        if now_s < self._awake_s or self.faults.frozen:
            return
        index = int((now_s - self._awake_s) * self._rate_hz + 1e-6)
        if index == self._index:
            return
        self._index = index
        (fx, fy, fz), (p, q, r), celsius = self._inertial.felt(self.faults, now_s, self._noise)
        a, g = self._accel_scale, self._gyro_scale
        per_c, zero_c = self.CELSIUS
        temperature = (celsius - zero_c) * per_c
        values = [fx * a, fy * a, fz * a, temperature, p * g, q * g, r * g]
        memory = self._memory
        _DATA.pack_into(
            memory,
            MPU6050.ACCEL_XOUT_H,
            *inertial.counts(values, 1.0),
        )
        memory[MPU6050.INT_STATUS] |= MPU6050.DATA_RDY_INT


class Mpu6500(Mpu6050):
    """It comes up awake, and filters its accelerometer by a register of its own."""

    IDENTITY = MPU6500.CHIP_ID
    POWER_ON = MPU6500.PWR_MGMT_1_RESET
    CELSIUS = (333.87, 21.0)  # table 3, register map 4.20
    GYRO_NOISE = 0.01  # °/s per root Hz, table 1
    ACCEL_NOISE = 300e-6  # g per root Hz, table 2

    def _accel_bandwidth_hz(self) -> float:
        return _ACCEL_BANDWIDTH_HZ[self._memory[MPU6500.ACCEL_CONFIG_2] & 7]


class Mpu9250(Mpu6500):
    IDENTITY = MPU6500.CHIP_ID_MPU9250
