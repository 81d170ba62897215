"""A kombu transport on Valkey or Redis streams that cannot lose a message.

    kombu.Connection("redis://localhost/0", transport="blimp.queue.kombu_transport:Transport")

The server delivers a message and records its consumer in one step. A thread of the consumer
renews the lease. If the consumer dies, others take its messages after `lease_s`; a consumer of
the same name takes them at once. Each delivery has a fence: after a lost lease, its
acknowledgement is refused. Messages, streams and scripts are those of blimp/queue/brokers/streams.
See docs/celery.md and docs/decisions/0010-streams-transport.md. Tested by test_handlers_change.py.
"""

from __future__ import annotations

from typing import Any

import kombu

from blimp.queue.celery.kombu_transport.transport import Transport
from blimp.queue.redis.urls import redis_url

__all__ = ["Transport", "connect"]


def connect(url: str, *, timeout_s: float, **options: Any) -> kombu.Connection:
    """Return a connection, not connected yet; no call on a dead link hangs on it.

    options: of the transport.
    """
    waits = dict.fromkeys(("max_retries", "interval_start", "interval_step", "interval_max"), 0)
    timeouts = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    # kombu takes what is before a "+" as a transport's name: unix://, not redis+socket://.
    return kombu.Connection(
        redis_url(url),
        transport=Transport,
        transport_options=waits | timeouts | options,  # each retry is left to its caller
    )
