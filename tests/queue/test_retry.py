"""Back-off: doubled, capped, jittered in full."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.clock import ManualClock
from blimp.errors import LinkError
from blimp.queue.retry import Backoff, RetryPolicy


def test_doubles_up_to_its_cap() -> None:
    backoff = Backoff(first_s=0.5, cap_s=3.0, full_jitter=False)
    chance = random.Random(1)
    assert [backoff.delay_s(n, chance=chance) for n in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


@given(st.integers(0, 10_000), st.integers())
def test_full_jitter_stays_between_zero_and_the_whole(attempt: int, seed: int) -> None:
    whole = Backoff(first_s=1.0, cap_s=60.0, full_jitter=False)
    jittered = Backoff(first_s=1.0, cap_s=60.0)
    chance = random.Random(seed)
    assert 0.0 <= jittered.delay_s(attempt, chance=chance) <= whole.delay_s(attempt, chance=chance)


def test_reconnecting_waits_grow_and_stay_bounded() -> None:
    policy = RetryPolicy(max_retries=None, interval_start=0.1, interval_step=0.3, interval_max=1.0)
    waits = list(itertools.islice(policy.waits(chance=random.Random(3)), 50))
    assert 0.05 <= waits[0] <= 0.1
    assert all(0.5 <= wait <= 1.0 for wait in waits[5:])
    assert len(set(waits)) > 40


@pytest.mark.parametrize(("brokers", "tries"), [(1, 1), (3, 3)])
def test_each_broker_is_tried_though_the_first_takes_all_the_time(brokers: int, tries: int) -> None:
    clock, asked = ManualClock(), 0

    def stand_still() -> None:
        nonlocal asked
        asked += 1
        clock.advance(2.0)
        raise LinkError("no answer")

    policy = RetryPolicy(max_retries=8, timeout_s=2.0)
    with pytest.raises(LinkError):
        policy.call(stand_still, clock=clock, chance=random.Random(1), brokers=brokers)
    assert asked == tries
