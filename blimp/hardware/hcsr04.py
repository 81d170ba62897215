"""HC-SR04: ultrasonic ranger on two GPIO pins, looking down.

Source: its data sheet (10 µs trigger, 60 ms cycle, echo high for the time of flight) and
c = 331.3 √(1 + T/273.15) m/s for the speed of sound in dry air.
"""

import math
from collections import deque
from statistics import median
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.errors import DeviceError
from blimp.hardware.bus import Buses, EchoPin
from blimp.hardware.device import Sensor, Steps, Wiring, read_options
from blimp.hardware.registers.rangers import HCSR04 as R
from blimp.types import RangeSample

WINDOW = 5  # echoes in the median
WINDOW_S = 1.0  # and none older than this
FEWEST = 3


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """temperature_c: of the air, for the speed of sound (0.17 % a degree).

    rest_m: its height above the floor while the ship stands on its pad, for the estimator.
    """

    temperature_c: float = 20.0
    rest_m: float = 0.0


def speed_of_sound_mps(temperature_c: float) -> float:
    """Return the speed of sound in dry air."""
    return 331.3 * math.sqrt(1.0 + temperature_c / 273.15)


class HcSr04(Sensor[RangeSample]):
    """Triggers at its rate and takes what came back; the median of five drops stray echoes."""

    UNIT: ClassVar[str] = "m"
    WIRING: ClassVar = Wiring(bus="gpio", pins=("trigger", "echo"))
    STALE_S: ClassVar[float] = 1.0
    STALE_ERROR: ClassVar[str] = "no pulse on the echo pin"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        options = read_options(row.options, Options, who=row.name)
        self._echo: EchoPin | None = None
        self._half_c = 0.5 * speed_of_sound_mps(options.temperature_c)
        self._triggered_s = -math.inf
        self._recent: deque[tuple[float, float]] = deque(maxlen=WINDOW)

    def close(self) -> None:
        if self._echo is not None:
            self._echo.close()
            self._echo = None

    def _start(self) -> Steps:
        if self._echo is None:
            self._echo = self._buses.echo(self._row.pins["trigger"], self._row.pins["echo"])
        yield 0.0

    def _read(self, now_s: float) -> RangeSample | None:
        if self._echo is None:
            raise DeviceError(f"{self.name}: closed")
        fresh = False
        for end_s, width_s in self._echo.take_pulses():
            if end_s - width_s < self._triggered_s:
                continue  # began before the last trigger: an echo of an earlier one
            distance_m = width_s * self._half_c
            if width_s >= R.NO_ECHO_S or distance_m > R.MAX_M:
                self._alive(now_s, f"no echo within {R.MAX_M:g} m")
            elif distance_m < R.MIN_M:
                self._alive(now_s, f"{distance_m:.3f} m is below {R.MIN_M:g} m")
            else:
                self._alive(now_s)
                self._recent.append((end_s, distance_m))
                fresh = True
        if now_s - self._triggered_s >= R.CYCLE_S:
            # Before the trigger, not after it: the echo may rise while trigger() returns.
            self._triggered_s = now_s
            self._echo.trigger()
        while self._recent and now_s - self._recent[0][0] > WINDOW_S:
            self._recent.popleft()
        if not fresh or len(self._recent) < FEWEST:
            return None
        return RangeSample(t_s=now_s, distance_m=median(d for _, d in self._recent))

    def _value(self, sample: RangeSample) -> float:
        return sample.distance_m
