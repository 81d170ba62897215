"""What a log has of an outage: its beginning, what changes, ever rarer signs, its end."""

import itertools

import pytest

from blimp.clock import ManualClock
from blimp.errors import LinkError
from blimp.queue.retry import CONNECTING, Outage, RetryPolicy
from tests.queue.conftest import Silence


def outage(
    clock: ManualClock, log: Silence, policy: RetryPolicy = CONNECTING, brokers: int = 1
) -> Outage:
    return Outage(event="broker lost", clock=clock, log=log, policy=policy, brokers=brokers)


def test_an_hour_without_a_broker_is_a_dozen_lines() -> None:
    clock, log = ManualClock(), Silence()
    one = outage(clock, log)
    reported: list[float] = []
    while clock.now_s() < 3600.0:
        before = len(log.lines)
        clock.advance(one.failed(LinkError("unreachable")))
        reported += [clock.now_s()] * (len(log.lines) - before)
    one.over()
    assert len(reported) < 22
    gaps = [late - early for early, late in itertools.pairwise(reported)]
    assert all(late > early * 0.9 for early, late in itertools.pairwise(gaps[:7]))
    assert max(gaps) < 310.0
    assert log.lines[-1][:2] == ("info", "broker lost: over")
    assert log.lines[-1][2]["after_s"] == pytest.approx(3600.0, abs=2.0)


def test_a_new_reason_is_reported_at_once_and_an_old_one_is_not_news() -> None:
    clock, log = ManualClock(), Silence()
    one = outage(clock, log, brokers=2)
    for n in range(20):
        one.failed(LinkError(f"no broker at {n % 2}"))
        clock.advance(0.05)
    assert len(log.events("broker lost")) == 2
    one.failed(LinkError("it refuses"))
    assert len(log.events("broker lost")) == 3


def test_the_next_outage_is_reported_again_and_the_first_wait_is_short_again() -> None:
    clock, log = ManualClock(), Silence()
    one = outage(clock, log)
    for _ in range(10):
        one.failed(LinkError("unreachable"))
    one.over()
    one.over()
    assert one.failed(LinkError("unreachable")) <= 0.05
    assert len(log.events("broker lost")) == 2
    assert len(log.events("broker lost: over")) == 1


def test_a_callback_that_fails_does_not_end_the_waiting() -> None:
    log = Silence()

    def fail(*_: object) -> None:
        raise ValueError("mine")

    one = Outage(
        event="broker lost", clock=ManualClock(), log=log, policy=CONNECTING, on_error=fail
    )
    assert one.failed(LinkError("unreachable")) > 0.0
    assert log.events("connection error callback")
