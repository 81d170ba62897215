"""Taking past kombu: batches in order of levels, and nothing missed while it waits."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain

import pytest

from blimp.queue.brokers.streams.envelope import Envelope
from blimp.queue.brokers.streams.fetcher import (
    Delivered,
    Fetcher,
    claimed,
    idle_s,
    streams_of,
)
from blimp.queue.brokers.streams.store import DONE, StreamsOptions, Taken
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.redis.keys import GROUP
from tests.queue.brokers.streams.completions import complete
from tests.queue.celery.kombu_transport.conftest import put_raw
from tests.queue.conftest import DEADLINE_S
from tests.queue.server_view import Look


@pytest.fixture
def fetcher(streams: str) -> Iterator[Fetcher]:
    # Too long a lease for a sweep to hide what it missed.
    session = StreamsSession(url=streams, options=StreamsOptions(consumer="taker", lease_s=60.0))
    fetcher = Fetcher(session=session, queues=["q"])
    fetcher.begin()
    yield fetcher
    fetcher.close()
    session.close()


def put(session: StreamsSession, *bodies: bytes, level: int = 2, due_ms: int = 0) -> None:
    """Put messages in one step, as they follow the end of a task."""
    keys = session.keys.queue("q")
    puts = tuple(
        (keys, Envelope(level=level, due_ms=due_ms, head=b"{}", body=body)) for body in bodies
    )
    assert complete(session.store, {"puts": puts}) == [DONE]


def bodies(taken: list[Delivered]) -> list[bytes]:
    return [fields[3] for _, fields in taken]


def wait(fetcher: Fetcher) -> list[Delivered]:
    """Take what comes within the deadline."""
    until_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < until_s:
        taken = fetcher.take(room=8, timeout_s=1.0)
        if taken:
            return taken
    return []


def test_an_answer_is_in_order_of_priorities_and_the_next_due_ends_a_wait(
    session: StreamsSession,
) -> None:
    queue = session.keys.queue("q")
    about = streams_of([queue])
    streams = [*reversed(queue.levels), queue.bell]
    entries = [(one, f"{n}-1", [b"h", b"{}", b"b", b""]) for n, one in enumerate(streams)]
    found = [claim for claim, _ in claimed(session.store, entries, about)]
    assert [(one.level, one.id) for one in found] == [(n, f"{3 - n}-1") for n in range(4)]
    waits = [
        idle_s(Taken(deliveries=[], next_due_ms=due_ms, expired=0), lease_s=6.0)
        for due_ms in (None, 60_000, 499, 0)
    ]
    assert waits == [2.0, 2.0, 0.5, 0.001]


def test_a_queue_that_is_never_empty_starves_no_other(streams: str) -> None:
    far = StreamsSession(url=streams, options=StreamsOptions(consumer="taker", lease_s=60.0))
    fetcher = Fetcher(session=far, queues=["busy", "other", "third"])
    try:
        fetcher.begin()
        for name, count in (("busy", 12), ("other", 1), ("third", 1)):
            for _ in range(count):
                put_raw(far, b"", queue=name)
        came = [
            claim.queue.name for _ in range(3) for claim, _ in fetcher.take(room=4, timeout_s=0.0)
        ]
    finally:
        fetcher.close()
        far.close()
    assert len(came) == 12
    assert {"other", "third"} < set(came)


def test_what_comes_while_it_waits_is_taken(fetcher: Fetcher, session: StreamsSession) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait, fetcher)
        put(session, b"new")
        assert bodies(waiting.result()) == [b"new"]


def test_what_is_put_back_while_it_waits_is_taken(
    fetcher: Fetcher, session: StreamsSession
) -> None:
    keys = session.keys.queue("q")
    put(session, b"back")
    ((claim, _),) = session.store.take([keys], room=1).deliveries
    assert fetcher.take(room=8, timeout_s=0.0) == []
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait, fetcher)
        assert session.store.release([claim]) == [DONE]
        ((again, fields),) = waiting.result()
    assert (again.fence, fields[3]) == (2, b"back")


def test_what_is_due_while_it_waits_is_taken_then(
    fetcher: Fetcher, session: StreamsSession
) -> None:
    seconds, microseconds = session.link.client.time()
    due_ms = int(seconds) * 1000 + int(microseconds) // 1000 + 60
    assert fetcher.take(room=8, timeout_s=0.0) == []
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait, fetcher)
        put(session, b"due", due_ms=due_ms)
        ((claim, fields),) = waiting.result()
    assert fields[3] == b"due"
    assert claim.issued_ms >= due_ms


def test_a_delivery_that_nobody_read_goes_back_unseen(
    fetcher: Fetcher, session: StreamsSession
) -> None:
    assert fetcher.take(room=8, timeout_s=0.01) == [], "it asks"
    put(session, b"unread")
    look = Look(server=session.link.client)
    assert look.in_flight(queue="q") == 1
    fetcher.close()
    ((claim, _),) = session.store.take([session.keys.queue("q")], room=1).deliveries
    assert claim.fence == 1


def test_of_a_paused_queue_only_emergencies_come_until_it_is_resumed(
    streams: str, session: StreamsSession
) -> None:
    keys = session.keys.queue("q")
    with ExitStack() as using:
        fetchers = []
        for name in ("a", "b", "c"):
            own = StreamsSession(url=streams, options=StreamsOptions(consumer=name, lease_s=60.0))
            using.callback(own.close)
            fetchers.append(Fetcher(session=own, queues=["q", "other"]))
            using.callback(fetchers[-1].close)
            fetchers[-1].begin()
            assert fetchers[-1].take(room=1, timeout_s=0.01) == []  # and asks the server for more
        busy = fetchers[0]
        put(session, b"before")
        assert bodies(wait(busy)) == [b"before"]  # and it will ask again without a look
        assert session.store.pause(keys)
        assert not session.store.pause(keys)
        put(session, b"later", b"more")
        for one in fetchers:
            assert [one.take(room=8, timeout_s=0.02) for _ in range(3)] == [[]] * 3
        assert session.store.counts(keys).ready == 2
        put(session, b"stop", level=0)
        put_raw(session, b"another's", queue="other")
        found = [one.take(room=8, timeout_s=0.05) for one in fetchers for _ in range(2)]
        assert sorted(bodies([*chain(*found)])) == [b"another's", b"stop"]

        assert session.store.pause(keys, resume=True)
        found = [one.take(room=8, timeout_s=1.0) for one in fetchers for _ in range(2)]
        assert sorted(bodies([*chain(*found)])) == [b"later", b"more"]


def test_a_pause_of_a_queue_without_consumers_holds_and_its_bell_stays_short(
    session: StreamsSession,
) -> None:
    keys, client = session.keys.queue("q"), session.link.client
    put_raw(session, b"first")
    assert session.store.pause(keys)
    store = session.store
    store.begin([keys], known=())
    assert store.take([keys], room=8).deliveries == []
    for number in range(150):  # as killed workers leave them
        client.xgroup_createconsumer(keys.bell, GROUP, f"dead{number}")
    for resume in [True, False] * 20:
        assert store.pause(keys, resume=resume)
    assert client.xlen(keys.bell) <= 300
    client.config_set("maxmemory", 1)  # a full server takes a pause, and its end
    try:
        assert store.pause(keys, resume=True)
        assert store.pause(keys)
    finally:
        client.config_set("maxmemory", 0)
    put_raw(session, b"second")
    assert store.take([keys], room=8).deliveries == []
    assert store.purge(keys) == 2
    assert store.pause(keys, resume=True)
    put_raw(session, b"third")
    assert bodies(store.take([keys], room=8).deliveries) == [b"third"]


def test_an_interrupt_ends_the_wait(fetcher: Fetcher) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(fetcher.take, room=8, timeout_s=DEADLINE_S)
        fetcher.interrupt()
        assert waiting.result(DEADLINE_S / 2) == []


def test_an_answer_that_lay_unread_for_long_brings_nothing_that_is_anothers_by_now(
    fetcher: Fetcher, session: StreamsSession
) -> None:
    """As after a stop of the process: no task of it may begin."""
    put(session, b"1", b"2")
    taken = fetcher._session.store.take([session.keys.queue("q")], room=2).deliveries
    client = session.link.client
    (lost, _), _ = taken
    client.xclaim(lost.stream, GROUP, "thief", 0, [lost.id])
    fetcher._asked.now()
    assert len(fetcher._hold(taken)) == 2
    fetcher._asked.at_s -= 1000.0
    assert bodies(fetcher._hold(taken)) == [b"2"]
