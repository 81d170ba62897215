"""A recording that is played: at any speed, from any place, each message once and in order."""

from pathlib import Path

import pytest

from blimp.clock import ManualClock
from blimp.errors import ConfigError
from blimp.recording.player import SHOWN, Player
from blimp.recording.recording import open_recording


def test_each_message_comes_once_at_its_time_at_any_speed(flown: Path) -> None:
    with open_recording(flown) as log:
        expected = list(log.entries(SHOWN))
        for speed in (1.0, 20.0, 1000.0):
            clock = ManualClock()
            player, found = Player(log, clock=clock), []
            player.play(speed)
            while not player.at_end:
                clock.advance(0.05)
                entries = player.due()
                assert all(
                    player.position_s - 0.05 * speed - 1e-6 <= one.t_s <= player.position_s
                    for one in entries
                )
                found += entries
            assert found == expected
            assert player.due() == []


def test_it_stands_still_and_goes_back_with_the_picture_of_that_place(flown: Path) -> None:
    with open_recording(flown) as log:
        clock = ManualClock()
        player = Player(log, clock=clock)
        clock.advance(5.0)
        assert (player.position_s, player.speed) == (0.0, 0.0)
        player.play(2.0)
        clock.advance(3.0)
        assert player.position_s == pytest.approx(6.0)
        player.due()
        player.play(0.0)
        clock.advance(60.0)
        assert player.position_s == pytest.approx(6.0)
        assert player.due() == []
        player.seek(2.55)
        first, *more = player.due()
        assert first.topic == "/status"
        assert first.t_s == pytest.approx(2.5, abs=0.11)
        assert more == []
        player.play(1.0)
        clock.advance(1.0)
        assert all(2.55 <= one.t_s <= 3.55 for one in player.due())
        player.seek(1e9)
        assert player.at_end
        player.seek(float("nan"))
        assert player.position_s == pytest.approx(0.0)
        with pytest.raises(ConfigError, match="speed nan: must be 0 to 1000"):
            player.play(float("nan"))
