"""All sensors of a ship, polled each at its own rate."""

from collections.abc import Sequence
from typing import Any

from blimp.hardware.device import Sensor, attempt_all
from blimp.types import SensorReadings, SensorStatus

EARLY = 0.25  # of a period: how much before its time a device may be polled


class SensorSuite:
    """Polls what is due and gives the newest samples by role. Never waits, never raises."""

    def __init__(self, *, sensors: Sequence[tuple[Sensor[Any], float]]) -> None:
        """Take each sensor with its rate in Hz."""
        self.sensors = tuple(sensor for sensor, _ in sensors)
        self._slots = [_Slot(sensor, 1.0 / rate_hz) for sensor, rate_hz in sensors]
        self._samples: dict[str, Any] = {}
        self._started = False

    @property
    def unhealthy(self) -> tuple[str, ...]:
        """The names of the devices that do not answer, are frozen or contradict themselves."""
        return tuple(sensor.name for sensor in self.sensors if not sensor.healthy)

    def read(self, now_s: float) -> SensorReadings:
        """Poll the sensors that are due and return the newest good sample of each."""
        if not self._started:
            self._stagger(now_s)
        samples = self._samples
        unhealthy: tuple[str, ...] = ()
        for slot in self._slots:
            sensor = slot.sensor
            if now_s >= slot.due_s - slot.early_s:
                sensor.poll(now_s)
                samples[sensor.role] = sensor.sample
                if sensor.seen is not None:
                    samples["seen"] = sensor.seen
                slot.due_s += slot.period_s
                if slot.due_s <= now_s:  # the loop was late by more than a period: no catching up
                    slot.due_s = now_s + slot.period_s
            if not sensor.healthy:
                unhealthy += (sensor.name,)
        return SensorReadings(t_s=now_s, unhealthy=unhealthy, **samples)

    def status(self, now_s: float) -> dict[str, SensorStatus]:
        """Return every sensor as a person sees it, by device name."""
        return {sensor.name: sensor.status(now_s) for sensor in self.sensors}

    def close(self) -> None:
        """Close every sensor. Idempotent."""
        attempt_all("closing the sensors", [sensor.close for sensor in self.sensors])

    def _stagger(self, now_s: float) -> None:
        """Spread the first polls, so that slow devices do not all fall on the same step."""
        self._started = True
        for i, slot in enumerate(self._slots):
            slot.due_s = now_s + slot.period_s * i / len(self._slots)


class _Slot:
    __slots__ = ("due_s", "early_s", "period_s", "sensor")

    def __init__(self, sensor: Sensor[Any], period_s: float) -> None:
        self.sensor = sensor
        self.period_s = period_s
        self.early_s = EARLY * period_s
        self.due_s = 0.0
