from math import nan

import pytest

from blimp.control.samples import Samples
from blimp.types import RangeSample
from tests.control.parts import twin


def at(t_s: float) -> RangeSample:
    return RangeSample(t_s=t_s, distance_m=1.0)


@pytest.mark.parametrize(
    ("t_s", "is_new"),
    [(10.0, True), (10.1, True), (10.11, False), (9.0, True), (8.99, False), (nan, False)],
)
def test_a_sample_is_of_now_or_of_the_last_second(t_s: float, is_new: bool) -> None:
    assert Samples(airframe=twin()).is_new("tag", at(t_s), 10.0) is is_new


def test_a_sample_counts_once_and_those_that_come_too_fast_do_not() -> None:
    samples = Samples(airframe=twin())
    rate_hz = next(device.rate_hz for device in twin().device if device.name == "baro")
    assert not samples.is_new("baro", None, 10.0)
    assert samples.is_new("baro", at(10.0), 10.0)
    assert not samples.is_new("baro", at(10.0), 10.0)
    assert not samples.is_new("baro", at(10.0 + 0.4 / rate_hz), 10.1)
    assert samples.is_new("baro", at(10.0 + 0.5 / rate_hz), 10.1)
    assert not samples.is_new("baro", at(5.0), 5.0)
    samples.begin_again()
    assert samples.is_new("baro", at(5.0), 5.0)
