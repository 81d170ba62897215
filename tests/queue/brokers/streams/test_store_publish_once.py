"""A publish that is repeated because its answer was lost puts nothing more."""

import os
from typing import Any

import kombu
import pytest
import redis

from blimp.queue.brokers.streams.envelope import Stamps
from blimp.queue.brokers.streams.visibility import StreamsSession
from tests.queue.celery.kombu_transport.conftest import Basket, Connect, counts, queue, send

ANSWER_LOST = (redis.ConnectionError("answer lost"), redis.TimeoutError("answer late"))
RETRY = {"max_retries": 2, "interval_start": 0.0, "interval_step": 0.0, "interval_max": 0.0}


def lose_next_answer(
    connection: kombu.Connection, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> list[Exception]:
    """Have the link break when the server has done the next script and answers."""
    link: Any = connection.transport.link.client.connection_pool.connection_class
    read = link.read_response
    lost: list[Exception] = []

    def read_response(self: Any, *args: Any, **options: Any) -> Any:
        answer = read(self, *args, **options)
        if not lost and b"EVALSHA" in getattr(self, "_sent", b""):
            lost.append(error)
            self.disconnect()
            raise error
        return answer

    pack = link.send_packed_command

    def send_packed_command(self: Any, command: Any, **options: Any) -> Any:
        self._sent = command if isinstance(command, bytes) else b"".join(command)
        return pack(self, command, **options)

    monkeypatch.setattr(link, "read_response", read_response)
    monkeypatch.setattr(link, "send_packed_command", send_packed_command)
    return lost


def test_a_lost_answer_makes_no_second_message_on_an_exchange(
    connect: Connect, session: StreamsSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = kombu.Exchange("direct", type="direct")
    kombu.Queue("q", exchange, routing_key="k").bind(connect().channel()).declare()
    producer = connect().Producer(exchange=exchange)
    producer.publish(1, routing_key="k")
    lost = lose_next_answer(producer.connection, ANSWER_LOST[1], monkeypatch)
    producer.publish(2, routing_key="k", retry=True, retry_policy=RETRY)
    assert lost
    assert counts(session).ready == 2


def test_the_same_message_published_again_is_another(
    connect: Connect, session: StreamsSession
) -> None:
    send(connect(), "same", "same", headers={"id": "x"}, correlation_id="x")
    send(connect(), "same", headers={"id": "x"}, correlation_id="x")
    assert counts(session).ready == 3


def test_under_one_text_only_the_first_counts_of_any_publisher(
    connect: Connect, session: StreamsSession
) -> None:
    for _ in range(3):
        send(connect(), "same", once="x/0")
    send(connect(), "next try", once="x/1")
    basket = Basket(connect(), queue("q"))
    assert basket.take_bodies(2) == ["same", "next try"]
    assert basket.is_empty()
    assert all("once" not in message.properties for message in basket.messages)
    assert session.link.client.pttl("blimp:published:x/0") > 0


@pytest.mark.parametrize("once", ["", 3, None, ["x"]])
def test_a_text_that_is_none_is_refused(connect: Connect, once: object) -> None:
    with pytest.raises(ValueError, match=r"once=.*: must be a text, not empty"):
        send(connect(), 1, once=once)


def test_what_is_remembered_of_one_sender_is_bounded(connect: Connect, server: redis.Redis) -> None:
    send(connect(), *range(200))
    (key,) = server.keys("blimp:sender:*")
    assert server.hlen(key) == 64
    assert 0 < server.pttl(key) <= 600_000


def test_it_can_be_turned_off(connect: Connect, server: Any) -> None:
    send(connect(publish_once_s=0), 1)
    assert server.keys("blimp:sender:*") == []


def test_a_forked_child_stamps_as_another_sender(
    session: StreamsSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = Stamps(keys=session.keys, remember_s=1.0)

    def stamp() -> Any:
        properties: dict[str, Any] = {}
        stamps.stamp(properties)
        return stamps.read(properties)

    ours = stamp()
    assert (stamp().key, stamp().number) == (ours.key, 3)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert stamp().key != ours.key
