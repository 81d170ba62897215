"""Several URLs in one kombu connection, and this transport for each of them."""

from __future__ import annotations

import weakref
from typing import Any

from blimp.queue.redis.urls import redis_url


def keep_transport(connection: Any) -> None:
    """Have `connection` keep its transport when it switches to another URL.

    kombu takes the transport of every URL but the first from its scheme, and would go on with
    its own Redis transport, whose guarantees are others. It makes a transport before it
    connects, hence before it first looks for another URL.
    """
    known = weakref.ref(connection)  # a connection that nobody needs any more must go
    transport = connection.transport_cls

    def switch(url: str) -> None:
        connection = known()
        if connection is not None:
            connection.close()
            connection.declared_entities.clear()
            connection._closed = False
            given = {"hostname": redis_url(url), "transport": transport}
            connection._init_params(**(connection._initial_params | given))

    connection.switch = switch
