"""Deliveries on the server: who holds one, how often it may be, and what is too old for it."""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from blimp.queue.brokers.base import Completion, Found
from blimp.queue.brokers.streams.consumer import CompletionArguments
from blimp.queue.brokers.streams.dead_letters import DeadLetters
from blimp.queue.brokers.streams.envelope import Claim
from blimp.queue.brokers.streams.store import DONE, LOST, SETTLED, UNKNOWN, StreamsOptions
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.redis.keys import GROUP, NOBODY
from tests.queue.brokers.streams.completions import complete
from tests.queue.celery.kombu_transport.conftest import envelope

MOST = 4
LEASE_S = 600.0
Open = Callable[[str], StreamsSession]


@pytest.fixture
def open_session(streams: str) -> Iterator[Open]:
    with contextlib.ExitStack() as stack:

        def open_one(consumer: str) -> StreamsSession:
            options = StreamsOptions(consumer=consumer, lease_s=LEASE_S, max_deliveries=MOST)
            session = StreamsSession(url=streams, options=options)
            stack.callback(session.close)
            session.store.begin([session.keys.queue("q")], known=())
            return session

        yield open_one


def put(session: StreamsSession, *names: str, **options: Any) -> None:
    for name in names:
        one = envelope(head=name.encode(), **options)
        assert session.store.publish([(session.keys.queue("q"), False)], one) == []


def take(session: StreamsSession, *, room: int = 9) -> list[tuple[str, Claim]]:
    taken = session.store.take([session.keys.queue("q")], room=room)
    return [(fields[1].decode(), claim) for claim, fields in taken.deliveries]


def names(session: StreamsSession, **options: Any) -> str:
    return "".join(name for name, _ in take(session, **options))


def give(session: StreamsSession, claim: Claim, to: str, **options: Any) -> None:
    """Have another consumer hold the delivery: for the next time, or the same one."""
    client: Any = session.link.client
    client.xclaim(claim.stream, GROUP, to, 0, [claim.id], **options)


def end_bare(session: StreamsSession, claim: Claim) -> Any:
    """End one of which only the acknowledgement is left to write."""
    nothing: Any = SimpleNamespace(completes_results=False)
    arguments = CompletionArguments(options=nothing, keys=session.keys)
    message = TaskMessage(id="1", task="t", queue="q")
    arguments.add(Completion(delivery=nothing, message=message), claim)
    return session.store.complete(arguments.keys, arguments.args)[0]


