"""What pictures of a flight draw: headings, long flights, and the truth of a simulated one."""

from itertools import pairwise
from math import radians

import numpy as np
import pytest

from blimp.recording.deviations import beside_deg, unwrapped_deg
from blimp.recording.flight_data import FlightData
from blimp.recording.panels import (
    MAX_POINTS,
    thinned,
)


def test_a_heading_goes_on_beyond_north_and_its_setpoint_stays_beside_it() -> None:
    yaw = np.array([radians(deg) for deg in (350.0, 358.0, 4.0, 10.0, 359.0)])
    yaw[yaw > np.pi] -= 2 * np.pi
    heading = unwrapped_deg(yaw)
    assert heading.tolist() == pytest.approx([350.0, 358.0, 364.0, 370.0, 359.0])
    around = unwrapped_deg(np.radians([170.0, -170.0, -90.0]))
    assert around.tolist() == pytest.approx([170.0, 190.0, 270.0])
    wanted = beside_deg(np.radians([355.0, 2.0, 2.0, 15.0, 340.0]), heading)
    assert wanted.tolist() == pytest.approx([355.0, 362.0, 362.0, 375.0, 340.0])


def test_two_hours_are_drawn_with_as_many_points_as_can_be_seen_and_every_peak() -> None:
    t_s = np.arange(720_000) / 100.0
    values = np.sin(t_s / 60.0)
    values[123_456], values[500_001] = 9.0, -9.0
    values[600_000:650_000] = np.nan
    few_s, few = thinned(t_s, values)
    assert len(few) <= MAX_POINTS + 400
    assert np.nanmax(few) == 9.0
    assert np.nanmin(few) == -9.0
    assert all(before <= after for before, after in pairwise(few_s))
    assert np.isnan(few).any()


def test_the_truth_of_a_simulated_flight_is_in_its_log(flight: FlightData) -> None:
    truth, cycles = flight.truth, flight.cycles
    assert len(truth.t_s) == pytest.approx(10 * flight.end_s, abs=12)
    apart = cycles.at("down", truth.t_s) - truth["down"]
    assert 0.0 < np.nanmedian(np.abs(apart)) < 0.1
    assert truth["down"].min() == pytest.approx(cycles["down"].min(), abs=0.2)
