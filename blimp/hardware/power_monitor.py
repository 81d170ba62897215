"""What the drivers of power monitors share: a sample, and a shunt at the end of its range."""

from math import inf
from typing import ClassVar

from blimp.airframe import Device as Row
from blimp.hardware.bus import Buses
from blimp.hardware.i2c_sensor import I2CSensor
from blimp.types import PowerSample

_FULL = 0.998  # of the range: a reading beyond says only "at least"
_FULL_S = 1.0  # a motor's start may be beyond the range for less


class PowerMonitor(I2CSensor[PowerSample]):
    """Voltage at the bus pin, current positive out of the battery."""

    UNIT: ClassVar[str] = "V, A"
    STALE_ERROR: ClassVar[str] = "no new conversion"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._within_s = -inf  # when the current was last within the range

    def _felt(
        self, now_s: float, *, voltage_v: float, current_a: float, most_a: float
    ) -> PowerSample:
        """Return the sample. The voltage of a monitor whose current is out of range is good.

        most_a: what the shunt and the registers show at the most.
        """
        remark = ""
        if abs(current_a) < _FULL * most_a:
            self._within_s = now_s
        else:
            remark = (
                f"current is at {current_a:.2f} A, the most that this shunt shows; "
                "check the wires of the shunt, shunt_ohm and current_lsb_a"
            )
        self._alive(now_s, remark, sound=now_s - self._within_s < _FULL_S)
        return PowerSample(t_s=now_s, voltage_v=voltage_v, current_a=current_a)

    def _value(self, sample: PowerSample) -> float | tuple[float, ...]:
        amps = sample.current_a
        return sample.voltage_v if amps is None else (sample.voltage_v, amps)
