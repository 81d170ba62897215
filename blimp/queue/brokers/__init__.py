"""Which brokers there are: the one table. Adding a broker is one file and one line here.

Tested by test_brokers.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blimp.errors import ConfigError
from blimp.queue.neighbours import load, neighbour
from blimp.queue.redis.urls import SCHEMES as REDIS_SCHEMES
from blimp.queue.redis.urls import hide_password

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Broker

# By name: the URL schemes. Streams are the core's; the others are neighbours, which are imported
# when a URL asks for them: a program on Redis does not pay 3 MB for py-amqp.
BROKERS = {
    "streams": REDIS_SCHEMES,
    "amqp": ("amqp", "amqps", "pyamqp"),
    "memory": ("memory",),
}
STREAMS = "blimp.queue.brokers.streams:StreamsBroker"
_ALIASES = {"pyamqp": "amqp", "blimp.queue.kombu_transport:Transport": "streams"}


def broker_for(urls: str | Sequence[str], *, name: str | None = None) -> Broker:
    """Return the broker called `name`; for None the one that takes the first URL's scheme.

    Raises ConfigError for an unknown name, and for a URL that is another broker's.
    """
    urls = (urls,) if isinstance(urls, str) else urls
    name = _name_for(urls[0]) if name is None else _ALIASES.get(name, name)
    if name not in BROKERS:
        raise ConfigError(f"transport {name!r}: must be one of {tuple(BROKERS)}")
    schemes = BROKERS[name]
    kind = load(STREAMS) if name == "streams" else neighbour(name)
    broker: Broker = kind()
    for url in urls:
        if url.partition("://")[0] not in schemes:
            raise ConfigError(
                f"broker URL {hide_password(url)!r}: transport {name!r} takes {schemes}"
            )
        broker.check_url(url)
    return broker


def _name_for(url: str) -> str:
    scheme = url.partition("://")[0]
    for name, schemes in BROKERS.items():
        if scheme in schemes:
            return name
    known = tuple(scheme for schemes in BROKERS.values() for scheme in schemes)
    raise ConfigError(f"broker URL {hide_password(url)!r}: its scheme must be one of {known}")
