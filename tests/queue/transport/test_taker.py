"""Taking past kombu: batches in order of lanes, and nothing missed while it waits."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from blimp.queue.brokers.streams.completion import End, Put
from blimp.queue.brokers.streams.fetcher import Delivered, Taker
from blimp.queue.kombu_transport import DONE, Holder
from tests.queue.conftest import DEADLINE_S
from tests.queue.look import Look
from tests.queue.transport.conftest import put_raw


@pytest.fixture
def taker(streams: str) -> Iterator[Taker]:
    # Too long a lease for a sweep to hide what it missed.
    holder = Holder(url=streams, options={"consumer": "taker", "lease_s": 60.0})
    taker = Taker(holder=holder, queues=["q"])
    taker.begin()
    yield taker
    taker.close()
    holder.close()


def put(holder: Holder, *bodies: bytes, lane: int = 2, due_ms: int = 0) -> None:
    """Put messages in one step, as they follow the end of a task."""
    keys = holder.keys.queue("q")
    puts = tuple(
        Put(queue=keys, lane=lane, due_ms=due_ms, head=b"{}", body=body) for body in bodies
    )
    assert holder.store.end([End(puts=puts)]) == [DONE]


def bodies(taken: list[Delivered]) -> list[bytes]:
    return [fields[3] for _, fields in taken]


def wait(taker: Taker) -> list[Delivered]:
    """Take what comes within the deadline."""
    until_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < until_s:
        taken = taker.take(room=8, timeout_s=1.0)
        if taken:
            return taken
    return []


def test_a_batch_is_in_order_of_lanes_and_no_larger_than_the_room(
    taker: Taker, holder: Holder
) -> None:
    put(holder, b"1", b"2", b"3", lane=3)
    put(holder, b"first", lane=0)
    assert bodies(taker.take(room=3, timeout_s=0.0)) == [b"first", b"1", b"2"]
    assert bodies(taker.take(room=3, timeout_s=0.0)) == [b"3"]
    assert taker.take(room=3, timeout_s=0.0) == []


def test_a_queue_that_is_never_empty_starves_no_other(streams: str) -> None:
    far = Holder(url=streams, options={"consumer": "taker", "lease_s": 60.0})
    taker = Taker(holder=far, queues=["busy", "other", "third"])
    try:
        taker.begin()
        for name, count in (("busy", 12), ("other", 1), ("third", 1)):
            for _ in range(count):
                put_raw(far, b"", queue=name)
        came = [
            claim.queue.name for _ in range(3) for claim, _ in taker.take(room=4, timeout_s=0.0)
        ]
    finally:
        taker.close()
        far.close()
    assert len(came) == 12
    assert {"other", "third"} < set(came)


def test_what_comes_while_it_waits_is_taken(taker: Taker, holder: Holder) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait, taker)
        put(holder, b"new")
        assert bodies(waiting.result()) == [b"new"]


def test_what_is_put_back_while_it_waits_is_taken(taker: Taker, holder: Holder) -> None:
    keys = holder.keys.queue("q")
    put(holder, b"back")
    ((claim, _),) = holder.store.take([keys], room=1).deliveries
    assert taker.take(room=8, timeout_s=0.0) == []
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait, taker)
        assert holder.store.release([claim]) == [DONE]
        ((again, fields),) = waiting.result()
    assert (again.fence, fields[3]) == (2, b"back")


def test_what_is_due_while_it_waits_is_taken_then(taker: Taker, holder: Holder) -> None:
    seconds, microseconds = holder.link.client.time()
    due_ms = int(seconds) * 1000 + int(microseconds) // 1000 + 60
    assert taker.take(room=8, timeout_s=0.0) == []
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait, taker)
        put(holder, b"due", due_ms=due_ms)
        ((claim, fields),) = waiting.result()
    assert fields[3] == b"due"
    assert claim.issued_ms >= due_ms


def test_a_delivery_that_nobody_read_goes_back_unseen(taker: Taker, holder: Holder) -> None:
    assert taker.take(room=8, timeout_s=0.01) == [], "it asks"
    put(holder, b"unread")
    look = Look(server=holder.link.client, transport="streams")
    assert look.in_hand(queue="q") == 1
    taker.close()
    ((claim, _),) = holder.store.take([holder.keys.queue("q")], room=1).deliveries
    assert claim.fence == 1


def test_an_interrupt_ends_the_wait(taker: Taker) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(taker.take, room=8, timeout_s=DEADLINE_S)
        taker.interrupt()
        assert waiting.result(DEADLINE_S / 2) == []
