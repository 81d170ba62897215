"""What TI's power monitors share: a pointer, conversions that follow one another, two channels."""

from blimp.sim.chips.chip import Fitting, I2CChip

_DEFAULT_SHUNT_OHM = 0.1
CONTINUOUS = 4  # bits of the mode, the same in all of them
BUS = 2
SHUNT = 1


class PowerMonitor(I2CChip):
    """Channels: voltage in V at the bus pin, current in A through the shunt."""

    CHANNELS = ("voltage", "current")
    DEFAULT_ADDRESS = 0x40

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._shunt_ohm = self._shunt(fitting)
        self._pointer = 0  # the configuration, in all of them

    def _shunt(self, fitting: Fitting) -> float:
        return float(fitting.device.options.get("shunt_ohm", _DEFAULT_SHUNT_OHM))

    def _restart(self) -> None:
        self._started_s = self.timeline.now_s
        self._done = 0

    def _has_converted(self, period_s: float, *, mode: int) -> bool:
        """Return whether a conversion has ended since the last call."""
        done = int((self.timeline.now_s - self._started_s) / period_s + 1e-9)
        if not mode & CONTINUOUS:  # triggered: one for each write of the configuration
            done = min(done, 1)
        if done <= self._done:
            return False
        self._done = done
        return True

    def _felt(self) -> tuple[float, float]:
        """Return voltage and current as this part feels them."""
        voltage_v, current_a = self.truth.battery_v, self.truth.battery_current_a
        if self.faults.altered:
            now_s = self.timeline.now_s
            voltage_v = self.faults.measure("voltage", voltage_v, now_s)
            current_a = self.faults.measure("current", current_a, now_s)
        return voltage_v, current_a


def reply(value: int, length: int) -> bytes:
    """Return a register's two bytes; after them the chip has let go of the data line."""
    return value.to_bytes(2, "big")[:length] + b"\xff" * (length - 2)
