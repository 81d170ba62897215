"""Under kombu's event loop, as in Celery's worker."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import kombu
import pytest
from kombu.asynchronous import Hub

from blimp.queue.brokers.streams.visibility import StreamsSession
from tests.broker import EmbeddedBroker
from tests.queue.conftest import DEADLINE_S
from tests.queue.kombu_transport.conftest import (
    TRANSPORT,
    Basket,
    Connect,
    counts,
    queue,
    send,
    streams_url,
)
from tests.signals import stop_process
from tests.stopwatch import Stopwatch


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


def test_a_large_backlog_needs_no_waiting(connect: Connect, hub: Any) -> None:
    send(connect(), *range(500))
    basket = consume(hub, connect(), queue("q"))
    watch = Stopwatch()
    turn(hub, lambda: len(basket.messages) == 500)
    assert watch.undisturbed_s() < 5.0  # each of the batches would wait for a second


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


def test_how_early_is_an_option(connect: Connect, hub: Any, session: StreamsSession) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=30)
    send(connect(), "later", headers={"eta": soon.isoformat()})
    basket = consume(hub, connect(eta_lead_s=0), queue("q"))
    send(connect(), "now")
    turn(hub, lambda: len(basket.messages) == 1)
    assert basket.messages[0].payload == "now"
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
