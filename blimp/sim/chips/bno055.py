"""Bosch BNO055 on its UART. Source: BST-BNO055-DS000 rev 1.4.

Not simulated: fusion (its registers stay 0), calibration, axis remapping, power modes, interrupts.
"""

import struct

from blimp.hardware.registers.inertial import BNO055
from blimp.sim.chips import inertial
from blimp.sim.chips.chip import Fitting, SerialChip
from blimp.sim.chips.inertial import Inertial, Noise, counts

_SIZE = 0x80
_PERIOD_S = 0.01  # 3.6.4: data in the modes without fusion come at 100 Hz here
_THINKING_S = 0.001
_NOISE = Noise(accel_g=150e-6 * 62.5**0.5, gyro_dps=0.014 * 32.0**0.5)  # tables 1-2, 1-3
_GYRO_BIAS_DPS = 0.5
_ACCEL_BIAS_G = 0.006
_MAGNETIC_NOISE_T = 0.3e-6
_HARD_IRON_T = 3e-6
_G_MPS2 = 9.80665
_WRONG_ID = bytes((0xA0, 0xFB, 0x00, 0x0F))  # a board whose magnetometer does not answer
_MODES_WITH = {  # 3.3: accelerometer, magnetometer, gyro by operation mode
    1: "a", 2: "m", 3: "g", 4: "am", 5: "ag", 6: "mg", 7: "amg",
}  # fmt: skip


class Bno055(SerialChip):
    """Channels: those of `Inertial`, and magnetic_x/y/z in T."""

    KINDS = SerialChip.KINDS | {"wrong_identity"}
    CHANNELS = (*inertial.CHANNELS, "magnetic_x", "magnetic_y", "magnetic_z")

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._inertial = Inertial(
            fitting, random=self.random, gyro_bias_dps=_GYRO_BIAS_DPS, accel_bias_g=_ACCEL_BIAS_G
        )
        self._hard_iron = [self.random.gauss(0.0, _HARD_IRON_T) for _ in range(3)]
        self._received = b""
        self._received_s = 0.0
        self._reset()

    def _reset(self) -> None:
        self._page = 0
        self._pages = [bytearray(_SIZE), bytearray(_SIZE)]
        memory = self._pages[0]
        memory[BNO055.CHIP_ID : BNO055.CHIP_ID + 4] = BNO055.IDENTITY
        memory[BNO055.UNIT_SEL] = BNO055.UNIT_SEL_RESET
        self._up_s = self.timeline.now_s + BNO055.RESET_S
        self._index = -1

    def receive(self, data: bytes) -> None:
        """Take bytes; an order that stops in its middle is given up (4.7)."""
        now_s = self.timeline.now_s
        if self.faults.no_answer or now_s < self._up_s - 1e-9:
            return
        if now_s - self._received_s > BNO055.CHARACTER_TIMEOUT_S:
            self._received = b""
        self._received_s = now_s
        self._received += data
        while self._received:
            order = self._received
            if order[0] != BNO055.START:
                self._received = b""
                self._status(BNO055.WRONG_START_BYTE)
                return
            if len(order) < 4:
                return
            length = 4 + (order[3] if order[1] == BNO055.WRITE else 0)
            if len(order) < length:
                return
            self._received = order[length:]
            if order[1] == BNO055.WRITE:
                self._write(order[2], order[4:length])
            else:
                self._read(order[2], order[3])

    def _status(self, code: int) -> None:
        self._answer(bytes((BNO055.STATUS, code)))

    def _answer(self, data: bytes) -> None:
        if self.faults.garbage:
            data = self.faults.random.randbytes(len(data))
        self.send(data, after_s=_THINKING_S)

    def _write(self, register: int, data: bytes) -> None:
        memory = self._pages[self._page]
        for offset, value in enumerate(data):
            at = register + offset
            if at >= _SIZE:
                self._status(BNO055.INVALID_ADDRESS)
                return
            if at == BNO055.PAGE_ID:
                self._page = value & 1
            elif self._page == 0 and at < BNO055.UNIT_SEL:
                self._status(BNO055.WRITE_DISABLED)
                return
            elif self._page == 0 and at == BNO055.SYS_TRIGGER and value & BNO055.RST_SYS:
                self._reset()  # without a word
                return
            else:
                memory[at] = value
                if at == BNO055.OPR_MODE:
                    memory[BNO055.ACC_DATA : BNO055.CALIB_STAT] = bytes(BNO055.DATA_LENGTH)
                    self._index = -1
        self._status(BNO055.WRITE_SUCCESS)

    def _read(self, register: int, length: int) -> None:
        if not length or register + length > _SIZE:
            self._status(BNO055.READ_FAIL)
            return
        self._sample()
        memory = bytearray(self._pages[self._page])
        if self.faults.wrong_identity and self._page == 0:
            memory[:4] = _WRONG_ID
        self._answer(bytes((BNO055.DATA, length)) + bytes(memory[register : register + length]))

    def _sample(self) -> None:
        memory = self._pages[0]
        sensors = _MODES_WITH.get(memory[BNO055.OPR_MODE] & 0x0F, "")
        index = int(self.timeline.now_s / _PERIOD_S + 1e-6)
        if not sensors or index == self._index or self.faults.frozen:
            return
        self._index = index
        now_s = self.timeline.now_s
        force, rates, celsius = self._inertial.felt(self.faults, now_s, _NOISE)
        field = [
            value + iron + self.random.gauss(0.0, _MAGNETIC_NOISE_T)
            for value, iron in zip(self._inertial.magnetic_t(), self._hard_iron, strict=True)
        ]
        if self.faults.altered:
            names = self.CHANNELS[-3:]
            field = [self.faults.measure(n, v, now_s) for n, v in zip(names, field, strict=True)]
        for letter, at, values, scale in (
            ("a", BNO055.ACC_DATA, force, 100.0 * _G_MPS2),
            ("m", BNO055.MAG_DATA, tuple(field), 16e6),
            ("g", BNO055.GYR_DATA, rates, 16.0),
        ):
            if letter in sensors:
                struct.pack_into("<3h", memory, at, *counts(values, scale))
        memory[BNO055.TEMP] = round(celsius) & 0xFF
