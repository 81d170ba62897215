"""The health rules that every device has from its base."""

from typing import ClassVar

from blimp.airframe import Device as Row
from blimp.errors import BusError
from blimp.hardware.device import Sensor, Steps
from blimp.types import RangeSample
from tests.hardware.doubles import Doubles, polled, well


class Scripted(Sensor[RangeSample]):
    """A sensor that does what the test says."""

    STALE_S: ClassVar[float] = 1.0
    STALE_ERROR: ClassVar[str] = "silent"

    def __init__(self) -> None:
        row = Row(name="ranger", chip="tfluna", bus="i2c-1")
        super().__init__(row=row, buses=Doubles())
        self.starts = 0
        self.start_error = ""
        self.error_now: Exception | None = None
        self.lives = True

    def close(self) -> None:
        pass

    def _start(self) -> Steps:
        self.starts += 1
        if self.start_error:
            raise BusError(self.start_error)
        yield 0.1

    def _read(self, now_s: float) -> RangeSample | None:
        if self.error_now is not None:
            raise self.error_now
        if not self.lives:
            return None
        self._alive(now_s)
        return RangeSample(t_s=now_s, distance_m=1.0)

    def _value(self, sample: RangeSample) -> float:
        return sample.distance_m


def ready() -> Scripted:
    sensor = Scripted()
    polled(sensor, 13)
    assert well(sensor)
    return sensor


def test_a_wait_in_the_start_up_lets_polls_return_at_once() -> None:
    sensor = Scripted()
    polled(sensor, 10)
    assert sensor.starts == 1
    assert not well(sensor)
    assert sensor.error == "starting"
    assert sensor.status(0.1).value is None


def test_four_failures_are_borne_the_fifth_is_not() -> None:
    sensor = ready()
    sensor.error_now = BusError("no answer")
    polled(sensor, 4, start_s=0.2)
    assert well(sensor)
    assert sensor.error == "no answer"
    sensor.poll(0.3)
    assert not well(sensor)
    assert sensor.failures == 5


def test_a_device_that_says_it_is_lost_is_so_at_once() -> None:
    sensor = ready()
    sensor.error_now = sensor._lost("asleep")
    sensor.poll(0.2)
    assert not well(sensor)


def test_a_device_that_fails_is_asked_on_and_started_again_only_after_seconds() -> None:
    sensor = ready()
    sensor.error_now = BusError("no answer")
    polled(sensor, 280, start_s=0.2)
    assert (well(sensor), sensor.starts) == (False, 1)
    sensor.error_now = None
    sensor.poll(3.01)
    assert (well(sensor), sensor.starts) == (True, 1)
    sensor.error_now = BusError("no answer")
    polled(sensor, 310, start_s=3.02)
    assert sensor.starts == 2


def test_a_good_reading_forgets_failures_before_it() -> None:
    sensor = ready()
    for step in range(20):
        sensor.error_now = BusError("now and then") if step % 4 else None
        sensor.poll(0.2 + 0.01 * step)
    assert well(sensor)
    assert sensor.failures == 15


def test_silence_beyond_the_limit_starts_it_again() -> None:
    sensor = ready()
    sensor.lives = False
    polled(sensor, 90, start_s=0.2)
    assert well(sensor)
    polled(sensor, 20, start_s=1.1)
    assert not well(sensor)
    assert sensor.error == "ranger: silent for 1 s"
    assert sensor.starts == 2


def test_a_start_that_fails_is_tried_every_half_second() -> None:
    sensor = Scripted()
    sensor.start_error = "nobody there"
    polled(sensor, 205)
    assert sensor.starts == 5  # at 0, 0.5, 1, 1.5 and 2 s
    assert sensor.error == "nobody there"
    sensor.start_error = ""
    polled(sensor, 70, start_s=2.05)
    assert well(sensor)
    assert sensor.error == ""


def test_bytes_no_formula_holds_for_cost_health_not_the_loop() -> None:
    sensor = ready()
    for error in (ZeroDivisionError("a"), ValueError("b"), OverflowError("c")):
        sensor.error_now = error
        sensor.poll(0.2)
    assert sensor.failures == 3


def test_the_last_good_sample_stays_and_ages() -> None:
    sensor = ready()
    sensor.error_now = BusError("no answer")
    polled(sensor, 6, start_s=0.2)
    status = sensor.status(2.12)
    assert status.value == 1.0
    assert status.age_s is not None
    assert 1.9 < status.age_s < 2.1
    assert not status.healthy
