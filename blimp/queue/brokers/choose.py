"""Which kombu transport carries the messages, what it lacks, and how it is connected to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import ConfigError
from blimp.queue.redis.urls import SCHEMES as REDIS_SCHEMES
from blimp.queue.redis.urls import hide_password, redis_url

if TYPE_CHECKING:
    from kombu import Connection

    from blimp.queue.app import TaskApp

STREAMS = "streams"  # blimp.queue.kombu_transport: loses nothing
AMQP = "amqp"
MEMORY = "memory"
DEFAULT = STREAMS  # on a Redis server
POLL_S = 0.05  # how often transports without a socket are looked at
HEARTBEAT_S = 5


class Carrier(msgspec.Struct, frozen=True, kw_only=True):
    """One transport: what it is, the URLs it takes, and what it lacks: see guarantees.py."""

    title: str
    schemes: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


CARRIERS = {
    STREAMS: Carrier(title="streams", schemes=REDIS_SCHEMES),
    AMQP: Carrier(
        title="RabbitMQ",
        schemes=("amqp", "amqps", "pyamqp"),
        lacks=("leases", "fence", "names", "one_step", "eta", "dead_queue", "broadcast"),
    ),
    MEMORY: Carrier(
        title="this process",
        schemes=("memory",),
        lacks=("memory", "names", "one_step", "eta", "priorities", "dead"),
    ),
}
_ALIASES = {"pyamqp": AMQP, "blimp.queue.kombu_transport:Transport": STREAMS}


def carrier_of(transport: str) -> Carrier:
    return CARRIERS[transport]


def choose_transport(transport: str | None, urls: str | Sequence[str]) -> str:
    """Return the transport's name; for None what the scheme of the first URL asks for.

    Raises ConfigError for a name that is none, or a URL that is another transport's.
    """
    urls = (urls,) if isinstance(urls, str) else urls
    name = _default(urls[0]) if transport is None else _ALIASES.get(transport, transport)
    if name not in CARRIERS:
        names = tuple(CARRIERS)
        raise ConfigError(f"transport {transport!r}: must be one of {names}")
    schemes = carrier_of(name).schemes
    for url in urls:
        if schemes and url.partition("://")[0] not in schemes:
            raise ConfigError(
                f"broker URL {hide_password(url)!r}: transport {name!r} takes {schemes}"
            )
        if name == AMQP:
            from blimp.queue.brokers.rabbitmq import part_tls

            part_tls(url)  # refuses what it does not know
    return name


def _default(url: str) -> str:
    scheme = url.partition("://")[0]
    if scheme in REDIS_SCHEMES:
        return DEFAULT
    for name, known in CARRIERS.items():
        if scheme in known.schemes:
            return name
    schemes = tuple(dict.fromkeys(s for c in CARRIERS.values() for s in c.schemes))
    raise ConfigError(f"broker URL {hide_password(url)!r}: its scheme is none of {schemes}")


def is_on_redis(transport: str) -> bool:
    """Say whether the broker is a Redis server, which can do more than carry messages."""
    return transport == STREAMS


def longest_wait_s(app: TaskApp) -> float:
    """Return how long a consumer may block for messages, if nothing wakes it before.

    Longest where nothing else is to be looked at: no other broker, and no heartbeats.
    """
    return 5.0 if app.transport == STREAMS and len(app.brokers) == 1 else 1.0


def streams_options(*, timeout_s: float) -> dict[str, Any]:
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        # kombu would wait for two seconds, and try again; whoever asks knows better.
        "max_retries": 0,
        "interval_start": 0,
        "interval_step": 0,
        "interval_max": 0,
    }


def open_connection(
    url: str, *, transport: str, timeout_s: float, beats: bool = False, **options: Any
) -> Connection:
    """Return a kombu connection, not connected yet; no call on a dead link hangs on it.

    beats: the broker ends it where it hears nothing for twice HEARTBEAT_S, on AMQP.
    """
    import kombu

    if transport == STREAMS:
        # kombu reads what is before a "+" as a transport of its own: unix://, not redis+socket://.
        return kombu.Connection(
            redis_url(url),
            transport="blimp.queue.kombu_transport:Transport",
            transport_options=streams_options(timeout_s=timeout_s) | options,
        )
    if transport == AMQP:
        from blimp.queue.brokers.rabbitmq import connection_options, part_tls

        plain, tls = part_tls(url)
        return kombu.Connection(
            plain,
            transport="pyamqp",  # and not librabbitmq, which kombu takes where it is installed
            ssl=tls or False,
            connect_timeout=timeout_s,
            heartbeat=HEARTBEAT_S if beats else 0,
            transport_options=connection_options(timeout_s=timeout_s) | options,
        )
    if url.endswith("://"):
        url += "localhost"  # which kombu would take, and warn
    options = {"polling_interval": POLL_S} | options
    return kombu.Connection(url, connect_timeout=timeout_s, transport_options=options)


def connect(connection: Connection) -> None:
    """Connect, or raise at once: `Connection.connect` waits for two seconds and tries again."""
    connection.ensure_connection(max_retries=0)
