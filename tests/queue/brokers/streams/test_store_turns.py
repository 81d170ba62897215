"""What the scripts do with the messages of tenants, beside what the model of the queue says."""

import itertools
import timeit
from collections.abc import Callable
from typing import Any

import pytest

from blimp.queue.brokers.base import Found
from blimp.queue.brokers.streams.envelope import Envelope, Stamp
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.redis.keys import GROUP
from tests.queue.celery.kombu_transport.conftest import envelope


@pytest.fixture
def client(session: StreamsSession) -> Any:
    session.store.begin([session.keys.queue("q")], known=())
    return session.link.client


def put(session: StreamsSession, *tenants: str, stamp: int = 1, **options: Any) -> None:
    many: list[Envelope] = [envelope(head=one.encode(), tenant=one, **options) for one in tenants]
    key = session.keys.sender("s")
    session.store.put_many(["q"] * len(many), many, stamp=Stamp(key, stamp, 60_000))


def take(session: StreamsSession, *, room: int = 100) -> str:
    taken = session.store.take([session.keys.queue("q")], room=room)
    return "".join(fields[1].decode() for _, fields in taken.deliveries)


def test_each_reader_that_waits_is_woken_by_the_one_before(
    session: StreamsSession, client: Any
) -> None:
    bell = session.keys.queue("q").bell
    put(session, *"abc")
    assert client.xlen(bell) == 1  # one is woken, however many come
    client.xreadgroup(GROUP, session.consumer, {bell: ">"})
    assert take(session, room=1) == "a"
    assert client.xlen(bell) == 1  # and wakes the next, as it leaves some
    client.xreadgroup(GROUP, session.consumer, {bell: ">"})
    assert take(session) == "bc"
    assert client.xlen(bell) == 0


def test_a_woken_reader_that_takes_nothing_silences_no_bell(
    session: StreamsSession, client: Any
) -> None:
    bell = session.keys.queue("q").bell
    put(session, "a")
    ((_, ((ring, _),)),) = client.xreadgroup(GROUP, "dead", {bell: ">"})
    client.xclaim(bell, GROUP, "dead", 0, [ring], idle=100, justid=True)
    put(session, *"bc", stamp=2)
    assert client.xlen(bell) == 2
    client.xreadgroup(GROUP, session.consumer, {bell: ">"})
    assert take(session, room=1) == "a"
    assert client.xlen(bell) == 2  # the next one is woken, though the ring of the dead is there


def test_emergencies_in_a_paused_queue_wake_one_reader_after_another(
    session: StreamsSession, client: Any
) -> None:
    keys = session.keys.queue("q")
    put(session, "n")
    session.store.pause(keys)
    put(session, *"ab", stamp=2, level=0)
    for number, expected in enumerate("ab"):
        client.xreadgroup(GROUP, session.consumer, {keys.bell: ">"})
        assert take(session, room=1) == expected
        assert client.xlen(keys.bell) == 1 - number  # nobody is woken for what is paused


def test_what_is_older_than_its_queue_allows_is_dropped(
    session: StreamsSession, client: Any
) -> None:
    """Its age is that of the message, not of the entry that a take makes of it."""
    keys = session.keys.queue("q")
    put(session, *"ab")
    client.set(keys.ttl, 60_000)
    ((place, start),) = client.zrange(keys.turns, 0, 0, withscores=True)
    message = client.hget(keys.messages, place)
    number, _, came_ms = place.partition(b":")
    earlier = b"%s:%d" % (number, int(came_ms) - 60_000)
    client.zrem(keys.turns, place)
    client.hdel(keys.messages, place)
    client.zadd(keys.turns, {earlier: start})
    client.hset(keys.messages, earlier, message)
    taken = session.store.take([keys], room=100)
    assert (taken.expired, len(taken.deliveries)) == (1, 1)
    assert not client.exists(keys.turns, keys.tenants, keys.messages)


def test_a_deleted_queue_has_no_tenants(session: StreamsSession, client: Any) -> None:
    keys = session.keys.queue("q")
    put(session, "a")
    session.store.delete(keys)
    assert not client.exists(keys.turns, keys.tenants, keys.messages)


def test_who_has_messages_revoked_has_their_turns_back(
    session: StreamsSession, client: Any
) -> None:
    """As if it had sent none of them."""
    keys, sender = session.keys.queue("q"), session.keys.sender("s")
    put(session, *"bb")
    assert take(session, room=1) == "b"
    put(session, *"bbb", stamp=2)
    ids = [f"a{number}" for number in range(4)]
    many = [envelope(head=b'{"headers": {"id": "%s"}}' % id.encode(), tenant="a") for id in ids]
    session.store.put_many(["q"] * 4, many, stamp=Stamp(sender, 3, 60_000))
    for id in ids:
        assert session.store.revoke(keys, id, b"m") is Found.MARKED
    client.delete(keys.levels[2])  # they are of no interest here
    session.store.begin([keys], known=())
    put(session, *"aa", stamp=4)
    assert take(session) == "bababb"


def test_what_tenants_have_in_a_queue_that_expires_goes_with_it(
    session: StreamsSession, client: Any
) -> None:
    keys = session.keys.queue("q")
    session.store.keep(keys, expires_ms=60_000)
    put(session, "", "a")
    left_ms = [client.pttl(key) for key in client.keys("blimp:queue:*")]
    assert len(left_ms) >= 9
    assert all(0 < one <= 60_000 for one in left_ms)


def test_no_script_copies_the_messages_that_wait(session: StreamsSession, client: Any) -> None:
    """One script stands before whatever else the server is asked, an emergency stop too."""
    keys = session.keys.queue("q")
    numbers = itertools.count(1)

    def server_s() -> float:
        used = client.info("cpu")
        return float(used["used_cpu_user"] + used["used_cpu_sys"])

    def least_s(function: Callable[[], object], *, times: int = 5) -> float:
        """Return what the server computes for it: its time does not count while others have it."""
        return min(timeit.repeat(function, number=1, repeat=times, timer=server_s))

    def costs(size: int) -> tuple[float, float]:
        put(session, *"a" * 20, stamp=next(numbers), body=b"x" * size)
        counting_s = least_s(lambda: session.store.counts(keys), times=100)
        putting_s = least_s(lambda: put(session, *"b" * 300, stamp=next(numbers)))
        assert session.store.purge(keys) == 1520
        return counting_s, putting_s

    small, large = costs(10), costs(900_000)
    assert large[0] < 5.0 * small[0]
    assert large[1] < 5.0 * small[1]
