"""What a kombu program may expect, through kombu's public API, on a real server."""

import threading
from datetime import UTC, datetime
from typing import Any

import kombu
import pytest
import redis

from blimp.errors import ConfigError
from blimp.queue.brokers.base import Found
from blimp.queue.brokers.streams.dead_letters import DeadLetters
from blimp.queue.brokers.streams.store import Counts
from blimp.queue.brokers.streams.visibility import StreamsSession
from tests.faults.harm import HARMS, harm
from tests.queue.celery.kombu_transport.conftest import (
    Basket,
    Connect,
    counts,
    queue,
    send,
)
from tests.stopwatch import Stopwatch


@pytest.mark.parametrize("body", [{"a": 1}, "text", "Grüße ☁", b"\x00\xff raw", b""], ids=repr)
def test_a_message_comes_as_it_was_sent(connect: Connect, body: Any) -> None:
    basket = Basket(connect(), queue("q"), accept=["json", "text/plain", "application/data"])
    options = {} if isinstance(body, dict) else {"serializer": "raw"}
    if isinstance(body, str):
        options = {"content_type": "text/plain", "content_encoding": "utf-8"}
    send(connect(), body, headers={"h": [1, None, {"x": "y"}]}, correlation_id="c", **options)
    (message,) = basket.take(1)
    assert message.decode() == body
    assert message.headers == {"h": [1, None, {"x": "y"}]}
    assert message.properties["correlation_id"] == "c"
    assert message.delivery_info["routing_key"] == "q"
    assert message.delivery_info["redelivered"] is False


def test_an_acknowledged_message_is_gone_and_another_is_held(
    connect: Connect, session: StreamsSession
) -> None:
    basket = Basket(connect(), queue("q"))
    send(connect(), 1, 2)
    first, _ = basket.take(2)
    assert counts(session).in_flight == 2
    first.ack()
    assert counts(session).in_flight == 1
    assert session.link.client.xlen(session.keys.queue("q").levels[2]) == 1


def test_acknowledging_several_at_once(connect: Connect, session: StreamsSession) -> None:
    basket = Basket(connect(), queue("q"))
    send(connect(), *range(5))
    messages = basket.take(5)
    basket.channel.basic_ack(messages[3].delivery_tag, multiple=True)
    assert counts(session).in_flight == 1


def test_a_requeued_message_comes_again_first_and_is_marked(connect: Connect) -> None:
    basket = Basket(connect(), queue("q"), prefetch=1)
    send(connect(), "first", "second")
    (message,) = basket.take(1)
    message.requeue()
    (again,) = basket.take(1)
    assert (again.payload, again.delivery_info["redelivered"]) == ("first", True)
    assert again.properties["delivery_count"] == 2
    assert again.delivery_tag != message.delivery_tag
    again.ack()
    assert basket.take_bodies(1) == ["second"]


def test_a_rejected_message_is_a_dead_letter(connect: Connect, session: StreamsSession) -> None:
    basket = Basket(connect(), queue("q"))
    send(connect(), {"n": 1}, headers={"id": "x"})
    basket.take(1)[0].reject()
    dead = DeadLetters(store=session.store, queue="q")
    (letter,) = dead.list()
    assert (letter.reason, letter.deliveries) == ("rejected", 1)
    assert (letter.headers, letter.body) == ({"id": "x"}, '{"n": 1}')
    assert dead.show(letter.id) == letter
    assert dead.requeue(letter.id)
    assert not dead.requeue(letter.id)
    (again,) = basket.take(1)
    assert again.payload == {"n": 1}
    assert again.delivery_info["redelivered"] is False
    again.reject()
    assert dead.drop(dead.list()[0].id)
    assert len(dead) == 0
    assert counts(session) == Counts(ready=0, in_flight=0, scheduled=0, dead=0, oldest_age_s=None)


def test_an_undecodable_entry_is_a_dead_letter_and_the_next_comes(
    connect: Connect, session: StreamsSession, server: redis.Redis
) -> None:
    basket = Basket(connect(), queue("q"))
    level = session.keys.queue("q").levels[2]
    for fields in ({"x": "y"}, {"h": "{", "b": ""}, {"h": "[]", "b": ""}, {"h": "{}", "b": ""}):
        server.xadd(level, fields)  # type: ignore[arg-type]
    send(connect(), "good")
    assert basket.take_bodies(1) == ["good"]
    letters = DeadLetters(store=session.store, queue="q").list()
    assert [letter.reason.partition(":")[0] for letter in letters] == ["undecodable"] * 4
    assert letters[0].headers is None


