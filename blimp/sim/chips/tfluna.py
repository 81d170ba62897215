"""Benewake TF-Luna laser ranger on I2C, looking along body down. Source: SJ-PM-TF-Luna A05.

Not simulated: low-power modes, and an address changed by register (the row's stays).
"""

import struct

from blimp.hardware.registers.rangers import TFLuna
from blimp.sim.chips.chip import Fitting, I2CChip, clamp
from blimp.sim.chips.looking_down import LookingDown

_SIZE = 0x40
_DATA = struct.Struct("<HHhHH")
_LEAST_COSINE = 0.3  # beyond about 70 degrees the floor no longer returns the beam
_NOISE_M = 0.01
_OFFSET_M = 0.02
_AMPLITUDE_AT_1_M = 8000.0  # grey floor; falls with the square, to 125 at 8 m
_AMPLITUDE_MAX = 40000.0
_BLIND_M = 0.2
_RANGE_M = 8.5
_WRONG_SIGNATURE = b"MINI"


class TfLuna(I2CChip):
    """Channels: distance in m along the beam. Reads auto-increment."""

    KINDS = I2CChip.KINDS | {"wrong_identity"}
    CHANNELS = ("distance",)
    DEFAULT_ADDRESS = TFLuna.ADDRESS

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._looking = LookingDown(fitting, least_cosine=_LEAST_COSINE)
        self._offset_m = self.random.uniform(-_OFFSET_M, _OFFSET_M)
        self._memory = bytearray(_SIZE)
        self._pointer = 0
        self._reset()

    def _reset(self) -> None:
        memory = self._memory
        memory[:] = bytes(_SIZE)
        memory[TFLuna.VERSION_REVISION : TFLuna.VERSION_REVISION + 3] = bytes((1, 3, 3))
        memory[TFLuna.SN : TFLuna.SN + TFLuna.SN_LENGTH] = b"T0000000000001"
        memory[TFLuna.SLAVE_ADDR] = self.address
        memory[TFLuna.ENABLE] = 1
        memory[TFLuna.FPS_LOW : TFLuna.FPS_LOW + 2] = TFLuna.FPS_RESET.to_bytes(2, "little")
        memory[TFLuna.AMP_THR_LOW] = TFLuna.AMP_MIN // 10
        memory[TFLuna.SIGNATURE : TFLuna.SIGNATURE + 4] = TFLuna.SIGNATURE_BYTES
        self._started_s = self.timeline.now_s
        self._index = 0
        self._triggered = False

    def write(self, data: bytes) -> None:
        pointer = data[0]
        for value in data[1:]:
            self._store(pointer, value)
            pointer = (pointer + 1) % _SIZE
        self._pointer = pointer % _SIZE

    def _store(self, register: int, value: int) -> None:
        if not TFLuna.SN + TFLuna.SN_LENGTH < register < TFLuna.SIGNATURE:
            return
        if register == TFLuna.SHUTDOWN_REBOOT:
            if value == 2:
                self._reset()
        elif register == TFLuna.RESTORE_FACTORY_DEFAULTS:
            if value == 1:
                self._reset()
        elif register == TFLuna.TRIG_ONE_SHOT:
            self._triggered = value == 1
        elif register != TFLuna.SAVE:
            self._memory[register] = value

    def read(self, length: int) -> bytes:
        start = self._pointer
        if start < TFLuna.DATA_LENGTH:
            self._measure()
        memory = self._memory
        signature = _WRONG_SIGNATURE if self.faults.wrong_identity else TFLuna.SIGNATURE_BYTES
        memory[TFLuna.SIGNATURE : TFLuna.SIGNATURE + 4] = signature
        data = bytes(memory[start : start + length])
        self._pointer = (start + length) % _SIZE
        return data + bytes(length - len(data))

    def _measure(self) -> None:
        """Bring the data registers up to the newest frame."""
        memory = self._memory
        if not memory[TFLuna.ENABLE] or self.faults.frozen:
            return
        now_s = self.timeline.now_s
        elapsed_s = now_s - self._started_s
        if memory[TFLuna.MODE] == TFLuna.MODE_TRIGGER:
            if not self._triggered:
                return
            self._triggered = False
            index = self._index + 1
        else:
            fps = memory[TFLuna.FPS_LOW] | memory[TFLuna.FPS_LOW + 1] << 8
            index = int(elapsed_s * fps + 1e-6)
            if index == self._index:
                return
        self._index = index
        distance_m, amplitude = self._look()
        _DATA.pack_into(
            memory,
            TFLuna.DIST_LOW,
            round(clamp(100.0 * distance_m, 0.0, 65535.0)),
            round(amplitude),
            round(clamp(100.0 * self.truth.temperature_c + 1500.0, -32768.0, 32767.0)),
            int(elapsed_s * 1000.0) & 0xFFFF,
            0,
        )

    def _look(self) -> tuple[float, float]:
        """Return distance in m and signal amplitude."""
        slant = self._looking.slant_m()
        gauss = self.random.gauss
        if slant is None or slant > _RANGE_M:
            return 0.0, abs(gauss(0.0, 20.0))
        if slant < _BLIND_M:
            # Section 6.4: too near, the receiver does not resolve it.
            distance = max(slant + gauss(0.0, 0.05), 0.0)
        else:
            distance = slant + self._offset_m + gauss(0.0, _NOISE_M)
        amplitude = min(_AMPLITUDE_AT_1_M / max(slant, 0.05) ** 2, _AMPLITUDE_MAX)
        amplitude *= 1.0 + clamp(gauss(0.0, 0.05), -0.2, 0.2)
        if self.faults.altered:
            distance = self.faults.measure("distance", distance, self.timeline.now_s)
        return distance, amplitude
