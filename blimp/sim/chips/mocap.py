"""A motion capture system and its bridge on serial. Source: the line in `hardware/mocap.py`."""

from math import degrees

from blimp.hardware.registers.position import MOCAP
from blimp.rotation import yaw_of
from blimp.sim.chips.chip import Fitting, SerialChip

_NOISE_M = 0.005
_NOISE_DEG = 0.5
_LATENCY_S = 0.030  # from the cameras' shutter to the last byte
_GARBAGE_BYTES = 40


class Mocap(SerialChip):
    """Channels: x, y, z in m north, east and down of the pad, yaw in degrees."""

    CHANNELS = ("x", "y", "z", "yaw")

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._period_s = 1.0 / fitting.device.rate_hz
        self._pose = (0.0, 0.0, 0.0, 0.0)
        self._count = 0
        self._phase_s = self.random.uniform(0.0, self._period_s)
        self._plan()

    def _plan(self) -> None:
        self.timeline.at(self._phase_s + self._count * self._period_s, self._capture)
        self._count += 1

    def _capture(self) -> None:
        self._plan()
        faults = self.faults
        if faults.no_answer:
            return
        if faults.garbage:
            self.send(faults.random.randbytes(_GARBAGE_BYTES))
            return
        if not faults.frozen:
            self._pose = self._measure()
        x, y, z, yaw = self._pose
        age_ms = 1e3 * _LATENCY_S
        body = f"{MOCAP.PREFIX},{self._count},{age_ms:.1f},{x:.4f},{y:.4f},{z:.4f},{yaw:.2f}"
        line = f"{body}*{MOCAP.checksum(body)}\r\n".encode()
        self.send(line, after_s=_LATENCY_S - len(line) * 10.0 / self.device.baud)

    def _measure(self) -> tuple[float, float, float, float]:
        gauss = self.random.gauss
        north, east, down = self.truth.position_ned_m
        pose = {
            "x": north + gauss(0.0, _NOISE_M),
            "y": east + gauss(0.0, _NOISE_M),
            "z": down + gauss(0.0, _NOISE_M),
            "yaw": degrees(yaw_of(self.truth.attitude)) + gauss(0.0, _NOISE_DEG),
        }
        if self.faults.altered:
            now_s = self.timeline.now_s
            pose = {name: self.faults.measure(name, v, now_s) for name, v in pose.items()}
        return pose["x"], pose["y"], pose["z"], pose["yaw"]
