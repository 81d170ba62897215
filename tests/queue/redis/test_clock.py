"""The broker's clock for those who ask often: never late, and asked again in good time."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from blimp.clock import ManualClock
from blimp.errors import LinkError
from blimp.queue import TaskApp
from blimp.queue.redis.clock import RECENT_S, BrokerClock
from blimp.queue.redis.urls import Brokers


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
        clock.advance(0.9)
        assert app.broker_clock.recent_s() == pytest.approx(first_s + 0.9)
        assert asked(server) == before
        clock.advance(0.2)
        assert app.broker_clock.recent_s() < first_s + 1.0  # the server's own word again
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


class Broker:
    """A server whose clock is set, some time off; as a RedisServer is asked."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.ahead_s, self.way_s = 1e9, 0.1
        self.questions = 0
        self.brokers = Brokers(["redis://one:1/0", "redis://two:1/0"])

    def ask(self, function: Any) -> Any:
        self.questions += 1
        answer = function(self)
        self._clock.advance(self.way_s)
        return answer

    def time(self) -> tuple[int, int]:
        now_us = round((self._clock.now_s() + self.ahead_s) * 1e6)
        return now_us // 1_000_000, now_us % 1_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_s=50.0)


@pytest.fixture
def broker(clock: ManualClock) -> Broker:
    return Broker(clock)


@pytest.fixture
def broker_clock(broker: Broker, clock: ManualClock) -> BrokerClock:
    link: Any = broker
    return BrokerClock(link=link, clock=clock)


def test_what_was_dated_before_a_clock_went_back_may_be_older(
    broker: Broker, broker_clock: BrokerClock, clock: ManualClock
) -> None:
    before_s = broker_clock.latest_s()
    assert broker_clock.doubt_s(before_s) == 0.0
    broker.ahead_s -= 20.0
    after_s = broker_clock.latest_s()
    assert broker_clock.doubt_s(after_s) == pytest.approx(20.0, abs=1.0)
    assert broker_clock.doubt_s(before_s + 1.0) == 0.0  # that time has come once
    clock.advance(30.0)
    assert broker_clock.doubt_s(broker_clock.now_s()) == 0.0


def test_another_broker_is_another_clock(broker: Broker, broker_clock: BrokerClock) -> None:
    before_s = broker_clock.recent_s()
    broker.ahead_s -= 20.0
    broker.brokers.failed(broker.brokers.current)
    assert broker_clock.recent_s() < before_s - 19.0
    assert broker_clock.doubt_s(broker_clock.now_s()) == 0.0


def test_an_age_is_asked_for_only_where_the_last_answer_finds_it_too_great(
    broker: Broker, broker_clock: BrokerClock, clock: ManualClock
) -> None:
    sent_s = broker_clock.now_s()
    clock.advance(5.0)
    asked = broker.questions
    assert broker_clock.age_s(sent_s, limit_s=30.0) == pytest.approx(5.0, abs=0.3)
    assert broker.questions == asked
    broker.ahead_s += 100.0
    assert broker_clock.age_s(sent_s, limit_s=3.0) == pytest.approx(105.0, abs=0.5)
    assert broker.questions == asked + 1
