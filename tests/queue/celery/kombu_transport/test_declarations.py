"""A queue that is not used goes, with everything that it had: `kombu.Queue(expires=…)`."""

from typing import Any

import kombu
import pytest
import redis

from blimp.queue.brokers.streams.visibility import StreamsSession
from tests.queue.celery.kombu_transport.conftest import Basket, Connect, counts, put_raw

LIFE_MS = 60_000


def replies(name: str = "r", exchange: str = "replies", **options: Any) -> kombu.Queue:
    return kombu.Queue(
        name,
        kombu.Exchange(exchange, type="topic"),
        routing_key=name,
        expires=LIFE_MS / 1000.0,
        **options,
    )


def staying(server: redis.Redis) -> list[str]:
    """Return the keys that have no end."""
    keys: Any = server.keys("blimp:*")
    return sorted(key.decode() for key in keys if server.pttl(key) == -1)


def expire(server: redis.Redis, session: StreamsSession, name: str) -> None:
    """Do what the server does when a queue's time is over."""
    server.delete(*session.keys.queue(name).all())


@pytest.mark.parametrize("is_consumed", [False, True])
def test_all_that_it_has_expires(
    connect: Connect, server: redis.Redis, session: StreamsSession, is_consumed: bool
) -> None:
    connection = connect()
    queue = replies(message_ttl=30.0)
    if is_consumed:
        basket = Basket(connection, queue, prefetch=2)
    else:
        queue.bind(connection.channel()).declare()
    producer = connect().Producer()
    for number in range(3):
        producer.publish(number, exchange=queue.exchange, routing_key="r")
    producer.publish("by name", routing_key="r", priority=9)
    later = {"eta": "2100-01-01T00:00:00+00:00"}
    producer.publish("later", exchange=queue.exchange, routing_key="r", headers=later)
    if is_consumed:
        first, second = basket.take(2)
        first.reject()
        second.requeue()
        assert counts(session, "r").dead == 1
    assert staying(server) == []
    assert 0 < server.pttl(session.keys.exchange("replies")) <= LIFE_MS


def test_getting_one_by_one_leaves_nothing(connect: Connect, server: redis.Redis) -> None:
    bound = replies().bind(connect().channel())
    bound.declare()
    assert bound.get() is None
    assert staying(server) == []


def test_use_renews_the_queue_and_its_exchange(
    connect: Connect, server: redis.Redis, session: StreamsSession
) -> None:
    basket = Basket(connect(), replies())
    keys = [*session.keys.queue("r").levels, session.keys.exchange("replies")]
    for key in keys:
        server.pexpire(key, 1000)
    basket.channel.keep_alive(["r"], now=True)
    for key in keys:
        assert server.pttl(key) > LIFE_MS / 2


def test_an_exchange_with_a_queue_that_stays_stays(
    connect: Connect, server: redis.Redis, session: StreamsSession
) -> None:
    channel = connect().channel()
    exchange = kombu.Exchange("replies", type="topic")
    key = session.keys.exchange("replies")
    replies().bind(channel).declare()
    kombu.Queue("stays", exchange, routing_key="s").bind(channel).declare()
    assert server.pttl(key) == -1
    replies("another").bind(channel).declare()
    assert server.pttl(key) == -1
    expire(server, session, "r")
    replies("third").bind(channel).declare()  # any later binding sweeps
    names = {row[2] for row in connect().channel().get_table("replies")}
    assert names == {"stays", "another", "third"}


def test_an_exchange_that_expired_and_came_again_routes_to_its_new_queues(
    connect: Connect, server: redis.Redis, session: StreamsSession
) -> None:
    """A publisher that remembers the bindings of its first life must not use them."""
    producer = connect().Producer()
    replies("old").bind(connect().channel()).declare()
    producer.publish("old", exchange=replies().exchange, routing_key="old")
    expire(server, session, "old")
    server.delete(session.keys.exchange("replies"))
    producer.publish("nobody", exchange=replies().exchange, routing_key="new")
    basket = Basket(connect(), replies("new"))
    producer.publish("new", exchange=replies().exchange, routing_key="new")
    assert basket.take_bodies(1) == ["new"]


def test_a_queue_without_an_end_keeps_its_dead_letters(
    connect: Connect, server: redis.Redis, session: StreamsSession
) -> None:
    put_raw(session, b"1")
    basket = Basket(connect(), kombu.Queue("q", kombu.Exchange(""), routing_key="q"))
    assert basket.is_empty()
    assert server.pttl(session.keys.queue("q").dead) == -1


def test_unbinding_from_nothing_makes_nothing(connect: Connect, server: redis.Redis) -> None:
    channel = connect().channel()
    channel.queue_unbind("r", "replies", "r")
    assert staying(server) == []
