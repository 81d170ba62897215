"""A grant on its holder's machine: how long it is certain, and how its loss is reported."""

from typing import Any

import pytest

from blimp.clock import ManualClock
from blimp.errors import LeaseError, LeaseLost, LinkError
from blimp.queue.resources.grant import (
    AGAIN_S,
    LONGEST_S,
    MAX_TOKEN,
    Grant,
    Release,
    ReleaseOutcome,
    Renewer,
    Ticket,
    _Kept,
    period_s,
)

TTL_S = 9.0
TICKET = Ticket(pool="ships", resource="twin", token=5, holder="alice")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_s=100.0)


@pytest.fixture
def grant(clock: ManualClock) -> Grant:
    """The server was asked two seconds ago, and has just answered."""
    return Grant(ticket=TICKET, ttl_s=TTL_S, asked_s=clock.now_s() - 2.0, clock=clock)


def test_it_lasts_from_when_the_server_was_asked(grant: Grant, clock: ManualClock) -> None:
    assert grant.left_s == TTL_S - 2.0
    clock.advance(6.9)
    grant.check()
    clock.advance(0.1)
    assert grant.is_lost
    with pytest.raises(LeaseLost, match="not renewed for 9 s"):
        grant.check()


def test_a_renewal_counts_from_when_it_was_asked_for(grant: Grant, clock: ManualClock) -> None:
    asked_s = clock.now_s()
    clock.advance(3.0)
    grant.renewed(asked_s=asked_s)
    assert grant.left_s == TTL_S - 3.0
    grant.renewed(asked_s=asked_s - 1.0)  # an answer that was overtaken
    assert grant.left_s == TTL_S - 3.0


def test_its_loss_is_reported_once_to_each_who_asked(grant: Grant) -> None:
    heard: list[str] = []
    grant.on_lost(lambda one: heard.append(f"before: {one.reason}"))
    grant.lose("taken away")
    grant.lose("again")
    grant.on_lost(lambda one: heard.append(f"after: {one.reason}"))
    assert heard == ["before: taken away", "after: taken away"]
    with pytest.raises(LeaseLost, match="taken away"):
        grant.check()


def released(outcome: ReleaseOutcome) -> Release:
    return Release(outcome=outcome, ticket=TICKET)


def test_a_released_one_is_not_lost_and_one_that_was_not_is(grant: Grant) -> None:
    lost: list[Grant] = []
    grant.on_lost(lost.append)

    def release() -> Release:
        grant.lose("meanwhile")  # the renewal finds it gone
        return released(ReleaseOutcome.RELEASED)

    assert grant.end_by(release).released
    assert (grant.was_released, grant.lost.is_set(), lost) == (True, False, [])
    assert grant.is_lost  # nothing may rely on it any more


def test_a_release_that_finds_it_expired_tells_its_loss(grant: Grant) -> None:
    grant.end_by(lambda: released(ReleaseOutcome.EXPIRED))
    assert grant.lost.is_set()
    assert grant.reason == "expired"


@pytest.mark.parametrize("token", [0, -1, MAX_TOKEN])
def test_a_token_that_no_pool_grants_is_refused(token: int) -> None:
    with pytest.raises(LeaseError, match="must be 1 to"):
        Ticket.read({"pool": "p", "resource": "r", "holder": "h", "token": token})


# --- in the background ---------------------------------------------------------------------------


class Server:
    """Renews and releases; raises or returns what a test says."""

    def __init__(self, clock: ManualClock) -> None:
        self.answer: Any = True
        self.renewer = Renewer(renew=self.ask, release=self.ask, clock=clock)

    def ask(self, _: Grant) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def handle(self, grant: Grant, *, to_release: bool = False) -> float | None:
        """Return in how long it is due again."""
        return self.renewer._handle(_Kept(grant=grant, due_s=0.0, to_release=to_release))


def test_it_is_renewed_thrice_in_its_time_and_every_few_seconds() -> None:
    assert period_s(TTL_S) == TTL_S / 3
    assert period_s(3600.0) == LONGEST_S


def test_it_is_renewed_until_it_is_lost(grant: Grant, clock: ManualClock) -> None:
    server = Server(clock)
    assert server.handle(grant) == period_s(TTL_S)
    server.answer = False
    assert server.handle(grant) is None


@pytest.mark.parametrize("to_release", [False, True])
def test_without_an_answer_it_is_tried_again_as_long_as_it_lasts(
    grant: Grant, clock: ManualClock, to_release: bool
) -> None:
    server = Server(clock)
    server.answer = LinkError("unreachable")
    assert server.handle(grant, to_release=to_release) == AGAIN_S
    clock.advance(TTL_S)
    assert server.handle(grant, to_release=to_release) is None
    assert grant.lost.is_set()
    assert "unreachable" in grant.reason


def test_what_its_server_refuses_is_lost(grant: Grant, clock: ManualClock) -> None:
    server = Server(clock)
    server.answer = LeaseError("another's key")
    assert server.handle(grant) is None
    assert grant.reason == "another's key"