def test_prefetch_holds_back_and_recovers(connect: Connect, session: StreamsSession) -> None:
    basket = Basket(connect(), queue("q"), prefetch=3)
    send(connect(), *range(5))
    messages = basket.take(3)
    assert basket.is_empty()
    assert counts(session).ready == 2
    messages[0].ack()
    assert basket.take_bodies(1) == [3]
    assert basket.is_empty()


def test_a_consumer_that_decides_for_each_message_is_asked_for_each(
    connect: Connect, session: StreamsSession
) -> None:
    """As Celery's worker_disable_prefetch does it."""
    basket = Basket(connect(), queue("q"))
    basket.channel.qos.can_consume = lambda: len(basket.messages) < 2
    send(connect(), *range(5))
    basket.take(2)
    assert basket.is_empty()
    assert counts(session).in_flight == 2


def test_an_acknowledgement_from_another_thread_wakes_a_full_consumer(connect: Connect) -> None:
    basket = Basket(connect(lease_s=40.0), queue("q"), prefetch=1)  # it would look in 10 s
    send(connect(), 1, 2)
    (message,) = basket.take(1)
    timer = threading.Timer(0.1, message.ack)
    timer.start()
    watch = Stopwatch()
    assert basket.take_bodies(1) == [2]
    assert watch.undisturbed_s() < 5.0
    timer.join()


def test_a_task_that_was_revoked_while_it_waited_has_expired(
    connect: Connect, session: StreamsSession
) -> None:
    """Celery's worker ends it as REVOKED then, and does not run it."""
    send(connect(), 1, 2, headers={"task": "a", "id": "x"})
    assert session.store.revoke(session.keys.queue("q"), "x", b"-x") is Found.MARKED
    second, first = Basket(connect(), queue("q")).take(2)
    assert (first.decode(), second.decode()) == (1, 2)
    assert datetime.fromisoformat(first.headers["expires"]) < datetime.now(UTC)
    assert "expires" not in second.headers


def test_a_direct_exchange_routes_by_its_key(connect: Connect, session: StreamsSession) -> None:
    exchange = kombu.Exchange("direct", type="direct")
    bound = kombu.Queue("bound", exchange, routing_key="key")
    basket = Basket(connect(), bound)
    producer = connect().Producer()
    producer.publish(1, exchange=exchange, routing_key="other")
    producer.publish(2, exchange=exchange, routing_key="key")
    assert basket.take_bodies(1) == [2]
    assert basket.is_empty()


def test_a_topic_exchange_routes_by_pattern_into_every_queue(connect: Connect) -> None:
    exchange = kombu.Exchange("topic", type="topic")
    one = Basket(connect(), kombu.Queue("one", exchange, routing_key="task.#"))
    two = Basket(connect(), kombu.Queue("two", exchange, routing_key="*.failed"))
    producer = connect().Producer(exchange=exchange)
    for key in ("task.sent", "worker.failed", "task.failed"):
        producer.publish(key, routing_key=key)
    assert one.take_bodies(2) == ["task.sent", "task.failed"]
    assert two.take_bodies(2) == ["worker.failed", "task.failed"]


def test_a_fanout_exchange_reaches_every_listener(connect: Connect) -> None:
    exchange = kombu.Exchange("all", type="fanout")
    listeners = [Basket(connect(), kombu.Queue(f"l{n}", exchange)) for n in range(3)]
    tasks = Basket(connect(), kombu.Queue("l3", exchange), queue("q"))
    producer = connect().Producer(exchange=exchange)
    for number in range(3):
        producer.publish(number, routing_key="")
    for basket in (*listeners, tasks):
        messages = basket.take(3)
        assert [message.payload for message in messages] == [0, 1, 2]
        messages[0].requeue()
        assert basket.take_bodies(1) == [0]
    send(connect(), "task")
    assert tasks.take_bodies(1) == ["task"]


@pytest.mark.parametrize("what", HARMS)
def test_a_listener_outlives_what_happens_to_the_stream_of_its_exchange(
    connect: Connect, server: redis.Redis, what: str
) -> None:
    """Celery's pidbox and events are such listeners."""
    exchange = kombu.Exchange("all", type="fanout")
    basket = Basket(connect(), kombu.Queue("l", exchange))
    producer = connect().Producer(exchange=exchange)
    producer.publish("before", routing_key="")
    assert basket.take_bodies(1) == ["before"]
    harm(server, what, "blimp:fanout:all")
    basket.is_empty()  # what the harm put there is no message, but it is read
    if what == "an entry ahead":
        server.delete("blimp:fanout:all")
    producer.publish("after", routing_key="")
    assert basket.take_bodies(1) == ["after"]


