"""Decawave DWM1001 position tag on serial. Source: DWM1001 firmware API guide 2.2.

The module has been set up and prints `lep` lines from power-on, until `lep` is sent again.
Its room frame is x east, y north, z up from the pad.
"""

from blimp.hardware.registers.position import DWM1001
from blimp.sim.chips.chip import Fitting, SerialChip, clamp

_MAX_RATE_HZ = 10.0  # data sheet: location rate
_NOISE_M = 0.08
_OUTLIERS = 0.005  # share of fixes that took a reflected path
_OUTLIER_M = 0.4
_GARBAGE_BYTES = 36
_LATENCY_S = 0.02  # ranging and solving
_COMMAND_LIMIT = 64


class Dwm1001(SerialChip):
    """Channels: x, y, z in m, in the room's frame."""

    CHANNELS = ("x", "y", "z")

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._period_s = 1.0 / min(fitting.device.rate_hz, _MAX_RATE_HZ)
        self._printing = True
        self._typed = b""
        self._fix = (0.0, 0.0, 0.0)
        self._count = 0
        self._phase_s = self.random.uniform(0.0, self._period_s)
        self._plan()

    def receive(self, data: bytes) -> None:
        if self.faults.no_answer:
            return
        self._typed = (self._typed + data)[-_COMMAND_LIMIT:]
        while b"\r" in self._typed:
            line, _, self._typed = self._typed.partition(b"\r")
            if line + b"\r" == DWM1001.TOGGLE_POSITION_LINES:
                self._printing = not self._printing

    def _plan(self) -> None:
        self.timeline.at(self._phase_s + self._count * self._period_s, self._locate)
        self._count += 1

    def _locate(self) -> None:
        self._plan()
        faults = self.faults
        if faults.no_answer or not self._printing:
            return
        if faults.garbage:
            self.send(faults.random.randbytes(_GARBAGE_BYTES))
            return
        if not faults.frozen:
            self._fix = self._measure()
        x, y, z = self._fix
        quality = round(clamp(self.random.gauss(92.0, 4.0), 0.0, DWM1001.QUALITY_MAX))
        line = f"{DWM1001.PREFIX},{x:.2f},{y:.2f},{z:.2f},{quality}\r\n"
        self.send(line.encode(), after_s=_LATENCY_S)

    def _measure(self) -> tuple[float, float, float]:
        north, east, down = self.truth.position_ned_m
        random = self.random
        sigma = _OUTLIER_M if random.random() < _OUTLIERS else _NOISE_M
        x = east + random.gauss(0.0, sigma)
        y = north + random.gauss(0.0, sigma)
        z = -down + random.gauss(0.0, sigma)
        if self.faults.altered:
            now_s = self.timeline.now_s
            x = self.faults.measure("x", x, now_s)
            y = self.faults.measure("y", y, now_s)
            z = self.faults.measure("z", z, now_s)
        return x, y, z
