"""What the sender puts into a stream is what a kombu producer would have put there."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
import redis

from blimp.errors import LinkError
from blimp.queue.brokers.base import Written
from blimp.queue.brokers.streams import envelope as wire
from blimp.queue.brokers.streams.envelope import Stamp
from blimp.queue.brokers.streams.streams_sender import StreamsSender
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.protocol.message import TaskMessage, write_message
from blimp.queue.publish.publisher import Publisher
from blimp.queue.redis.keys import LEVELS
from blimp.queue.retry import RetryPolicy
from tests.queue.celery.kombu_transport.conftest import Connect

MESSAGE = TaskMessage(id="a", task="t", queue="q")


def all_put(session: StreamsSession) -> list[tuple[int, Any]]:
    """Return level and kombu payload of all that was put into queue `q`."""
    keys, client = session.keys.queue("q"), session.link.client
    found: list[tuple[int, Any]] = []
    for level in range(LEVELS):
        entries: Any = client.xrange(keys.levels[level])
        for _, fields in entries:
            found.append((level, wire.unpack([part for pair in fields.items() for part in pair])))
    members: Any = client.zrange(keys.later, 0, -1)
    for member in members:
        level, fields = msgspec.msgpack.decode(member)
        found.append((level, wire.unpack([part.encode() for part in fields])))
    for _, payload in found:
        del payload["properties"]["delivery_tag"]  # another each time
    return found


@pytest.mark.parametrize("priority", [0, 1, 3, 6, 9])
@pytest.mark.parametrize("eta_s", [None, 4_102_444_800.0], ids=["now", "later"])
def test_entries_are_those_of_a_producer(
    streams: str, connect: Connect, session: StreamsSession, priority: int, eta_s: float | None
) -> None:
    message = TaskMessage(id="a", task="t", args=(1, "é"), queue="q", eta_s=eta_s)
    headers, body = write_message(message, signer=None)
    connect().Producer().publish(
        body,
        routing_key="q",
        headers=headers,
        content_type="application/json",
        content_encoding="utf-8",
        priority=max(1, priority),
        correlation_id="a",
        delivery_mode=2,
    )
    sender = StreamsSender(streams, timeout_s=2.0)
    sender.send(
        [Written(msgspec.structs.replace(message, priority=priority), headers, body)],
        sender.stamp(),
    )
    sender.close()
    first, second = all_put(session)
    assert first == second


@pytest.mark.parametrize("eta_s", [None, 4_102_444_800.0], ids=["now", "later"])
def test_an_attempt_that_arrives_after_later_publishes_puts_nothing(
    streams: str, session: StreamsSession, eta_s: float | None
) -> None:
    """The network may deliver the bytes of a connection that was given up long before."""
    message = msgspec.structs.replace(MESSAGE, eta_s=eta_s)
    sender = StreamsSender(streams, timeout_s=2.0)
    for number in (1, 2, 3, 1, 3, 2):
        headers, body = write_message(message, signer=None)
        headers["attempt"] = number
        sender.send([Written(message, headers, body)], Stamp("blimp.test-sender", number, 10_000))
    sender.close()
    assert sorted(payload["headers"]["attempt"] for _, payload in all_put(session)) == [1, 2, 3]


def test_publishes_under_way_share_no_key(streams: str) -> None:
    sender = StreamsSender(streams, timeout_s=2.0)
    first, second = sender.stamp(), sender.stamp()
    assert first.key != second.key
    sender.release(first)
    third = sender.stamp()
    assert (third.key, third.number) == (first.key, first.number + 1)
    sender.after_fork()
    sender.release(second)  # the child of a fork in the middle of a publish
    assert sender.stamp().key not in (first.key, second.key)
    sender.close()


def test_threads_that_share_a_publisher_and_lose_answers_put_each_message_once(
    streams: str, session: StreamsSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, each = 4, 30
    link: Any = session.link.client.connection_pool.connection_class
    read, answers = link.read_response, itertools.count(1)

    def read_response(self: Any, *args: Any, **options: Any) -> Any:
        answer = read(self, *args, **options)
        if answer == 1 and next(answers) % 3 == 0:
            self.disconnect()
            raise redis.TimeoutError("answer late")
        return answer

    publisher = Publisher(url=streams, policy=RetryPolicy(max_retries=20, interval_max=0.0))
    publisher.connect()
    monkeypatch.setattr(link, "read_response", read_response)

    def send(thread: int) -> None:
        for number in range(each):
            id = f"{thread}-{number}"
            publisher.publish(msgspec.structs.replace(MESSAGE, id=id))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(send, range(threads)))
    monkeypatch.undo()
    publisher.close()
    ids = [payload["headers"]["id"] for _, payload in all_put(session)]
    assert len(ids) == len(set(ids)) == threads * each


def test_a_server_that_forgot_its_scripts_and_connections_is_no_error(
    streams: str, session: StreamsSession
) -> None:
    headers, body = write_message(MESSAGE, signer=None)
    sender, client = StreamsSender(streams, timeout_s=2.0), session.link.client
    client.script_flush()
    for number in range(3):
        stamp = Stamp("blimp.test-sender", number, 10_000)
        sender.send([Written(MESSAGE, headers, body)], stamp)
        if number == 0:
            client.script_flush()
        else:
            client.client_kill_filter(_type="normal", skipme=True)
    sender.close()
    assert len(all_put(session)) == 3


def test_what_could_not_be_put_is_not_taken_for_put(streams: str, session: StreamsSession) -> None:
    headers, body = write_message(MESSAGE, signer=None)
    sender, client = StreamsSender(streams, timeout_s=2.0), session.link.client
    level = session.keys.queue("q").levels[2]
    stamp = Stamp("blimp.test-sender", 1, 10_000)
    client.set(level, "no stream")
    with pytest.raises(LinkError, match="WRONGTYPE"):
        sender.send([Written(MESSAGE, headers, body)], stamp)
    client.delete(level)
    sender.send([Written(MESSAGE, headers, body)], stamp)
    sender.close()
    assert len(all_put(session)) == 1


def test_many_for_one_stream_are_put_all_or_none_and_once(
    streams: str, session: StreamsSession
) -> None:
    sender, client = StreamsSender(streams, timeout_s=2.0), session.link.client
    ids, stamp = ["m0", "m1", "m2"], Stamp("blimp.test-sender", 7, 10_000)
    messages = [
        Written(message, *write_message(message, signer=None))
        for message in (msgspec.structs.replace(MESSAGE, id=id) for id in ids)
    ]
    stream = session.keys.queue("q").levels[2]
    client.xadd(stream, {"h": "", "b": ""}, id=f"{2**64 - 1}-{2**64 - 2}")
    with pytest.raises(LinkError, match="exhausted"):  # after the first of them
        sender.send(messages, stamp)
    assert client.xlen(stream) == 1
    client.delete(stream)
    for _ in range(2):
        sender.send(messages, stamp)
    sender.close()
    assert [one["headers"]["id"] for _, one in all_put(session)] == ids


def test_many_are_put_all_or_none_and_once(streams: str, session: StreamsSession) -> None:
    """Neither a key of a wrong type nor a stream that has given its last id gets them in part.

    A bell that has given its last id is replaced: nobody needs what it had.
    """
    sender, client = StreamsSender(streams, timeout_s=2.0), session.link.client
    several: list[dict[str, Any]] = [
        {"id": "m0"},
        {"id": "m1", "priority": 1},
        {"id": "m2", "eta_s": 4_102_444_800.0},
        {"id": "m3", "queue": "other", "priority": 9},
    ]
    messages = [
        Written(message, *write_message(message, signer=None))
        for message in (msgspec.structs.replace(MESSAGE, **fields) for fields in several)
    ]
    own, other = session.keys.queue("q"), session.keys.queue("other")
    last, stamp = f"{2**64 - 1}-{2**64 - 1}", Stamp("blimp.test-sender", 7, 10_000)
    client.set(own.clock, "no hash")
    with pytest.raises(LinkError, match="WRONGTYPE"):
        sender.send(messages, stamp)
    assert all_put(session) == []
    client.delete(own.clock)
    client.xadd(own.bell, {"r": ""}, id=last)
    for refused in ("WRONGTYPE", "exhausted"):
        if refused == "WRONGTYPE":
            client.set(other.levels[3], "no stream")
        else:
            client.xadd(other.levels[3], {"h": "", "b": ""}, id=last)
        with pytest.raises(LinkError, match=refused):
            sender.send(messages, stamp)
        assert all_put(session) == []
        client.delete(other.levels[3])
    for _ in range(2):
        sender.send(messages, stamp)
    sender.close()
    assert [(level, one["headers"]["id"]) for level, one in all_put(session)] == [
        (0, "m1"),
        (2, "m0"),
        (2, "m2"),
    ]
    assert client.xlen(other.levels[3]) == 1
    assert client.zcard(own.later) == client.xlen(own.bell) == 1