def test_a_broadcast_wakes_a_consumer_whose_prefetch_is_full(connect: Connect) -> None:
    exchange = kombu.Exchange("all", type="fanout")
    basket = Basket(connect(), queue("q"), kombu.Queue("l", exchange), prefetch=1)
    send(connect(), "task")
    basket.take(1)
    connect().Producer(exchange=exchange).publish("stop", routing_key="")
    assert basket.take_bodies(1) == ["stop"]


def test_purge_drops_what_waits_and_not_what_is_held(
    connect: Connect, session: StreamsSession
) -> None:
    basket = Basket(connect(), queue("q"), prefetch=2)
    send(connect(), *range(2500))
    send(connect(), "later", headers={"eta": "2100-01-01T00:00:00+00:00"})
    held = basket.take(2)
    held[1].requeue()
    assert connect().channel().queue_purge("q") == 2500
    assert counts(session).in_flight == 1
    held[0].ack()
    assert basket.is_empty()
    assert counts(session).scheduled == 0


def test_a_deleted_queue_leaves_nothing(connect: Connect, server: redis.Redis) -> None:
    exchange = kombu.Exchange("direct", type="direct")
    channel = connect().channel()
    bound = kombu.Queue("q", exchange, routing_key="k").bind(channel)
    bound.declare()
    send(connect(), 1)
    bound.delete()
    left: Any = server.keys("blimp:queue:*")
    assert left == []
    connect().Producer(exchange=exchange).publish(1, routing_key="k")
    left = server.keys("blimp:queue:*")
    assert left == []


def test_declaring_says_how_much_waits(connect: Connect) -> None:
    channel = connect().channel()
    send(connect(), 1, 2, 3)
    assert queue("q").bind(channel).queue_declare(passive=True).message_count == 3
    with pytest.raises(connect().channel_errors, match="no queue 'absent'"):
        channel.queue_declare("absent", passive=True)


def test_an_auto_delete_queue_goes_with_its_consumer(connect: Connect, server: redis.Redis) -> None:
    basket = Basket(
        connect(), kombu.Queue("q", kombu.Exchange(""), routing_key="q", auto_delete=True)
    )
    send(connect(), 1)
    basket.take(1)[0].ack()
    basket.consumer.cancel()
    left: Any = server.keys("blimp:queue:*")
    assert left == []


def test_getting_one_by_one(connect: Connect, session: StreamsSession) -> None:
    channel = connect().channel()
    bound = queue("q").bind(channel)
    assert bound.get() is None
    send(connect(), 1, 2)
    message = bound.get()
    assert message is not None
    assert message.payload == 1
    message.ack()
    assert bound.get(no_ack=True).payload == 2
    assert counts(session).in_flight == 0


def test_what_needs_no_acknowledgement_is_not_held(
    connect: Connect, session: StreamsSession
) -> None:
    basket = Basket(connect(), queue("q"), no_ack=True)
    send(connect(), 1, 2)
    assert basket.take_bodies(2) == [1, 2]
    assert basket.is_empty()
    assert counts(session).in_flight == 0


def test_closing_puts_back_seen_and_unseen_in_their_order(connect: Connect) -> None:
    connection = connect()
    basket = Basket(connection, queue("q"))
    send(connect(), *range(10))
    basket.take(3)  # ten were fetched
    connection.release()
    messages = Basket(connect(), queue("q")).take(10)
    assert [message.payload for message in messages] == list(range(10))
    seen = [message.delivery_info["redelivered"] for message in messages]
    assert seen == [True] * 3 + [False] * 7


def test_a_cancelled_consumer_takes_no_more(connect: Connect, session: StreamsSession) -> None:
    basket = Basket(connect(), queue("q"), queue("other"))
    send(connect(), *range(4))
    basket.take(1)
    basket.consumer.cancel_by_queue("q")
    assert basket.is_empty()
    assert counts(session).ready == 3
    send(connect(), "o", to="other")
    assert basket.take_bodies(1) == ["o"]


def test_an_old_server_is_refused_with_what_is_missing(
    session: StreamsSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.link.check_server()
    monkeypatch.setattr(session.link.client, "info", lambda *_: {"redis_version": "6.2.7"})
    with pytest.raises(ConfigError, match=r"is Redis 6.2.7: .* need Redis >= 7.0 or any Valkey"):
        session.link.check_server()
