"""The smoothed voltage, and for how long it is one."""

from math import nan

import pytest

from blimp.control.battery import BatteryFilter
from blimp.types import PowerSample


def sample(t_s: float, voltage_v: float = 8.0, current_a: float | None = 1.0) -> PowerSample:
    return PowerSample(t_s=t_s, voltage_v=voltage_v, current_a=current_a)


def known(battery: BatteryFilter) -> tuple[float | None, float | None]:
    return battery.volts, battery.amps


def test_a_reading_is_fresh_for_five_seconds() -> None:
    battery = BatteryFilter()
    assert battery.update(None, 0.0) is None
    assert battery.update(sample(1.0), 1.0) == 8.0
    assert battery.update(sample(1.0), 6.0) == 8.0
    assert battery.update(sample(1.0), 6.1) is None
    assert battery.update(sample(7.0), 7.0) is not None


def test_it_follows_within_seconds_and_counts_no_sample_twice() -> None:
    battery = BatteryFilter()
    battery.update(sample(0.0, 8.0, 1.0), 0.0)
    for _ in range(5):
        assert battery.update(sample(3.0, 7.0, 3.0), 3.0) == pytest.approx(7.368, abs=1e-3)
    assert battery.amps == pytest.approx(2.264, abs=1e-3)
    for bad in (sample(4.0, nan), sample(nan, 1.0), sample(2.0, 1.0)):
        assert battery.update(bad, 4.0) == pytest.approx(7.368, abs=1e-3)
    assert battery.update(None, 2.4) is None  # the clock went back


def test_a_current_that_is_not_measured_is_none_and_takes_nothing_from_the_next() -> None:
    battery = BatteryFilter()
    battery.update(sample(0.0, 8.0, None), 0.0)
    assert known(battery) == (8.0, None)
    battery.update(sample(1.0, 8.0, 2.0), 1.0)
    assert known(battery) == (8.0, 2.0)
    battery.update(sample(2.0, 8.0, None), 2.0)
    assert known(battery) == (8.0, None)
    battery.update(sample(3.0, 8.0, 2.0), 3.0)
    battery.update(None, 9.0)
    assert known(battery) == (None, None)


def test_its_age_counts_while_the_ship_is_armed_and_has_a_monitor() -> None:
    battery, without = BatteryFilter(), BatteryFilter(measured=False)
    battery.update(sample(1.0), 1.0)
    assert battery.age_s(1.0, armed=True) == 0.0
    battery.update(None, 9.0)
    assert battery.age_s(9.0, armed=True) == 8.0
    assert battery.age_s(10.0, armed=False) == 0.0
    assert battery.age_s(12.0, armed=True) == 2.0
    assert without.age_s(1.0, armed=True) == without.age_s(99.0, armed=True) == 0.0
