"""Asahi Kasei AK09916 magnetometer, behind the auxiliary bus of an ICM-20948.

Source: DS-000189 rev 1.3, 12 and 13. Not simulated: self-test.
"""

import struct

from blimp.hardware.registers.inertial import AK09916
from blimp.sim.chips.chip import Chip
from blimp.sim.chips.inertial import Inertial, counts
from blimp.sim.timeline import Timeline

_MAGNETIC_LSB_T = 0.15e-6
_MAGNETIC_MAX = 32752  # ±4912 µT, 12.3
_MAGNETIC_NOISE_T = 0.2e-6
_HARD_IRON_T = 3e-6
_HARD_IRON_T_PER_C = 0.05e-6  # ours: the data sheet has none; iron and offset move as they warm
_RATES_HZ = {0x02: 10.0, 0x04: 20.0, 0x06: 50.0, AK09916.CONTINUOUS_100_HZ: 100.0}
CHANNELS = ("magnetic_x", "magnetic_y", "magnetic_z")


class Ak09916:
    """Registers of its own; x with the accelerometer, y and z against it."""

    def __init__(self, *, chip: Chip, inertial: Inertial) -> None:
        self._chip = chip
        self._inertial = inertial
        gauss = chip.random.gauss
        # Chip axes, those of the accelerometer: field + hard_iron_t, after soft_iron.
        self.hard_iron_t = [gauss(0.0, _HARD_IRON_T) for _ in range(3)]
        drift = inertial.drift
        self._drift_t_per_c = [drift.gauss(0.0, _HARD_IRON_T_PER_C) for _ in range(3)]
        self.soft_iron = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
        self._reset()

    @property
    def _timeline(self) -> Timeline:
        return self._chip.timeline

    def _reset(self) -> None:
        self._memory = bytearray(0x40)
        self._memory[AK09916.WIA1 : AK09916.WIA1 + 2] = AK09916.IDENTITY
        self._started_s = 0.0
        self._index = 0

    def write(self, register: int, value: int) -> None:
        if register == AK09916.CNTL3 and value & AK09916.SRST:
            self._reset()
        elif register == AK09916.CNTL2 and value != self._memory[register]:
            self._memory[register] = value
            self._started_s = self._timeline.now_s
            self._index = 0

    def read(self, register: int, length: int) -> bytes:
        self._measure()
        data = bytes(self._memory[register : register + length])
        if register <= AK09916.ST2 < register + length:
            self._memory[AK09916.ST1] = 0  # section 13: the data have been read
        return data

    def _measure(self) -> None:
        mode = self._memory[AK09916.CNTL2]
        elapsed_s = self._timeline.now_s - self._started_s
        if mode == AK09916.SINGLE:
            if elapsed_s < AK09916.SINGLE_S:
                return
            self._memory[AK09916.CNTL2] = 0
        else:
            index = int(elapsed_s * _RATES_HZ.get(mode, 0.0) + 1e-6)
            if index <= self._index:
                return
            self._index = index
        chip = self._chip
        x, y, z = self._inertial.magnetic_t()
        warmer_c = self._inertial.warmer_c
        values = [
            a * x + b * y + c * z + iron + warmer_c * drift
            + chip.random.gauss(0.0, _MAGNETIC_NOISE_T)
            for (a, b, c), iron, drift in zip(
                self.soft_iron, self.hard_iron_t, self._drift_t_per_c, strict=True
            )
        ]  # fmt: skip
        if chip.faults.altered:
            now_s = self._timeline.now_s
            values = [
                chip.faults.measure(n, v, now_s) for n, v in zip(CHANNELS, values, strict=True)
            ]
        x, y, z = values
        raw = counts((x, -y, -z), 1.0 / _MAGNETIC_LSB_T)
        beyond = max(map(abs, raw)) > _MAGNETIC_MAX
        struct.pack_into(
            "<B3hxB",
            self._memory,
            AK09916.ST1,
            AK09916.ST1_DRDY,
            *raw,
            AK09916.ST2_HOFL if beyond else 0,
        )
