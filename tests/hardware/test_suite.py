from blimp.airframe import Device as Row
from blimp.errors import BusError
from blimp.hardware.device import Sensor, Steps
from blimp.hardware.suite import SensorSuite
from blimp.types import RangeSample
from tests.hardware.doubles import Doubles


class Ticking(Sensor[RangeSample]):
    """Notes when it is polled."""

    def __init__(self, name: str = "ranger", chip: str = "tfluna") -> None:
        super().__init__(row=Row(name=name, chip=chip, bus="i2c-1"), buses=Doubles())
        self.polled: list[float] = []
        self.broken = False

    def poll(self, now_s: float) -> None:
        self.polled.append(now_s)
        super().poll(now_s)

    def close(self) -> None:
        pass

    def _start(self) -> Steps:
        yield 0.0

    def _read(self, now_s: float) -> RangeSample | None:
        if self.broken:
            raise BusError("broken")
        self._alive(now_s)
        return RangeSample(t_s=now_s, distance_m=now_s)

    def _value(self, sample: RangeSample) -> float:
        return sample.distance_m


def test_each_is_polled_at_its_own_rate() -> None:
    fast, slow = Ticking(), Ticking("sonar", "hcsr04")
    suite = SensorSuite(sensors=[(fast, 100.0), (slow, 10.0)])
    for step in range(1000):
        suite.read(5.0 + step * 0.01)
    assert 999 <= len(fast.polled) <= 1000
    assert len(slow.polled) == 100


def test_a_loop_that_wakes_a_little_early_or_late_loses_no_poll() -> None:
    sensor = Ticking()
    suite = SensorSuite(sensors=[(sensor, 100.0)])
    for step in range(1000):
        suite.read(step * 0.01 + (0.0004 if step % 2 else -0.0004))
    assert len(sensor.polled) == 1000


def test_after_a_stall_nothing_is_caught_up() -> None:
    sensor = Ticking()
    suite = SensorSuite(sensors=[(sensor, 10.0)])
    suite.read(0.0)
    for step in range(7):
        suite.read(60.0 + 0.01 * step)
    assert len(sensor.polled) == 2


def test_slow_sensors_do_not_share_a_step() -> None:
    first, second = Ticking(), Ticking("sonar", "hcsr04")
    suite = SensorSuite(sensors=[(first, 10.0), (second, 10.0)])
    for step in range(100):
        suite.read(step * 0.01)
    assert not set(first.polled) & set(second.polled)


def test_samples_come_by_role_and_the_sick_by_name() -> None:
    first, second = Ticking(), Ticking("down-looking", "hcsr04")
    suite = SensorSuite(sensors=[(first, 100.0), (second, 100.0)])
    for step in range(10):
        readings = suite.read(step * 0.01)
    assert readings.unhealthy == ()
    assert readings.ranger is first.sample
    assert readings.sonar is second.sample
    assert readings.imu is None
    second.broken = True
    last = second.sample
    for step in range(10):
        readings = suite.read(0.1 + step * 0.01)
    assert readings.unhealthy == suite.unhealthy == ("down-looking",)
    assert readings.sonar is last
    assert suite.status(0.2)["down-looking"].error == "broken"
