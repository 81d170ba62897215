"""Messages that may only wait for so long, by their own word or by their queue's."""

import kombu
import pytest

from blimp.queue.brokers.streams.dead_letters import DeadLetters
from blimp.queue.brokers.streams.store import DONE
from blimp.queue.brokers.streams.visibility import StreamsSession
from tests.queue.celery.kombu_transport.conftest import Basket, Connect, counts, queue, send


def test_an_expired_message_is_a_dead_letter(connect: Connect, session: StreamsSession) -> None:
    send(connect(), *range(300), expiration=0)
    send(connect(), "good", expiration=60)
    basket = Basket(connect(), queue("q"))
    assert basket.take_bodies(1) == ["good"]
    assert basket.connection.transport.counts["expired"] == 300
    letters = DeadLetters(store=session.store, queue="q")
    assert len(letters) == 300
    (first,) = letters.list(limit=1)
    assert (first.reason.partition(":")[0], first.deliveries, first.body) == ("expired", 0, "0")
    assert letters.requeue(first.id)  # somebody wants it all the same
    assert basket.take_bodies(1) == [0]


@pytest.mark.parametrize("expires", ["2020-01-01T00:00:00+00:00", "not readable"])
def test_an_expired_task_reaches_a_worker_which_tells_its_caller(
    connect: Connect, session: StreamsSession, expires: str
) -> None:
    """As Celery sends one: its worker writes REVOKED, and ends the chord."""
    send(connect(), 1, expiration=0, headers={"task": "t", "id": "i", "expires": expires})
    basket = Basket(connect(), queue("q"))
    (message,) = basket.take(1)
    assert message.headers["expires"] == expires
    assert counts(session).dead == 0


def test_a_queue_drops_what_is_older_than_it_allows(
    connect: Connect, session: StreamsSession
) -> None:
    strict = kombu.Queue("q", kombu.Exchange(""), routing_key="q", message_ttl=0.0)
    strict.bind(connect().channel()).declare()
    send(connect(), 1, 2)
    basket = Basket(connect(), queue("q"))
    assert basket.is_empty()
    assert counts(session) == counts(session, "never used")
    kind = kombu.Queue("q", kombu.Exchange(""), routing_key="q", message_ttl=60.0)
    kind.bind(connect().channel()).declare()
    send(connect(), 3)
    assert basket.take_bodies(1) == [3]


def test_a_queue_that_nobody_empties_does_not_grow_past_its_time(
    connect: Connect, session: StreamsSession
) -> None:
    """A consumer of events is killed or stopped: what it does not take is dropped in time."""
    exchange = kombu.Exchange("events", type="topic")
    queue = kombu.Queue("q", exchange, routing_key="#", message_ttl=60.0)
    queue.bind(connect().channel()).declare()
    level = session.keys.queue("q").levels[2]
    for number in range(1, 501):
        session.link.client.xadd(level, {"h": "{}", "b": "", "n": number}, id=f"{number}-1")
    connect().Producer().publish("new", exchange=exchange, routing_key="task.sent")
    assert session.link.client.xlen(level) <= 101  # whole nodes of the stream go
    assert Basket(connect(), queue).take_bodies(1) == ["new"]


def test_a_message_in_flight_does_not_expire(connect: Connect, session: StreamsSession) -> None:
    """It was taken in time. If it were dropped now, its completion would be lost."""
    keys = session.keys.queue("q")
    session.store.begin([keys], known=[])
    send(connect(), *range(150))
    claims = [claim for claim, _ in session.store.take([keys], room=150).deliveries]
    assert len(claims) == 150
    strict = kombu.Queue("q", kombu.Exchange(""), routing_key="q", message_ttl=0.0)
    strict.bind(connect().channel()).declare()
    send(connect(), "new")
    assert set(session.store.renew(claims)) == {DONE}
    assert set(session.store.ack(claims[1:])) == {DONE}
    session.link.client.xclaim(
        claims[0].stream, "workers", "dead", 0, [claims[0].id], idle=3_600_000, justid=True
    )
    send(connect(), *range(150))
    assert counts(session).in_flight == 0  # nobody has it: it is dropped as the others are


@pytest.mark.parametrize("ttl_s", [1e10, 1e14])
def test_a_time_longer_than_there_is_a_clock_drops_nothing(connect: Connect, ttl_s: float) -> None:
    long = kombu.Queue("q", kombu.Exchange(""), routing_key="q", message_ttl=ttl_s)
    long.bind(connect().channel()).declare()
    send(connect(), 1)
    assert Basket(connect(), queue("q")).take_bodies(1) == [1]


@pytest.mark.parametrize("expiration", ["soon", "", None, "1e3"])
def test_an_unreadable_expiration_does_not_hide_a_message(
    connect: Connect, expiration: object
) -> None:
    channel = connect().channel()
    message = channel.prepare_message("1", content_type="application/json")
    message["properties"]["expiration"] = expiration
    channel.basic_publish(message, "", "q")
    assert Basket(connect(), queue("q"), accept=["json"]).take_bodies(1) == [1]
