"""The settings of a kombu.Connection, which it passes on with its secrets hidden.

kombu leaves a URL that its transport parses in `hostname`, so that `info()` shows the whole URL
with its password, and Celery's `inspect stats` prints it. Here the attributes of the connection
become the public parts of the URL. The settings themselves travel in the hostname, which is a
`Host`: kombu copies it into clones and pickles, and no text shows what is in it.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from kombu.log import get_logger

from blimp.errors import ConfigError
from blimp.queue.brokers.base import BrokerOptions
from blimp.queue.brokers.streams.store import StreamsOptions
from blimp.queue.log import LineLimit
from blimp.queue.redis.client import ClientOptions
from blimp.queue.redis.urls import hide_password, public_parts, redis_url
from blimp.reading import ready

logger = get_logger("blimp.queue.celery.kombu_transport")
logger.addFilter(LineLimit())  # it names every entry that cannot be read

_SECRET = re.compile(r"password|secret|token", re.IGNORECASE)
_HOSTNAME = re.compile(r"[\w.-]+")
HIDDEN = "***"

# Of kombu's Connection, which reads them itself.
KOMBU_OPTIONS = frozenset(
    {"max_retries", "interval_start", "interval_step", "interval_max"}
    | {"connect_retries_timeout", "errback", "callback"}
)


@ready
class TransportOptions(msgspec.Struct, kw_only=True):
    """What a program may write in `transport_options`; docs/celery.md says what each means.

    Those without a default here have the one of StreamsOptions, or of Channel.
    """

    consumer: str | None = None
    lease_s: float | None = None
    max_deliveries: int | None = None
    max_dead_letters: int | None = None
    on_lease_lost: Any = None
    key_prefix: str | None = None
    global_keyprefix: str = ""
    socket_timeout: float | None = None
    socket_connect_timeout: float | None = None
    socket_keepalive: Literal[True] = True  # it always is
    client_name: str | None = None
    master_name: str | None = None
    sentinel_kwargs: dict[str, Any] | None = None
    publish_once_s: float | None = None
    deadletter_queue: str | None = None
    eta_lead_s: float = 60.0

    def streams(self, *, ssl: Any) -> StreamsOptions:
        """Return them as the streams take them. Raises ConfigError."""
        own = StreamsOptions().prefix if self.key_prefix is None else self.key_prefix
        return StreamsOptions(
            **_given(
                consumer=self.consumer,
                lease_s=self.lease_s,
                max_deliveries=self.max_deliveries,
                on_lease_lost=self.on_lease_lost,
            ),
            prefix=self.global_keyprefix + own,
            broker=BrokerOptions(
                **_given(timeout_s=self.socket_timeout, max_dead_letters=self.max_dead_letters)
            ),
            client=ClientOptions(
                **_given(sentinel_kwargs=self.sentinel_kwargs, ssl=ssl),
                connect_timeout_s=self.socket_connect_timeout,
                client_name=self.client_name,
                master_name=self.master_name,
            ),
        )


def _given(**options: Any) -> dict[str, Any]:
    return {name: one for name, one in options.items() if one is not None}


def read_options(options: Mapping[str, Any]) -> TransportOptions:
    """Read `transport_options`, in which a number may be a text. Raises ConfigError naming one."""
    known = TransportOptions.__struct_fields__
    own = _given(**{name: one for name, one in options.items() if name not in KOMBU_OPTIONS})
    if unknown := sorted(own.keys() - set(known)):
        raise ConfigError(f"transport options {unknown}: must be of {', '.join(known)}")
    try:
        return msgspec.convert(own, TransportOptions, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"transport options: {error}") from None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection was given: secrets included, so never shown."""

    url: str
    options: dict[str, Any]
    ssl: Any
    alternates: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Settings({hide_password(self.url)!r})"


class Host(str):
    """A host name that carries the settings of its connection."""

    given: Settings


def take_settings(connection: Any) -> Settings:
    """Return the settings of `connection`, and leave it with their public parts.

    Raises ConfigError for a URL that cannot be read.
    """
    hostname = connection.hostname
    before = hostname.given if isinstance(hostname, Host) else None
    options, ssl, alternates = connection.transport_options or {}, connection.ssl, connection.alt
    if before is None:
        url = client_url(connection)
    else:  # a clone, or the same connection once more: what is unchanged has its secrets back
        url = before.url
        options = before.options if options == _masked(before.options) else options
        ssl = before.ssl if ssl == _masked(before.ssl) else ssl
        hidden = {hide_password(one): one for one in before.alternates}
        alternates = [hidden.get(one, one) for one in alternates]
    settings = Settings(url=url, options=dict(options), ssl=ssl, alternates=tuple(alternates))
    _show(connection, settings)
    return settings


def _show(connection: Any, settings: Settings) -> None:
    for name, value in public_parts(settings.url).items():
        setattr(connection, name, value)
    connection.hostname = Host(connection.hostname)
    connection.hostname.given = settings
    connection.password = None
    connection.transport_options = _masked(settings.options)
    connection.ssl = _masked(settings.ssl)
    connection.alt = [hide_password(url) for url in settings.alternates]


def client_url(connection: Any) -> str:
    """Return the URL of a kombu.Connection, put together where it was given in parts."""
    hostname = str(connection.hostname or "localhost")
    if "://" in hostname:
        return hostname
    secret = f":{connection.password}@" if connection.password else ""
    database = str(connection.virtual_host or "0").strip("/") or "0"
    scheme = "rediss" if connection.ssl else "redis"
    host = f"{hostname}:{connection.port or 6379}"
    return f"{scheme}://{connection.userid or ''}{secret}{host}/{database}"


def keep_transport(connection: Any) -> None:
    """Have `connection` keep its transport, and its live settings if the next URL is wrong.

    kombu takes the transport of every URL but the first from its scheme, and would continue with
    its own Redis transport, whose guarantees are others. It makes a transport before it
    connects, hence before it first looks for another URL.
    """
    known = weakref.ref(connection)  # a connection that nobody uses any more must go
    transport = connection.transport_cls

    def switch(url: str) -> None:
        """Use `url` from now on. Raises ConfigError for a wrong one, and changes nothing then."""
        connection = known()
        if connection is None:
            return
        before = connection.hostname.given
        url = next((one for one in before.alternates if hide_password(one) == url), url)
        if _HOSTNAME.fullmatch(url):
            url = f"redis://{url}"
        public_parts(url)
        connection.close()
        connection.declared_entities.clear()
        connection._closed = False
        connection._init_params(**(connection._initial_params | {"transport": transport}))
        _show(connection, msgspec.structs.replace(before, url=redis_url(url)))

    def maybe_switch_next() -> None:
        """Use the next URL of the list that can be read; the live one if none can."""
        connection = known()
        if connection is None or not connection.cycle:
            return
        for _ in connection.alt:
            try:
                switch(next(connection.cycle))
            except ConfigError as error:
                logger.error("not used for failover: %s", error)
            else:
                return

    connection.switch, connection.maybe_switch_next = switch, maybe_switch_next


def _masked(value: Any, name: str = "") -> Any:
    """Return `value` with what stands under the name of a secret hidden."""
    if isinstance(value, Mapping):
        return {key: _masked(one, str(key)) for key, one in value.items()}
    return HIDDEN if value is not None and _SECRET.search(name) else value
