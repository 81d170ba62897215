"""What another has ended counts as lost; what we ended ourselves does not."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from blimp.queue.brokers.streams.envelope import Claim
from blimp.queue.brokers.streams.store import DONE, LOST, SETTLED, StreamsOptions
from blimp.queue.brokers.streams.visibility import PERIODS_TO_IDLE, Leases, StreamsSession
from tests.faults.proxy import Command, Proxy
from tests.queue.brokers.streams.test_fetcher_lost_answer import CutAfter, proxied, proxy, put
from tests.queue.celery.kombu_transport.conftest import counts
from tests.queue.conftest import wait_until

__all__ = ["proxied", "proxy"]


class Lost(CutAfter):
    """Ends the connection after one command's reply, and refuses every command until `mend`."""

    is_mended = False

    def before(self, command: Command) -> bool:
        return self.is_mended or not self.fired.is_set()


@pytest.fixture
def lost() -> list[str]:
    return []


@pytest.fixture
def far(proxied: str, lost: list[str]) -> Iterator[StreamsSession]:
    """A holder whose link goes through the proxy; it renews by itself too late to matter."""
    session = StreamsSession(
        url=proxied,
        options=StreamsOptions(consumer="w", lease_s=600.0, on_lease_lost=lost.append),
    )
    yield session
    session.close()


def take(session: StreamsSession, *, count: int = 1) -> list[Claim]:
    queue = session.keys.queue("q")
    session.store.begin([queue], known=[])
    put(session, count)
    claims = [claim for claim, _ in session.store.take([queue], room=count).deliveries]
    session.leases.hold(claims)
    return claims


def end_elsewhere(session: StreamsSession, claim: Claim) -> None:
    """Have another take and complete it, as after the lease."""
    session.link.client.xclaim(claim.stream, "workers", session.consumer, 0, [claim.id])
    later = session.store.claim(claim.queue, claim.level, claim.id, claim.fence + 1)
    assert session.store.ack([later]) == [DONE]


def test_the_renewal_of_what_another_has_ended_tells(
    far: StreamsSession, session: StreamsSession, lost: list[str]
) -> None:
    (claim,) = take(far)
    end_elsewhere(session, claim)
    far.leases.renew()
    assert lost == [claim.tag]
    assert far.leases.ack(claim.tag) == LOST
    assert lost == [claim.tag]


def test_the_acknowledgement_of_what_another_has_ended_is_refused(
    far: StreamsSession, session: StreamsSession, lost: list[str]
) -> None:
    (claim,) = take(far)
    end_elsewhere(session, claim)
    assert far.leases.ack(claim.tag) == LOST
    assert lost == [claim.tag]


def test_an_acknowledgement_whose_answer_was_lost_is_ours(
    far: StreamsSession, session: StreamsSession, proxy: Proxy, lost: list[str]
) -> None:
    known, claim = take(far, count=2)
    assert far.leases.ack(known.tag) == DONE
    proxy.fault = cut = CutAfter("ack")
    assert far.leases.ack(claim.tag) == SETTLED
    assert cut.fired.is_set()
    assert lost == []
    assert counts(session).in_flight == 0


@pytest.mark.parametrize("renewed", [False, True])
def test_one_that_was_reported_before_the_broker_was_unreachable_is_ours(
    far: StreamsSession, proxy: Proxy, lost: list[str], *, renewed: bool
) -> None:
    known, claim = take(far, count=2)
    assert far.leases.ack(known.tag) == DONE
    proxy.fault = cut = Lost("ack")
    with pytest.raises(redis.ConnectionError):
        far.leases.ack(claim.tag)
    cut.is_mended = True
    if renewed:
        far.leases.renew()
    assert far.leases.ack(claim.tag) == SETTLED
    assert lost == []


@pytest.mark.parametrize("begun", [False, True], ids=["no stream", "an empty one"])
def test_a_server_that_was_emptied_takes_nothing_from_a_worker(
    far: StreamsSession, session: StreamsSession, lost: list[str], *, begun: bool
) -> None:
    (claim,) = take(far)
    session.link.client.flushall()
    if begun:
        session.store.begin([claim.queue], known=[])
    far.leases.renew()
    assert lost == []
    assert claim.tag not in far.leases


class Between:
    """The lock of leases; their thread does `then` as it has found nothing held `count` times."""

    def __init__(self, leases: Leases, *, count: int, then: Callable[[], None]) -> None:
        self._leases, self._left, self._then = leases, count, then
        self._lock = leases._lock

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *of: Any) -> None:
        is_idle = threading.current_thread().name == "leases" and not self._leases._held
        self._lock.__exit__(*of)
        self._left = self._left - 1 if is_idle else PERIODS_TO_IDLE
        if self._left == 0:
            self._then()


def test_what_is_taken_just_as_the_thread_goes_idle_is_renewed(url: str) -> None:
    options = StreamsOptions(consumer="w", lease_s=0.4)
    with contextlib.closing(StreamsSession(url=url, options=options)) as session:
        leases = session.leases
        claims: list[Claim] = []
        between = Between(leases, count=PERIODS_TO_IDLE, then=lambda: leases.hold(claims))
        leases._lock = between  # type: ignore[assignment]
        claims += take(session)
        leases.keep([])

        def renewals() -> int:
            stats = session.link.client.info("commandstats")
            return int(stats.get("cmdstat_xclaim", {"calls": 0})["calls"])

        before = renewals()
        wait_until(lambda: renewals() >= before + 2, "nobody renews it")


def test_a_callback_that_raises_ends_no_renewals(
    streams: str, session: StreamsSession, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[str] = []

    def refuse(tag: str) -> None:
        reported.append(tag)
        raise ValueError("callback")

    ours = StreamsSession(
        url=streams, options=StreamsOptions(consumer="w", lease_s=0.2, on_lease_lost=refuse)
    )
    try:
        first, second = take(ours, count=2)
        for number, claim in enumerate((first, second), start=1):
            end_elsewhere(session, claim)
            wait_until(lambda: len(reported) == number, "the lost lease was not reported")  # noqa: B023
    finally:
        ours.close()
    assert reported == [first.tag, second.tag]
    assert caplog.text.count("ValueError: callback") == 2
