"""The default mission, seed by seed, in wind with gusts: simulated with chips and drivers.

`python -m benchmarks.missions` flies seeds 1 to 20 and fails at the same limits.
"""

import pytest

from blimp.service.sortie import fly
from ground_station.mission import load_mission

pytestmark = [pytest.mark.flight, pytest.mark.timeout(300)]


@pytest.mark.parametrize("seed", range(1, 5))
def test_the_square_is_flown_within_its_limits(seed: int) -> None:
    sortie = fly(load_mission("square"), airframe="twin", seed=seed, wind_mps=0.3)
    assert sortie.failure == ""
    assert sortie.max_cross_track_m <= 1.0
    assert sortie.landing_error_m <= 1.0
    assert sortie.touchdown_mps <= 0.5


def test_the_published_ship_flies_it_in_still_air() -> None:
    sortie = fly(load_mission("square"), airframe="gtmab", seed=1, wind_mps=0.0)
    assert sortie.failure == ""
    assert sortie.max_cross_track_m <= 1.0
    assert sortie.touchdown_mps <= 0.5
