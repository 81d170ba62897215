"""PixArt PMW3901 optical flow sensor, looking along body down. Source: its data sheet 1.3.

Not simulated: frame capture, what its settings change, and the motion between two reads other
than by the speed at their end.
"""

import struct

from blimp.hardware.registers.flow import PMW3901
from blimp.rotation import rotate_back
from blimp.sim.chips.chip import Fitting, SpiChip, clamp
from blimp.sim.chips.looking_down import LookingDown

_COUNTS_PER_RAD = 385.0  # as PX4 measured it
_NOISE_COUNTS = 0.6
_LEAST_COSINE = 0.5
_NEAR_M, _FAR_M = 0.08, 12.0  # "80 mm to infinity"; beyond, no floor of a hall has structure left
_WRONG_ID = 0x42
_AXES = {"x": (0, 1), "-x": (0, -1), "y": (1, 1), "-y": (1, -1)}


class Pmw3901(SpiChip):
    """Channels: forward and right, in rad/s."""

    KINDS = SpiChip.KINDS | {"wrong_identity"}
    CHANNELS = ("forward", "right")

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._looking = LookingDown(fitting, least_cosine=_LEAST_COSINE)
        mounting = fitting.device.options.get("mounting", ("x", "y"))
        self._mounting = [_AXES[str(axis)] for axis in mounting]
        self._reset()

    def _reset(self) -> None:
        self._memory: dict[tuple[int, int], int] = {}
        self._bank = 0
        self._read_s = self.timeline.now_s
        self._burst = bytes(PMW3901.BURST_LENGTH)
        self._rest = [0.0, 0.0]  # of a count, carried over

    def exchange(self, data: bytes) -> bytes:
        register = data[0]
        if register & PMW3901.WRITE:
            for value in data[1:2]:
                self._write(register & 0x7F, value)
            return bytes(len(data))
        burst = register == PMW3901.MOTION_BURST
        answer = self._moved() if burst else bytes([self._get(register)])
        return (b"\0" + answer + bytes(len(data)))[: len(data)]

    def _write(self, register: int, value: int) -> None:
        if register == PMW3901.BANK:
            self._bank = value
        elif (self._bank, register) == (0, PMW3901.POWER_UP_RESET) and value == PMW3901.RESET_WORD:
            self._reset()
        else:
            self._memory[self._bank, register] = value

    def _get(self, register: int) -> int:
        if register == PMW3901.BANK:
            return self._bank
        if self._bank == 0 and register == PMW3901.PRODUCT_ID:
            return _WRONG_ID if self.faults.wrong_identity else PMW3901.CHIP_ID
        if self._bank == 0 and register == PMW3901.INVERSE_PRODUCT_ID:
            return PMW3901.INVERSE_CHIP_ID
        return self._memory.get((self._bank, register), 0)

    def _moved(self) -> bytes:
        """Return the burst: what has moved since the last one, which this clears."""
        now_s = self.timeline.now_s
        span_s, self._read_s = now_s - self._read_s, now_s
        if self.faults.frozen:
            return self._burst
        slant = self._looking.slant_m()
        gauss = self.random.gauss
        if slant is None or not _NEAR_M <= slant <= _FAR_M:
            dark = struct.pack("<BBhhBBBBBB", 0, 0xBF, 0, 0, 4, self._grey(), 60, 5, 0x1F, 0xFF)
            self._burst = dark
            return dark
        forward, right = self._flow(slant)
        if self.faults.altered:
            forward = self.faults.measure("forward", forward, now_s)
            right = self.faults.measure("right", right, now_s)
        counts = [0, 0]
        for rate, (axis, sign) in zip((forward, right), self._mounting, strict=True):
            exact = sign * rate * span_s * _COUNTS_PER_RAD + self._rest[axis]
            seen = round(exact + gauss(0.0, _NOISE_COUNTS))
            self._rest[axis] = clamp(exact - seen, -2.0, 2.0)
            counts[axis] = round(clamp(seen, -32768.0, 32767.0))
        motion = PMW3901.MOT if any(counts) else 0
        quality = round(clamp(120.0 - 8.0 * slant + gauss(0.0, 3.0), 30.0, 200.0))
        self._burst = struct.pack(
            "<BBhhBBBBBB", motion, 0xBF, *counts, quality, self._grey(), 180, 20, 0x02, 0x40
        )
        return self._burst

    def _grey(self) -> int:
        return round(clamp(self.random.gauss(90.0, 4.0), 0.0, 255.0))

    def _flow(self, slant_m: float) -> tuple[float, float]:
        """Return how fast the ground moves in view, forward and right, in rad/s.

        Nose up turns the view forward, as flying forward does; rolling right turns it left.
        """
        v_forward, v_right, _ = rotate_back(self.truth.attitude, self.truth.velocity_ned_mps)
        p, q, _ = self.truth.rates_body_radps
        return v_forward / slant_m + q, v_right / slant_m - p