ENDS: dict[str, Callable[[StreamsSession, Claim], Any]] = {
    "renew": lambda session, claim: session.store.renew([claim])[0],
    "ack": lambda session, claim: session.store.ack([claim])[0],
    "end bare": end_bare,
    "complete": lambda session, claim: complete(session.store, {"claim": claim})[0],
    "dead letter": lambda session, claim: session.store.dead_letter(claim, "no"),
    "put back": lambda session, claim: session.store.release([claim])[0],
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("how", ["the next delivery", "of a namesake", "of another"])
def test_only_who_holds_it_for_the_last_time_ends_it(
    open_session: Open, end: str, how: str
) -> None:
    session = open_session("a")
    put(session, "1")
    ((_, claim),) = take(session)
    if how == "of another":  # by its count it is the same
        give(session, claim, "b", justid=True)
    else:
        give(session, claim, "a" if how == "of a namesake" else "b")
    assert ENDS[end](session, claim) == LOST
    counts = session.store.counts(session.keys.queue("q"))
    assert (counts.in_flight, counts.dead) == (1, 0)


@pytest.mark.parametrize("end", ENDS)
def test_its_holder_ends_it_once(open_session: Open, end: str) -> None:
    session = open_session("a")
    put(session, "1")
    ((_, claim),) = take(session)
    assert ENDS[end](session, claim) == DONE
    again = {"renew": DONE, "put back": LOST}.get(end, SETTLED)
    assert ENDS[end](session, claim) == again


def test_what_a_consumer_holds_itself_does_not_come_again(open_session: Open) -> None:
    session, other = open_session("a"), open_session("b")
    put(session, "1")
    ((_, claim),) = take(session)
    give(session, claim, "a", idle=int(LEASE_S * 2000), justid=True)  # as it stood still
    assert take(session) == []
    ((_, theirs),) = take(other)
    assert theirs.fence == 2


def test_what_is_renewed_in_time_comes_to_nobody_else(open_session: Open) -> None:
    session, other = open_session("a"), open_session("b")
    put(session, "1")
    ((_, claim),) = take(session)
    give(session, claim, "a", idle=int(LEASE_S * 900), justid=True)
    assert take(other) == []
    give(session, claim, "a", idle=int(LEASE_S * 2000), justid=True)
    assert session.store.renew([claim]) == [DONE]
    assert take(other) == []


def test_after_so_many_deliveries_it_is_a_dead_letter(open_session: Open) -> None:
    session = open_session("a")
    put(session, "1")
    fences = []
    while found := take(session):
        ((_, claim),) = found
        fences.append(claim.fence)
        assert session.store.release([claim]) == [DONE]
    assert fences == list(range(1, MOST + 1))
    (letter,) = DeadLetters(store=session.store, queue="q").list()
    assert (letter.deliveries, letter.reason) == (
        MOST,
        f"delivered {MOST} times without being completed",
    )


def test_what_may_kill_its_holder_is_delivered_alone(open_session: Open) -> None:
    session = open_session("a")
    put(session, "1")
    for _ in range(MOST // 2 + 1):
        ((_, claim),) = take(session)
        session.store.release([claim])
    put(session, "2", "3")
    assert names(session) == "1"
    assert names(session) == "23"


def test_each_delivery_has_a_tag_of_its_own(open_session: Open) -> None:
    session = open_session("a")
    put(session, "1")
    tags = set()
    for _ in range(3):
        ((_, claim),) = take(session)
        tags.add(claim.tag)
        session.store.release([claim])
    assert len(tags) == 3


def test_only_what_nobody_holds_is_revoked(open_session: Open) -> None:
    session = open_session("a")
    keys = session.keys.queue("q")
    put(session, '{"headers": {"id": "x"}}')
    ((_, claim),) = take(session)
    assert session.store.revoke(keys, "x", b"mark") is Found.IN_FLIGHT
    assert session.store.ack([claim]) == [DONE]
    put(session, '{"headers": {"id": "x"}}')
    assert session.store.revoke(keys, "y", b"mark") is Found.ABSENT
    assert session.store.revoke(keys, "x", b"mark") is Found.MARKED
    ((_, fields),) = session.store.take([keys], room=1).deliveries
    assert fields[4:] == [b"r", b"mark"]


def test_what_no_task_saw_is_not_counted(open_session: Open) -> None:
    session = open_session("a")
    put(session, "1")
    for seen, fence in ((False, 1), (True, 1), (True, 2), (False, 3), (False, 3)):
        ((_, claim),) = take(session)
        assert claim.fence == fence
        session.store.release([claim], seen=seen)


def test_a_successor_takes_back_what_is_not_known_to_be_in_flight(open_session: Open) -> None:
    session, other = open_session("a"), open_session("b")
    put(session, "1", "2")
    (_, known), _ = take(session)
    assert session.store.begin([session.keys.queue("q")], known=[known]) == 1
    assert names(other) == "2"  # at once, in either order


def test_of_a_holder_that_is_forgotten_nothing_is(open_session: Open) -> None:
    session, other = open_session("a"), open_session("b")
    put(session, "1")
    ((_, claim),) = take(session)
    session.store.leave([session.keys.queue("q")])
    client: Any = session.link.client
    held = client.xpending_range(claim.stream, GROUP, "-", "+", 9)
    assert [one["consumer"] for one in held] == [b"a"]
    other.store.leave([session.keys.queue("q")])
    left = {one["name"] for one in client.xinfo_consumers(claim.stream, GROUP)} - {NOBODY.encode()}
    assert left == {b"a"}


def test_the_most_urgent_come_first_and_no_more_than_there_is_room_for(open_session: Open) -> None:
    session = open_session("a")
    for level in (3, 2, 1, 0):
        put(session, *f"{level}{level}", level=level)
    assert [names(session, room=3) for _ in range(3)] == ["001", "122", "33"]


def test_what_is_older_than_it_may_be_is_a_dead_letter(open_session: Open) -> None:
    session = open_session("a")
    put(session, "1", ttl_ms=0)
    put(session, "2", ttl_ms=3_600_000)
    taken = session.store.take([session.keys.queue("q")], room=9)
    assert (taken.expired, [fields[1] for _, fields in taken.deliveries]) == (1, [b"2"])
    (letter,) = DeadLetters(store=session.store, queue="q").list()
    assert letter.reason.startswith("expired: waited")


def test_what_is_older_than_its_queue_allows_is_dropped(open_session: Open) -> None:
    session = open_session("a")
    keys = session.keys.queue("q")
    client: Any = session.link.client
    client.xadd(keys.levels[2], {"h": "old", "b": ""}, id="1000-1")
    put(session, "2")
    client.set(keys.ttl, 3_600_000)
    taken = session.store.take([keys], room=9)
    assert (taken.expired, [fields[1] for _, fields in taken.deliveries]) == (1, [b"2"])
    assert session.store.counts(keys).dead == 0


def test_what_is_scheduled_comes_once_and_not_before(open_session: Open) -> None:
    session, other = open_session("a"), open_session("b")
    keys, client = session.keys.queue("q"), session.link.client
    now: Any = client.time()
    put(session, "1", due_ms=now[0] * 1000 + 30_000)
    taken = session.store.take([keys], room=9)
    assert taken.deliveries == []
    assert taken.next_due_ms is not None
    assert 20_000 < taken.next_due_ms <= 31_000
    early = [one.store.take([keys], room=9, early_ms=60_000) for one in (session, other)]
    assert [len(one.deliveries) for one in early] == [1, 0]


def test_an_emptied_server_is_not_another_holder(open_session: Open) -> None:
    session = open_session("a")
    put(session, "1")
    ((_, claim),) = take(session)
    session.link.client.flushall()
    assert session.store.renew([claim]) == [UNKNOWN]


def test_a_full_server_delivers_and_takes_back(open_session: Open) -> None:
    """Or it would never become empty again."""
    session = open_session("a")
    put(session, "1")
    client: Any = session.link.client
    client.config_set("maxmemory", 1)
    try:
        ((_, claim),) = take(session)
        assert session.store.release([claim]) == [DONE]
        ((_, claim),) = take(session)
        assert session.store.ack([claim]) == [DONE]
    finally:
        client.config_set("maxmemory", 0)
