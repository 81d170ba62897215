"""A consumer that forks while messages are in flight: `forking_process.py URL`.

Prints what the child did, then what the parent still has in flight.
"""

import contextlib
import os
import sys
import time

import kombu

from tests.queue.celery.kombu_transport.conftest import TRANSPORT, Basket, queue

LEASE_S = 0.4


def take(basket: Basket, seconds: float) -> list[str]:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        with contextlib.suppress(TimeoutError):
            basket.connection.drain_events(timeout=0.05)
    return [message.payload for message in basket.messages]


def main(url: str) -> None:
    connection = kombu.Connection(
        url, transport=TRANSPORT, transport_options={"consumer": "parent", "lease_s": LEASE_S}
    )
    replies = kombu.Queue("replies", kombu.Exchange(""), routing_key="replies", auto_delete=True)
    basket = Basket(connection, queue("q"), replies, prefetch=2)
    connection.Producer().publish("kept", routing_key="replies")
    held = basket.take(2)
    transport = connection.transport
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        connection.Producer().publish("from the child", routing_key="other")
        own = Basket(connection, queue("other"))
        print("child took", take(own, 2 * LEASE_S))
        print("child acked", transport.leases.ack(own.messages[0].delivery_tag))
        print("child is", transport._session.consumer != "parent")
        connection.release()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    print("parent acked", [transport.leases.ack(message.delivery_tag) for message in held])
    basket.channel.qos.forget(held[0].delivery_tag)
    basket.channel.qos.forget(held[1].delivery_tag)
    print("parent took", sorted(take(basket, 2 * LEASE_S)))
    connection.release()


if __name__ == "__main__":
    main(sys.argv[1])
