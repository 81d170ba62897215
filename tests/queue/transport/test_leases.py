"""What another has ended counts as lost; what we ended ourselves does not."""

import threading
from collections.abc import Iterator

import pytest
import redis

from blimp.queue.brokers.streams.store import Claim
from blimp.queue.brokers.streams.visibility import Leases
from blimp.queue.kombu_transport import DONE, LOST, SETTLED, Holder
from tests.faults.proxy import Command, Proxy
from tests.queue.conftest import DEADLINE_S, wait_until
from tests.queue.transport.conftest import counts
from tests.queue.transport.test_lost_answer import CutAfter, proxied, proxy, put

__all__ = ["proxied", "proxy"]


class Away(CutAfter):
    """Ends the connection after one command's reply, and refuses every command until `mend`."""

    is_mended = False

    def before(self, command: Command) -> bool:
        return self.is_mended or not self.fired.is_set()


@pytest.fixture
def lost() -> list[str]:
    return []


@pytest.fixture
def far(proxied: str, lost: list[str]) -> Iterator[Holder]:
    """A holder whose link goes through the proxy; it renews by itself too late to matter."""
    holder = Holder(
        url=proxied,
        options={"consumer": "w", "lease_s": 600.0, "on_lease_lost": lost.append},
    )
    yield holder
    holder.close()


def take(holder: Holder, *, count: int = 1) -> list[Claim]:
    queue = holder.keys.queue("q")
    holder.store.begin([queue], known=[])
    put(holder, count)
    claims = [claim for claim, _ in holder.store.take([queue], room=count).deliveries]
    holder.leases.hold(claims)
    return claims


def end_elsewhere(holder: Holder, claim: Claim) -> None:
    """Have another take and complete it, as after the lease."""
    holder.link.client.xclaim(claim.stream, "workers", holder.consumer, 0, [claim.id])
    later = holder.store.claim(claim.queue, claim.lane, claim.id, claim.fence + 1)
    assert holder.store.ack([later]) == [DONE]


def test_the_renewal_of_what_another_has_ended_tells(
    far: Holder, holder: Holder, lost: list[str]
) -> None:
    (claim,) = take(far)
    end_elsewhere(holder, claim)
    far.leases.renew()
    assert lost == [claim.tag]
    assert far.leases.ack(claim.tag) == LOST
    assert lost == [claim.tag]


def test_the_acknowledgement_of_what_another_has_ended_is_refused(
    far: Holder, holder: Holder, lost: list[str]
) -> None:
    (claim,) = take(far)
    end_elsewhere(holder, claim)
    assert far.leases.ack(claim.tag) == LOST
    assert lost == [claim.tag]


def test_a_later_acknowledgement_of_what_another_has_ended_tells(
    far: Holder, holder: Holder, lost: list[str]
) -> None:
    (claim,) = take(far)
    end_elsewhere(holder, claim)
    far.leases.ack_later(claim.tag)
    far.leases.flush()
    assert lost == [claim.tag]


def test_an_acknowledgement_whose_answer_was_lost_is_ours(
    far: Holder, holder: Holder, proxy: Proxy, lost: list[str]
) -> None:
    known, claim = take(far, count=2)
    assert far.leases.ack(known.tag) == DONE
    proxy.fault = cut = CutAfter("ack")
    assert far.leases.ack(claim.tag) == SETTLED
    assert cut.fired.is_set()
    assert lost == []
    assert counts(holder).in_flight == 0


@pytest.mark.parametrize("renewed", [False, True])
def test_one_that_was_told_before_the_broker_was_away_is_ours(
    far: Holder, proxy: Proxy, lost: list[str], *, renewed: bool
) -> None:
    known, claim = take(far, count=2)
    assert far.leases.ack(known.tag) == DONE
    proxy.fault = away = Away("ack")
    with pytest.raises(redis.ConnectionError):
        far.leases.ack(claim.tag)
    away.is_mended = True
    if renewed:
        far.leases.renew()
    assert far.leases.ack(claim.tag) == SETTLED
    assert lost == []


@pytest.mark.parametrize("begun", [False, True], ids=["no stream", "an empty one"])
def test_a_server_that_was_emptied_takes_nothing_from_whoever_works(
    far: Holder, holder: Holder, lost: list[str], *, begun: bool
) -> None:
    (claim,) = take(far)
    holder.link.client.flushall()
    if begun:
        holder.store.begin([claim.queue], known=[])
    far.leases.renew()
    assert lost == []
    assert claim.tag not in far.leases


def test_a_callback_that_raises_ends_no_renewals(
    streams: str, holder: Holder, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def refuse(tag: str) -> None:
        told.append(tag)
        raise ValueError("callback")

    ours = Holder(url=streams, options={"consumer": "w", "lease_s": 0.2, "on_lease_lost": refuse})
    try:
        first, second = take(ours, count=2)
        for number, claim in enumerate((first, second), start=1):
            end_elsewhere(holder, claim)
            wait_until(lambda: len(told) == number, "the lost lease was not told")  # noqa: B023
    finally:
        ours.close()
    assert told == [first.tag, second.tag]
    assert caplog.text.count("ValueError: callback") == 2


def test_a_close_before_its_thread_ran_waits_for_no_period(
    streams: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve, may_run = Leases._serve, threading.Event()

    def serve_late(leases: Leases) -> None:
        may_run.wait(DEADLINE_S)
        serve(leases)

    monkeypatch.setattr(Leases, "_serve", serve_late)
    holder = Holder(url=streams, options={"consumer": "w", "lease_s": 600.0})
    take(holder)
    closing = threading.Thread(target=holder.close)
    closing.start()
    wait_until(lambda: holder.leases._closed, "closing has begun")
    may_run.set()
    closing.join(DEADLINE_S)
    assert not closing.is_alive()
