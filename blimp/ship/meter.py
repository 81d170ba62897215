"""What a cycle of the flight loop costs: its own time, and that of the bus, apart.

In processor time of the thread, so that a busy machine does not count.
"""

from collections.abc import Mapping
from time import thread_time

from blimp.control.loop import Outputs, Sensors
from blimp.types import ActuatorCommand, SensorReadings, SensorStatus


class Meter:
    """`begin` and `end` around a cycle; the metered devices call `bus` in between."""

    def __init__(self) -> None:
        self.compute_s: list[float] = []
        self.bus_s: list[float] = []
        self._bus_s = self._began_s = 0.0

    def begin(self) -> None:
        self._bus_s, self._began_s = 0.0, thread_time()

    def end(self) -> None:
        self.compute_s.append(thread_time() - self._began_s - self._bus_s)
        self.bus_s.append(self._bus_s)

    def bus(self, seconds: float) -> None:
        self._bus_s += seconds

    def clear(self) -> None:
        self.compute_s.clear()
        self.bus_s.clear()

    def step_ms(self) -> dict[str, float]:
        """Return compute_mean, compute_p99 and bus_mean in ms."""
        times = sorted(self.compute_s) or [0.0]
        return {
            "compute_mean": round(1e3 * sum(times) / len(times), 4),
            "compute_p99": round(1e3 * times[int(0.99 * (len(times) - 1))], 4),
            "bus_mean": round(1e3 * sum(self.bus_s) / len(times), 4),
        }


class MeteredSensors:
    """Sensors whose reading is bus time: drivers, seam and, in Lockstep, simulated chips."""

    def __init__(self, sensors: Sensors, meter: Meter) -> None:
        self._sensors, self._meter = sensors, meter

    def read(self, now_s: float) -> SensorReadings:
        began_s = thread_time()
        try:
            return self._sensors.read(now_s)
        finally:
            self._meter.bus(thread_time() - began_s)

    def status(self, now_s: float) -> dict[str, SensorStatus]:
        return self._sensors.status(now_s)


class MeteredOutputs:
    """Outputs whose driving is bus time."""

    def __init__(self, outputs: Outputs, meter: Meter) -> None:
        self._outputs, self._meter = outputs, meter
        self.safe, self.enable, self.disable = outputs.safe, outputs.enable, outputs.disable

    @property
    def last(self) -> Mapping[str, float]:
        return self._outputs.last

    @property
    def enabled(self) -> bool:
        return self._outputs.enabled

    def drive(self, command: ActuatorCommand) -> None:
        began_s = thread_time()
        try:
            self._outputs.drive(command)
        finally:
            self._meter.bus(thread_time() - began_s)
