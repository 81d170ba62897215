from random import Random

import pytest

from blimp.control.timing import Histogram, Timing


def test_percentiles_are_good_to_the_bin() -> None:
    histogram, random = Histogram(), Random(1)
    values = sorted(random.lognormvariate(-8.0, 1.0) for _ in range(20_000))
    for value in values:
        histogram.add(value)
    for percent in (50.0, 99.0, 99.9):
        exact = values[int(percent / 100.0 * len(values)) - 1]
        assert histogram.percentiles_s(percent)[0] == pytest.approx(exact, rel=0.06)
    assert histogram.mean_s == pytest.approx(sum(values) / len(values))


@pytest.mark.parametrize("value", [-1.0, 0.0, 1e-9])
def test_what_is_below_the_floor_counts_as_the_floor(value: float) -> None:
    histogram = Histogram()
    histogram.add(value)
    assert histogram.percentiles_s(50.0)[0] == Histogram.FLOOR_S


def test_what_is_above_the_ceiling_is_kept_in_the_last_bin() -> None:
    histogram = Histogram()
    histogram.add(1e6)
    assert histogram.percentiles_s(50.0)[0] == pytest.approx(Histogram.CEILING_S, rel=0.06)


def test_an_empty_histogram_is_zero() -> None:
    assert Histogram().percentiles_s(99.0)[0] == 0.0
    assert Histogram().mean_s == 0.0


def test_status_tells_milliseconds_by_name() -> None:
    timing = Timing(rate_hz=100.0)
    timing.cycles = 1
    timing.add(wakeup_error_s=0.0001, step_s=0.002, overrun=True)
    status = timing.status()
    assert (status.rate_hz, status.cycles, status.overruns) == (100.0, 1, 1)
    assert set(status.wakeup_error_ms) == {"p50", "p99", "p999"}
    assert status.wakeup_error_ms["p50"] == pytest.approx(0.1, rel=0.06)
    assert status.step_ms["mean"] == pytest.approx(2.0)
