"""Thirty kills under load; a thousand are `python -m benchmarks.kill --kills 1000`."""

import pytest

from benchmarks.kill import AIMS, campaign


@pytest.mark.long
@pytest.mark.timeout(300)
def test_thirty_kills_lose_nothing_and_move_nothing_twice() -> None:
    report = campaign(kills=30, tasks=1500, seed=3)
    assert report["kills"] == 30
    assert report["sent"] == 1500
    for aim in AIMS[1:]:
        assert report["kills_by_aim"][aim]["inside_a_body"] > 1, report["kills_by_aim"]
    assert report["ran_twice"] > 0, "no kill hit a body: this shows nothing"
    assert report["lost"] == 0, report["lost_ids"]
    assert report["effects_twice"] == 0, report["moved_twice"]
    assert report["effects_unseen"] == 0
    assert report["left_in_broker"] == 0, report["strange_keys"]
