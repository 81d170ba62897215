"""A chip of your own and its simulated twin: a 12-bit converter that measures the battery.

TI ADC121C021, SNAS415: a read of register 0 is a conversion, as a share of the supply. In the
project both are files of their own, each made from the data sheet alone: CONTRIBUTING.md.
"""

from typing import ClassVar

from blimp.chips import Chip
from blimp.hardware.device import Steps, Wiring
from blimp.hardware.i2c_sensor import I2CSensor
from blimp.sim.chips.chip import I2CChip
from blimp.types import PowerSample

ROW = Chip(
    driver="ground_station.examples.chip:Adc121",
    twin="ground_station.examples.chip:SimulatedAdc121",
    role="power",
    supply="3V3; the battery behind a divider by four",
    addresses=(0x50, 0x51, 0x52, 0x54, 0x55, 0x56),  # of nine
)
RESULT = 0x00
FULL_V = 3.3 * 4.0  # the supply, behind a divider by four


class Adc121(I2CSensor[PowerSample]):
    WIRING: ClassVar = Wiring(bus="i2c")

    def _start(self) -> Steps:
        self._open()
        yield 0.001

    def _read(self, now_s: float) -> PowerSample:
        counts = int.from_bytes(self._load(RESULT, 2), "big") & 0x0FFF
        self._alive(now_s)
        return PowerSample(t_s=now_s, voltage_v=counts / 4096 * FULL_V, current_a=None)

    def _value(self, sample: PowerSample) -> float:
        return sample.voltage_v


class SimulatedAdc121(I2CChip):
    def write(self, data: bytes) -> None: ...  # the register to read: there is one

    def read(self, length: int) -> bytes:
        return min(int(self.truth.battery_v / FULL_V * 4096), 4095).to_bytes(length, "big")
