"""Which kombu transport carries the messages, what it lacks, and how it is connected to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import ConfigError
from blimp.tasks.broker.urls import SCHEMES as REDIS_SCHEMES
from blimp.tasks.broker.urls import hide_password, kombu_url, redis_url, transport_options

if TYPE_CHECKING:
    from kombu import Connection

    from blimp.tasks.app import TaskApp

STREAMS = "streams"  # blimp.tasks.transport: loses nothing
STOCK = "redis"
AMQP = "amqp"
MEMORY = "memory"
DEFAULT = STREAMS  # on a Redis server
POLL_S = 0.05  # how often transports without a socket are looked at
HEARTBEAT_S = 5

_STOCK_SCHEMES = tuple(scheme for scheme in REDIS_SCHEMES if scheme != "sentinel")


class Carrier(msgspec.Struct, frozen=True, kw_only=True):
    """One transport: what it is, the URLs it takes, and what it lacks: see guarantees.py."""

    title: str
    schemes: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


CARRIERS = {
    STREAMS: Carrier(title="streams", schemes=REDIS_SCHEMES),
    STOCK: Carrier(
        title="kombu's own",
        schemes=_STOCK_SCHEMES,
        lacks=("taking", "name", "leases", "one_step", "eta", "dead", "broadcast"),
    ),
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
_OTHER = Carrier(
    title="kombu's, not known here",
    lacks=("untested", "leases", "fence", "names", "one_step", "eta", "dead", "broadcast"),
)
_ALIASES = {"pyamqp": AMQP, "blimp.tasks.transport:Transport": STREAMS}


def carrier_of(transport: str) -> Carrier:
    return CARRIERS.get(transport, _OTHER)


def choose_transport(transport: str | None, urls: str | Sequence[str]) -> str:
    """Return the transport's name; for None what the scheme of the first URL asks for.

    Raises ConfigError for a name that is none, or a URL that is another transport's.
    """
    urls = (urls,) if isinstance(urls, str) else urls
    name = _default(urls[0]) if transport is None else _ALIASES.get(transport, transport)
    if name not in CARRIERS and ":" not in name:
        names = tuple(CARRIERS)
        raise ConfigError(f"transport {transport!r}: must be one of {names}, or 'module:Class'")
    if ":" in name:
        _check_class(name)
    schemes = carrier_of(name).schemes
    for url in urls:
        if schemes and url.partition("://")[0] not in schemes:
            raise ConfigError(
                f"broker URL {hide_password(url)!r}: transport {name!r} takes {schemes}"
            )
        if name == AMQP:
            from blimp.tasks.broker.amqp_url import part_tls

            part_tls(url)  # refuses what it does not know
    return name


def _check_class(name: str) -> None:
    """Raise ConfigError where `module:Class` is not there: it would be looked for for ever."""
    from importlib import import_module

    module_name, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"transport {name!r}: {error}") from None
    if not isinstance(found, type):
        raise ConfigError(f"transport {name!r}: {attribute} is no class")


def _default(url: str) -> str:
    scheme = url.partition("://")[0]
    if scheme in REDIS_SCHEMES:
        return DEFAULT
    for name, known in CARRIERS.items():
        if scheme in known.schemes:
            return name
    schemes = tuple(dict.fromkeys(s for c in CARRIERS.values() for s in c.schemes))
    raise ConfigError(
        f"broker URL {hide_password(url)!r}: its scheme is none of {schemes}; "
        "for another, give transport='module:Class'"
    )


def is_on_redis(transport: str) -> bool:
    """Say whether the broker is a Redis server, which can do more than carry messages."""
    return transport in (STREAMS, STOCK)


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

    if transport == STOCK:
        stock = transport_options(timeout_s=timeout_s) | options
        return kombu.Connection(kombu_url(url), transport_options=stock)
    if transport == STREAMS:
        # kombu reads what is before a "+" as a transport of its own: unix://, not redis+socket://.
        return kombu.Connection(
            redis_url(url),
            transport="blimp.tasks.transport:Transport",
            transport_options=streams_options(timeout_s=timeout_s) | options,
        )
    if transport == AMQP:
        from blimp.tasks.broker.amqp_url import part_tls
        from blimp.tasks.lines.rabbitmq import connection_options

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
    named = {"transport": transport} if ":" in transport else {}
    options = {"polling_interval": POLL_S} | options
    return kombu.Connection(url, connect_timeout=timeout_s, transport_options=options, **named)


def connect(connection: Connection) -> None:
    """Connect, or raise at once: `Connection.connect` waits for two seconds and tries again."""
    connection.ensure_connection(max_retries=0)
