"""Which kombu transport carries the messages, and how a connection to it is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError
from blimp.tasks.urls import kombu_url, redis_url, transport_options

if TYPE_CHECKING:
    from kombu import Connection

STREAMS = "streams"  # blimp.tasks.transport: loses nothing
STOCK = "redis"  # kombu's own: loses what it has popped and not recorded when it is killed
TRANSPORTS = (STREAMS, STOCK)
DEFAULT = STREAMS


def check_transport(transport: str | None) -> str:
    """Return the transport's name, the default for None. Raises ConfigError for another."""
    if transport is None:
        return DEFAULT
    if transport not in TRANSPORTS:
        raise ConfigError(f"transport {transport!r}: must be one of {TRANSPORTS}")
    return transport


def streams_options(*, timeout_s: float) -> dict[str, Any]:
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
    }


def open_connection(url: str, *, transport: str, timeout_s: float, **options: Any) -> Connection:
    """Return a kombu connection, not connected yet; no call on a dead link hangs on it."""
    import kombu

    if transport == STOCK:
        stock = transport_options(timeout_s=timeout_s) | options
        return kombu.Connection(kombu_url(url), transport_options=stock)
    # kombu reads the part before a "+" as a transport of its own: unix://, not redis+socket://.
    return kombu.Connection(
        redis_url(url),
        transport="blimp.tasks.transport:Transport",
        transport_options=streams_options(timeout_s=timeout_s) | options,
    )
