"""A program that reconnects takes what it had in flight at once, whatever the lease."""

import contextlib
import os
import time
from typing import Any

import kombu
import pytest

from blimp.queue.celery.kombu_transport import Transport
from tests.broker import EmbeddedBroker
from tests.queue.celery.kombu_transport.conftest import (
    TRANSPORT,
    Basket,
    Connect,
    queue,
    send,
    streams_url,
)

LONG_S = 60.0  # a lease that no test waits for


def connected(broker: EmbeddedBroker, **options: Any) -> kombu.Connection:
    return kombu.Connection(
        streams_url(broker), transport=TRANSPORT, transport_options={"lease_s": LONG_S} | options
    )


@pytest.mark.parametrize("again", ["same connection", "new connection", "clone"])
def test_after_a_restart_of_the_broker(own_broker: EmbeddedBroker, again: str) -> None:
    """Celery's worker makes a new connection; kombu's ConsumerMixin uses its own again."""
    with connected(own_broker) as connection:
        basket = Basket(connection, queue("q"), queue("other"), prefetch=2)
        send(connection, 1, 2, 3)
        basket.take(2)
        own_broker.stop()
        with pytest.raises(connection.connection_errors):
            send(connection, 0)
        spare = connection.clone()
        connection.close()
        own_broker.start()
        new = connected(own_broker)
        follower = {"same connection": connection, "new connection": new, "clone": spare}[again]
        follower.connect()
        with contextlib.closing(connected(own_broker)) as publisher:
            send(publisher, 4)  # one that does not consume takes no name
        began_s = time.monotonic()
        messages = Basket(follower, queue("q")).take(4)
        assert time.monotonic() - began_s < LONG_S / 4
        assert [one.payload for one in messages] == [1, 2, 3, 4]
        assert [one.delivery_info["redelivered"] for one in messages] == [True, True, False, False]
        for message in messages:
            message.ack()
        follower.release()


def test_a_name_is_given_once_and_for_its_queue(connect: Connect) -> None:
    transports = [connect().transport for _ in range(2)]
    own, left = [one.store.consumer for one in transports], Transport.left_names

    def taken(number: int, queue: str) -> str:
        transports[number]._take_left_name(queue)
        return str(transports[number].store.consumer)

    broker = transports[0]._broker
    left["one"] = os.getpid(), broker, frozenset(("a", "b"))
    left["elsewhere"] = os.getpid(), "there", frozenset("c")
    left["parent"] = os.getppid(), broker, frozenset("c")
    assert taken(0, "c") == own[0]
    assert taken(0, "b") == "one"
    assert taken(1, "a") == own[1]
    del left["elsewhere"], left["parent"]
