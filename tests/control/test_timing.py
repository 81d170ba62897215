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


def test_status_tells_milliseconds_by_name() -> None:
    timing = Timing(rate_hz=100.0)
    timing.cycles = 1
    timing.add(wakeup_error_s=0.0001, step_s=0.002, overrun=True)
    status = timing.status()
    assert (status.rate_hz, status.cycles, status.overruns) == (100.0, 1, 1)
    assert set(status.wakeup_error_ms) == {"p50", "p99", "p999"}
    assert status.wakeup_error_ms["p50"] == pytest.approx(0.1, rel=0.06)
    assert status.step_ms["mean"] == pytest.approx(2.0)
