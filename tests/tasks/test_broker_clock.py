"""The broker's clock for those who ask often: never late, and asked again in good time."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from blimp.clock import ManualClock
from blimp.tasks import TaskApp
from blimp.tasks.broker_clock import RECENT_S


@pytest.fixture
def transport() -> str:
    return "streams"


def asked(server: redis.Redis) -> int:
    info: Any = server.info("commandstats")
    return int(info.get("cmdstat_time", {}).get("calls", 0))


def test_who_sends_asks_the_broker_once_a_second(url: str, server: redis.Redis) -> None:
    clock = ManualClock()
    with TaskApp("tests", broker=url, clock=clock) as app:
        first_s = app.broker_clock.recent_s()
        before = asked(server)
        clock.advance(RECENT_S * 0.9)
        assert app.broker_clock.recent_s() == pytest.approx(first_s + RECENT_S * 0.9)
        assert asked(server) == before
        clock.advance(RECENT_S * 0.2)
        assert app.broker_clock.recent_s() < first_s + RECENT_S  # the server's own word again
        assert asked(server) == before + 1


def test_who_judges_asks_each_time(url: str, server: redis.Redis) -> None:
    clock = ManualClock()
    with TaskApp("tests", broker=url, clock=clock) as app:
        first_s = app.broker_clock.now_s()
        before = asked(server)
        clock.advance(RECENT_S * 0.9)
        assert app.broker_clock.now_s() < first_s + RECENT_S * 0.9
        assert asked(server) == before + 1
