"""What a kombu program may expect, through kombu's public API, on a real server."""

import contextlib
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import kombu
import pytest
import redis

from blimp.errors import ConfigError
from blimp.queue.brokers.base import Found
from blimp.queue.brokers.streams.store import DONE, LOST, Counts, DeadLetters
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.redis.client import Link
from tests.faults.harm import HARMS, harm
from tests.queue.brokers.streams.completions import complete
from tests.queue.conftest import wait_until
from tests.queue.kombu_transport.conftest import (
    Basket,
    Connect,
    counts,
    envelope,
    put_raw,
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


def test_a_compressed_message_is_read(connect: Connect) -> None:
    basket = Basket(connect(), queue("q"))
    send(connect(), {"n": "x" * 5000}, compression="zlib")
    assert basket.take_bodies(1) == [{"n": "x" * 5000}]


def test_what_was_sent_before_anyone_consumed_comes_in_order(connect: Connect) -> None:
    send(connect(), *range(100))
    assert Basket(connect(), queue("q")).take_bodies(100) == list(range(100))


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


def test_lazy_acknowledgements_reach_the_server(connect: Connect, session: StreamsSession) -> None:
    basket = Basket(connect(lazy_ack=True), queue("q"))
    send(connect(), *range(5))
    for message in basket.take(5):
        message.ack()
    assert basket.is_empty()
    assert counts(session).in_flight == 0


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


def test_a_requeued_message_wakes_another_consumer(connect: Connect) -> None:
    # By itself the second would look again in 10 s.
    first, second = (Basket(connect(lease_s=40.0), queue("q"), prefetch=1) for _ in range(2))
    send(connect(), 1)
    (message,) = first.take(1)
    taken_s: list[float] = []

    def wait() -> None:
        second.take(1)
        taken_s.append(time.monotonic())

    waiter = threading.Thread(target=wait)
    waiter.start()
    transport = second.connection.transport
    wait_until(lambda: transport._dispatcher.reader.messages.asked, "not blocked")
    watch = Stopwatch()
    message.requeue()
    waiter.join()
    assert watch.undisturbed_s(taken_s[0]) < 5.0


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


def test_delivered_too_often_it_is_a_dead_letter(connect: Connect, session: StreamsSession) -> None:
    basket = Basket(connect(max_deliveries=3), queue("q"), prefetch=1)
    send(connect(), "poison", "good")
    for count in (1, 2, 3):
        (message,) = basket.take(1)
        assert message.properties["delivery_count"] == count
        message.requeue()
    assert basket.take_bodies(1) == ["good"]
    (letter,) = DeadLetters(store=session.store, queue="q").list()
    assert letter.reason == "delivered 3 times without being completed"


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


def test_priorities_are_served_in_order(connect: Connect) -> None:
    producer = connect()
    for priority in (9, 6, 0, 3, 1):
        send(producer, priority, priority=priority)
    basket = Basket(connect(), queue("q"), prefetch=1)
    came = []
    for _ in range(5):
        (message,) = basket.take(1)
        came.append(message.payload)
        message.ack()
    assert came == [1, 3, 6, 0, 9]


def test_an_eta_waits_on_the_server_and_comes_when_it_is_due(
    connect: Connect, session: StreamsSession
) -> None:
    basket = Basket(connect(lease_s=40.0), queue("q"), prefetch=1)  # it would look in 10 s
    due = datetime.now(UTC) + timedelta(seconds=0.4)
    send(connect(), "later", headers={"eta": due.isoformat()})
    send(connect(), "much later", headers={"eta": (due + timedelta(hours=1)).isoformat()})
    assert counts(session).scheduled == 2
    watch = Stopwatch()
    (message,) = basket.take(1)
    assert message.payload == "later"
    assert datetime.now(UTC) >= due
    assert watch.undisturbed_s() < 5.0
    assert counts(session).scheduled == 1


def test_an_earlier_eta_wakes_who_waits_for_a_later_one(connect: Connect) -> None:
    basket = Basket(connect(lease_s=40.0), queue("q"))  # it would look again in 10 s
    timer = threading.Timer(
        0.1,
        lambda: send(
            connect(),
            "soon",
            headers={"eta": (datetime.now(UTC) + timedelta(seconds=0.2)).isoformat()},
        ),
    )
    timer.start()
    watch = Stopwatch()
    assert basket.take_bodies(1) == ["soon"]
    assert watch.undisturbed_s() < 5.0
    timer.join()


def test_an_unreadable_eta_does_not_hide_a_message(connect: Connect) -> None:
    basket = Basket(connect(), queue("q"))
    send(connect(), 1, headers={"eta": "soon"})
    assert basket.take_bodies(1) == [1]


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


def test_a_binding_made_elsewhere_counts_for_the_next_message(connect: Connect) -> None:
    exchange = kombu.Exchange("topic", type="topic")
    producer = connect().Producer(exchange=exchange)
    producer.publish("nobody", routing_key="a")  # it knows the bindings now: none
    basket = Basket(connect(), kombu.Queue("q", exchange, routing_key="a"))
    producer.publish("somebody", routing_key="a")
    assert basket.take_bodies(1) == ["somebody"]
    kombu.Queue("q", exchange, routing_key="a").bind(basket.channel).unbind_from(exchange, "a")
    producer.publish("nobody", routing_key="a")
    assert basket.is_empty()


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


def test_a_paused_queue_gives_nothing_but_emergencies(
    connect: Connect, session: StreamsSession
) -> None:
    basket = Basket(connect(), queue("q"))
    assert basket.is_empty()  # and waits on the server
    keys = session.keys.queue("q")
    assert session.store.pause(keys)
    assert basket.is_empty()
    send(connect(), "later")
    assert basket.is_empty()
    assert basket.channel.basic_get("q") is None
    send(connect(), "stop", priority=1)
    assert basket.take_bodies(1) == ["stop"]
    assert session.store.pause(keys, resume=True)
    assert basket.take_bodies(1) == ["later"]


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


def test_a_queue_that_expired_gets_nothing_and_is_unbound(
    connect: Connect, server: redis.Redis, session: StreamsSession
) -> None:
    exchange = kombu.Exchange("replies", type="direct")
    connection = connect()
    kombu.Queue("r", exchange, routing_key="r", expires=1000.0).bind(connection.channel()).declare()
    producer = connect().Producer(exchange=exchange)
    producer.publish(1, routing_key="r")
    assert counts(session, "r").ready == 1
    server.delete(*session.keys.queue("r").all())  # as the server does when it expires
    producer.publish(2, routing_key="r")
    assert counts(session, "r").ready == 0
    connection.transport.exchanges.forget("replies")
    assert connection.transport.exchanges.table("replies").rows == ()


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


def test_simple_queues_work(connect: Connect) -> None:
    with connect().SimpleQueue("simple") as simple:
        simple.put({"n": 1})
        message = simple.get(timeout=2)
        assert message.payload == {"n": 1}
        message.ack()
        with pytest.raises(simple.Empty):
            simple.get(timeout=0.01)


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


def test_two_channels_of_one_connection(connect: Connect) -> None:
    connection = connect()
    one, two = Basket(connection, queue("a"), prefetch=1), Basket(connection, queue("b"))
    send(connect(), 1, 2, to="a")
    send(connect(), 3, to="b")
    one.take(1)
    if not two.messages:
        two.take(1)
    assert [message.payload for message in (*one.messages, *two.messages)] == [1, 3]


def test_a_lost_lease_is_reported_and_its_acknowledgement_refused(
    connect: Connect, session: StreamsSession
) -> None:
    lost: list[str] = []
    basket = Basket(connect(on_lease_lost=lost.append), queue("q"))
    send(connect(), 1)
    (message,) = basket.take(1)
    leases = basket.connection.transport.leases
    # Another consumer takes it, as it would after the lease.
    session.link.client.xclaim(
        session.keys.queue("q").levels[2], "workers", "thief", 0, [leases.claims()[0].id]
    )
    assert leases.ack(message.delivery_tag) == LOST
    assert lost == [message.delivery_tag]
    assert leases.ack(message.delivery_tag) == LOST
    assert counts(session).in_flight == 1


def test_a_lost_lease_is_found_by_the_renewal(connect: Connect, session: StreamsSession) -> None:
    lost = threading.Event()
    basket = Basket(connect(on_lease_lost=lambda _: lost.set(), lease_s=0.4), queue("q"))
    send(connect(), 1)
    basket.take(1)
    claim = basket.connection.transport.leases.claims()[0]
    session.link.client.xclaim(claim.stream, "workers", "thief", 0, [claim.id])
    assert lost.wait(5.0)


def test_a_long_task_keeps_its_message(connect: Connect) -> None:
    """Held for ten leases by a consumer that does not read, while another looks for it."""
    first = Basket(connect(lease_s=0.4), queue("q"), prefetch=1)
    second = Basket(connect(lease_s=0.4), queue("q"))
    send(connect(), 1)
    (message,) = first.take(1)
    assert second.is_empty(4.0)
    assert first.connection.transport.leases.ack(message.delivery_tag) == 1


def test_the_emptied_server_is_consumed_from_again(connect: Connect, server: redis.Redis) -> None:
    basket = Basket(connect(), queue("q"))
    assert basket.is_empty()
    server.flushall()
    send(connect(), 1)
    assert basket.take_bodies(1) == [1]


def test_idle_it_sleeps(connect: Connect, server: redis.Redis) -> None:
    basket = Basket(connect(), queue("q"), kombu.Queue("l", kombu.Exchange("f", type="fanout")))
    assert basket.is_empty()
    info: Any = server.info("stats")
    before, used_s = info["total_commands_processed"], time.process_time()
    assert basket.is_empty(2.0)
    info = server.info("stats")
    # Each look runs some 20 commands inside its script: every other wake-up is a look.
    assert info["total_commands_processed"] - before < 200
    assert time.process_time() - used_s < 0.05


def test_an_old_server_is_refused_with_what_is_missing(
    session: StreamsSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for found, text in (
        ({"redis_version": "6.2.7"}, r"is Redis 6.2.7: .* need Valkey >= 8.0 or Redis >= 7.0"),
        (
            {"server_name": "valkey", "valkey_version": "7.2.5", "redis_version": "7.2.4"},
            "is Valkey 7.2.5",
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(session.link.client, "info", lambda *_, found=found: found)
            with pytest.raises(ConfigError, match=text):
                session.link.check_server()
    session.link.check_server()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h:1/2", ("h", 1, 2)),
        ("valkey://h/3", ("h", 6379, 3)),
        ("rediss://u:p@h", ("h", 6379, 0)),
    ],
)
def test_urls(url: str, expected: tuple[str, int, int]) -> None:
    link = Link(url=url, options={})
    given = link.client.connection_pool.connection_kwargs
    assert (given["host"], given.get("port", 6379), given.get("db", 0)) == expected
    assert ("ssl" in str(link.client.connection_pool.connection_class).lower()) == (
        url.startswith("rediss")
    )
    link.close()


def test_a_sentinel_url_names_its_master() -> None:
    link = Link(url="sentinel://:secret@a:1,b/5?master_name=m", options={})
    pool: Any = link.client.connection_pool
    nodes = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"]) for one in nodes] == [("a", 1), ("b", 26379)]
    assert (pool.service_name, pool.connection_kwargs["db"]) == ("m", 5)
    with pytest.raises(ConfigError, match="a sentinel needs `master_name`"):
        Link(url="sentinel://a:1", options={})
    with pytest.raises(ConfigError, match="scheme must be one of"):
        Link(url="amqp://a:1", options={})


def test_an_older_delivery_of_the_same_consumer_is_refused(session: StreamsSession) -> None:
    """The fence counts, not the consumer alone: its own late thread is a zombie."""
    keys = session.keys.queue("q")
    session.store.make_group(keys)
    session.store.publish([(keys, False)], envelope())
    ((old, _),) = session.store.take([keys], room=1).deliveries
    assert session.store.release([old]) == [DONE]
    ((new, _),) = session.store.take([keys], room=1).deliveries
    assert (old.fence, new.fence) == (1, 2)
    assert session.store.renew([old]) == session.store.ack([old]) == [LOST]
    assert session.store.dead_letter(old, "late") == LOST
    late = {"claim": old, "result": "celery-task-meta-x", "record": b"{}", "keep_s": 9}
    assert complete(session.store, late) == [LOST]
    assert session.link.client.exists("celery-task-meta-x") == 0
    assert session.store.ack([new]) == [DONE]


def test_a_message_that_may_kill_its_consumer_is_delivered_alone(streams: str) -> None:
    """One of the messages in flight kills its consumer: only that one is a dead letter."""
    with contextlib.closing(StreamsSession(url=streams, options={"consumer": "a"})) as session:
        queue = session.keys.queue("q")
        for number in range(17):
            put_raw(session, str(number).encode())
        for _ in range(20):
            session.store.begin([queue], known=())
            assert session.store.take([queue], room=17).deliveries
        session.store.begin([queue], known=())
        dead = DeadLetters(store=session.store, queue="q")
        completed = 0
        while taken := session.store.take([queue], room=17).deliveries:
            assert len(taken) == 1
            completed += 1
            assert session.store.ack([claim for claim, _ in taken]) == [DONE]
        assert (len(dead), completed) == (1, 16)
