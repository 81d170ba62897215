"""ST VL53L1X laser ranger, looking along body down. Sources: DS12385, UM2510, STSW-IMG009.

Not simulated: regions of interest, distance thresholds, crosstalk, offset calibration, an
address changed by register, and what most of its configuration bytes mean. The time of a
measurement is that which ST's driver encodes for it.
"""

import struct

from blimp.hardware.registers.rangers import VL53L1X
from blimp.sim.chips.chip import Fitting, I2CChip, clamp
from blimp.sim.chips.looking_down import LookingDown

_SIZE = 0x0200
_LEAST_COSINE = 0.3
_RANGE_M = 4.2  # in the dark, grey target: table 8
_BLIND_M = 0.04
_NOISE_M = 0.005
_OFFSET_M = 0.015  # within ±20 mm
_OSCILLATOR = 0x2A3  # periods a millisecond, about
_BUDGETS_S = {a: ms / 1000.0 for ms, (a, _) in VL53L1X.LONG_TIMING.items()}
_DEFAULT_BUDGET_S = 0.1
_SIGNAL_FAIL, _WRAPPED = 4, 7
_MASK_REVISION = 0x10
_WRONG_ID = 0xEEAA  # a VL53L0X
_RESULT = struct.Struct(">BBBHHHHHHH")


class Vl53L1X(I2CChip):
    """Channels: distance in m along the beam. A result stays until its interrupt is cleared."""

    KINDS = I2CChip.KINDS | {"wrong_identity"}
    CHANNELS = ("distance",)
    DEFAULT_ADDRESS = VL53L1X.ADDRESS

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._looking = LookingDown(fitting, least_cosine=_LEAST_COSINE)
        self._offset_m = self.random.uniform(-_OFFSET_M, _OFFSET_M)
        self._pointer = 0
        self._reset()

    def _reset(self) -> None:
        self._memory = bytearray(_SIZE)
        self._memory[VL53L1X.SOFT_RESET] = 1
        self._put(VL53L1X.OSC_CALIBRATE_VAL, _OSCILLATOR.to_bytes(2, "big"))
        self._put(VL53L1X.MODEL_ID, VL53L1X.IDENTITY.to_bytes(2, "big"))
        self._memory[VL53L1X.MASK_REVISION] = _MASK_REVISION
        self._booted_s = self.timeline.now_s + VL53L1X.BOOT_S
        self._next_s = float("inf")  # when the measurement under way ends
        self._stream = -1
        self._ready = False

    def _put(self, register: int, data: bytes) -> None:
        self._memory[register : register + len(data)] = data

    def write(self, data: bytes) -> None:
        if len(data) < 2:
            self._pointer = data[0]  # half a register number
            return
        pointer = data[0] << 8 | data[1]
        for value in data[2:]:
            self._store(pointer, value)
            pointer += 1
        self._pointer = pointer % _SIZE

    def _store(self, register: int, value: int) -> None:
        if register == VL53L1X.SOFT_RESET:
            self._reset()
            self._memory[register] = value
            if not value & 1:
                self._booted_s = float("inf")
        elif not self._is_booted or register >= VL53L1X.RANGE_STATUS:
            return
        elif register == VL53L1X.INTERRUPT_CLEAR:
            self._measure()
            if value & 1 and self._ready:
                self._ready = False
                self._skip()
        else:
            self._memory[register] = value
            if register == VL53L1X.MODE_START:
                self._start(ranging=value == VL53L1X.RANGING)

    def _start(self, *, ranging: bool) -> None:
        configured = any(self._memory[VL53L1X.CONFIGURATION : VL53L1X.MODE_START])
        self._ready = False
        self._stream = -1
        now_s = self.timeline.now_s
        self._next_s = now_s + self._budget_s() if ranging and configured else float("inf")

    @property
    def _is_booted(self) -> bool:
        return self.timeline.now_s >= self._booted_s

    def _budget_s(self) -> float:
        at = VL53L1X.TIMEOUT_MACROP_A
        code = int.from_bytes(self._memory[at : at + 2], "big")
        return _BUDGETS_S.get(code, _DEFAULT_BUDGET_S)

    def _period_s(self) -> float:
        at = VL53L1X.INTERMEASUREMENT
        periods = int.from_bytes(self._memory[at : at + 4], "big")
        # Never shorter than the measurement itself.
        return max(periods / _OSCILLATOR / 1.075 / 1000.0, self._budget_s())

    def read(self, length: int) -> bytes:
        self._measure()
        start = self._pointer
        memory = self._memory
        memory[VL53L1X.FIRMWARE_STATUS] = 0x03 if self._is_booted else 0
        model = _WRONG_ID if self.faults.wrong_identity else VL53L1X.IDENTITY
        self._put(VL53L1X.MODEL_ID, model.to_bytes(2, "big"))
        low_active = bool(memory[VL53L1X.GPIO_HV_MUX_CTRL] & VL53L1X.INTERRUPT_ACTIVE_LOW)
        level = memory[VL53L1X.GPIO_TIO_HV_STATUS] & 0xFE | (self._ready != low_active)
        memory[VL53L1X.GPIO_TIO_HV_STATUS] = level
        data = bytes(memory[start : start + length])
        self._pointer = (start + length) % _SIZE
        return data + bytes(length - len(data))

    def _measure(self) -> None:
        """End the measurement under way, when its time has come and its place is free."""
        now_s = self.timeline.now_s
        if now_s < self._next_s or self._ready or self.faults.frozen:
            return
        self._skip()
        self._ready = True
        # Section "stream count" of ST's sources: after 255 comes 128.
        self._stream = 128 if self._stream >= 255 else self._stream + 1
        status, distance_m, signal = self._look()
        millimetres = round(clamp(1000.0 * distance_m, 0.0, 65535.0))
        result = _RESULT.pack(
            status, 0, self._stream, 0x0800, signal, 20, 40, 0, millimetres, signal
        )
        self._put(VL53L1X.RANGE_STATUS, result)

    def _skip(self) -> None:
        """The next measurement ends at the end of a period to come."""
        period_s = self._period_s()
        late_s = self.timeline.now_s - self._next_s
        if late_s >= 0.0:
            self._next_s += period_s * (1 + int(late_s / period_s))

    def _look(self) -> tuple[int, float, int]:
        """Return range status, distance in m and signal."""
        slant = self._looking.slant_m()
        if slant is None:
            return _SIGNAL_FAIL, 0.0, 2
        if slant > _RANGE_M:
            # What comes back belongs to the pulse before: short, and marked.
            return _WRAPPED, slant % _RANGE_M, 5
        gauss = self.random.gauss
        distance = max(slant, _BLIND_M) + self._offset_m + gauss(0.0, _NOISE_M)
        if self.faults.altered:
            distance = self.faults.measure("distance", distance, self.timeline.now_s)
        return VL53L1X.RANGE_COMPLETE, distance, round(4000.0 / max(slant, 0.1) ** 2) & 0xFFFF
