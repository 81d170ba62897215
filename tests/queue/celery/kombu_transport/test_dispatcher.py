"""Under kombu's event loop, as in Celery's worker."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import kombu
import pytest
from kombu.asynchronous import Hub

from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.celery.kombu_transport.dispatcher import Dispatcher
from tests.broker import EmbeddedBroker
from tests.queue.celery.kombu_transport.conftest import (
    TRANSPORT,
    Basket,
    Connect,
    counts,
    envelope,
    queue,
    send,
    streams_url,
)
from tests.queue.conftest import DEADLINE_S
from tests.signals import stop_process


@pytest.fixture
def hub() -> Iterator[Any]:
    hub = Hub()
    yield hub
    hub.close()


def turn(hub: Any, until: Callable[[], bool]) -> None:
    """Run the loop until something is so."""
    loop, deadline_s = hub.create_loop(), time.monotonic() + DEADLINE_S
    while not until():
        assert time.monotonic() < deadline_s, "it does not come to be"
        next(loop)


def consume(hub: Any, connection: kombu.Connection, *queues: kombu.Queue, **options: Any) -> Basket:
    basket = Basket(connection, *queues, **options)
    connection.register_with_event_loop(hub)
    return basket


def test_the_loop_delivers_holds_back_and_recovers(
    connect: Connect, hub: Any, session: StreamsSession
) -> None:
    exchange = kombu.Exchange("all", type="fanout")
    basket = consume(hub, connect(), queue("q"), kombu.Queue("l", exchange), prefetch=3)
    send(connect(), *range(5))
    turn(hub, lambda: len(basket.messages) == 3)
    assert counts(session).in_flight == 3
    connect().Producer(exchange=exchange).publish("stop", routing_key="")
    turn(hub, lambda: len(basket.messages) == 4)
    assert basket.messages[-1].payload == "stop"
    for message in basket.messages[:3]:
        message.ack()
    turn(hub, lambda: len(basket.messages) == 6)
    assert [message.payload for message in basket.messages[4:]] == [3, 4]


def test_only_what_is_still_held_is_given_and_what_nobody_consumes_goes_back(
    session: StreamsSession,
) -> None:
    keys = session.keys.queue("q")
    session.store.begin([keys], known=())
    for _ in range(4):
        session.store.publish([(keys, False)], envelope())
    claims = [claim for claim, _ in session.store.take([keys], room=4).deliveries]
    session.leases.hold(claims[:3])  # the last was lost before anyone saw it
    given: list[str] = []
    acked: list[str] = []
    found: Counter[str] = Counter()
    nobody: Any = ()
    dispatcher = Dispatcher(
        session=session,
        listeners=nobody,
        channels=[],
        callbacks=dict.fromkeys("qrs", lambda one: given.append(one["properties"]["delivery_tag"])),
        counts=found,
    )
    dispatcher.consumers = {
        name: SimpleNamespace(is_no_ack=lambda name: name == "r") for name in "qr"
    }
    session.leases.ack = acked.append  # type: ignore[method-assign,assignment]
    first, second, third, lost = (claim.tag for claim in claims)
    for name, tag in (("q", first), ("q", lost), ("s", third), ("r", second)):
        dispatcher.ready.append((name, {"properties": {"delivery_tag": tag}}))
    assert [dispatcher.deliver() for _ in range(3)] == [True, True, False]
    assert (given, acked, found) == ([first, second], [second], {"lost_unseen": 1})
    assert third not in session.leases
    assert [claim.fence for claim, _ in session.store.take([keys], room=4).deliveries] == [1]
    dispatcher.reader.close()


def test_what_is_due_soon_is_given_early(
    connect: Connect, hub: Any, session: StreamsSession
) -> None:
    now = datetime.now(UTC)
    send(connect(), "hour", headers={"eta": (now + timedelta(hours=1)).isoformat()})
    send(connect(), "soon", headers={"eta": (now + timedelta(seconds=30)).isoformat()})
    basket = consume(hub, connect(), queue("q"))
    turn(hub, lambda: len(basket.messages) == 1)
    assert basket.messages[0].payload == "soon"
    assert counts(session).scheduled == 1


def test_closing_leaves_nothing_in_the_loop(connect: Connect, hub: Any) -> None:
    connection = connect()
    basket = consume(hub, connection, queue("q"))
    send(connect(), 1)
    turn(hub, lambda: len(basket.messages) == 1)
    assert hub.on_tick
    connection.release()
    assert not hub.on_tick
    assert set(hub.readers) <= {hub._waker.fileno()}


def test_a_lost_connection_is_raised(own_broker: EmbeddedBroker, hub: Any) -> None:
    with kombu.Connection(streams_url(own_broker), transport=TRANSPORT) as connection:
        basket = consume(hub, connection, queue("q"))
        send(connection, 1)
        turn(hub, lambda: len(basket.messages) == 1)
        own_broker.stop()
        with pytest.raises(connection.connection_errors):
            turn(hub, lambda: False)
        own_broker.start()
        connection.close()
        connection.ensure_connection()
        again = consume(hub, connection, queue("q"))
        turn(hub, lambda: len(again.messages) == 1)


def test_a_server_that_stands_still_is_noticed(own_broker: EmbeddedBroker, hub: Any) -> None:
    options = {"socket_timeout": 0.3, "lease_s": 0.6}
    with kombu.Connection(
        streams_url(own_broker), transport=TRANSPORT, transport_options=options
    ) as connection:
        consume(hub, connection, queue("q"))
        connection.transport._event_loop.turn()
        stop_process(own_broker.pid)
        try:
            with pytest.raises(connection.connection_errors):
                turn(hub, lambda: False)
        finally:
            os.kill(own_broker.pid, signal.SIGCONT)
