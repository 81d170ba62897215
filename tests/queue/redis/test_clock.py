"""The broker's clock for those who ask often: never late, and asked again in good time."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from blimp.clock import ManualClock
from blimp.errors import LinkError
from blimp.queue import TaskApp
from blimp.queue.redis.clock import RECENT_S, BrokerClock


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


def test_an_answer_that_was_long_on_its_way_makes_nothing_younger(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    with TaskApp("tests", broker=url, result_backend=url, clock=clock) as app:
        results = app.broker_link
        broker_clock = BrokerClock(link=results, clock=clock)
        ask = results.ask

        def slowly(function: Any) -> Any:
            answer = ask(function)
            clock.advance(1.5)
            return answer

        theirs_s = broker_clock.now_s()
        monkeypatch.setattr(results, "ask", slowly)
        assert broker_clock.latest_s() >= theirs_s + 1.5
        assert broker_clock.now_s() < theirs_s + 1.5  # who sends dates it early, never late

        def never(function: Any) -> Any:
            raise LinkError("unreachable")

        monkeypatch.setattr(results, "ask", never)
        clock.advance(1.0)
        moment = broker_clock.latest()
        assert moment.ours_s == clock.now_s()
        assert moment.theirs_s >= theirs_s + 2.5  # the way it took counts on
        assert broker_clock.now_s() < theirs_s + 2.5


def test_who_judges_asks_each_time(url: str, server: redis.Redis) -> None:
    clock = ManualClock()
    with TaskApp("tests", broker=url, clock=clock) as app:
        first_s = app.broker_clock.now_s()
        before = asked(server)
        clock.advance(RECENT_S * 0.9)
        assert app.broker_clock.now_s() < first_s + RECENT_S * 0.9
        assert asked(server) == before + 1
