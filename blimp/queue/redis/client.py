"""Clients of Redis servers: the one factory, and the client of the broker in use."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from hiredis import pack_command
from msgspec import Meta

from blimp.errors import ConfigError, LinkError, ResultError
from blimp.queue.options import Options
from blimp.queue.redis.address import LEAST_CONNECTIONS, SEVERAL
from blimp.queue.redis.urls import (
    DEFAULT_PORT,
    NODE_PORTS,
    SCHEMES,
    Brokers,
    address_of,
    hide_password,
    is_refusal,
    link_errors,
    tcp_keepalive,
)

if TYPE_CHECKING:
    from redis import Redis

    from blimp.queue.redis.scripts import Script

T = TypeVar("T")

NO_EVICTION = "noeviction"
MINIMUM = (7, 0)  # by Redis' numbers: each Valkey says which of them it stands for
MAX_CONNECTIONS = 50  # chosen, as for redis-py's pool that waits; a server takes 10,000 by default


class ClientOptions(Options, frozen=True, kw_only=True):
    """What a client of Redis is made with beside its URL.

    connect_timeout_s: of a new connection; as long as an answer by default.
    client_name: as `CLIENT LIST` shows it. master_name: of a sentinel; may be in the URL.
    sentinel_kwargs: for the sentinels' own clients.
    max_connections: at the same time, unless the URL says how many.
    ssl: True, or redis-py's options with it. A `rediss` URL needs none: it may have them in
        its query, `?ssl_ca_certs=…`. Certificates are checked.
    """

    connect_timeout_s: float | None = None
    client_name: str | None = None
    master_name: str | None = None
    sentinel_kwargs: Mapping[str, Any] = {}
    max_connections: Annotated[int, Meta(ge=LEAST_CONNECTIONS)] = MAX_CONNECTIONS
    ssl: bool | Mapping[str, Any] = False


DEFAULTS = ClientOptions()


def open_redis(
    url: str, *, timeout_s: float, options: ClientOptions = DEFAULTS, retries: int = 1
) -> Redis:
    """Return a thread-safe client of the server at `url`; it connects on its first command.

    A pooled connection that has died since its last use is replaced once without delay; an
    unreachable server raises redis.ConnectionError or TimeoutError within `timeout_s`. If all
    connections are in use, a caller waits for one, and after `timeout_s` gets a LinkError.

    retries: of a command whose connection has died.
    Raises ConfigError for a URL that it cannot use.
    """
    import redis  # 40 ms, which a command-line help need not pay

    from blimp.queue.redis.connections import Pool, SentinelPool

    # kombu calls a Unix socket `socket://`, too.
    address = address_of(url, schemes=(*SCHEMES, "socket"))
    timeouts: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": options.connect_timeout_s or timeout_s,
        # Scripts that do not recognise their own repetition avoid it; see Script.run_once.
        "retry": redis.retry.Retry(
            redis.backoff.NoBackoff(), retries, supported_errors=(redis.ConnectionError,)
        ),
    }
    given = timeouts | {"protocol": 2, "client_name": options.client_name}
    given |= {"shown": hide_password(url), "wait_s": timeout_s}
    given["max_connections"] = options.max_connections
    given |= {"db": address.database, "username": address.username, "password": address.password}
    own = ("master_name", "wait_replicas")
    given |= {name: value for name, value in address.options.items() if name not in own}
    replicas = int(address.options.get("wait_replicas") or 0)

    def kind_of(kind: Any) -> Any:
        if not replicas:
            return kind
        from blimp.queue.redis.cluster import waiting  # a ship's worker has no replicas

        return waiting(kind, replicas=replicas, timeout_s=timeout_s)

    if address.path:
        local = kind_of(redis.UnixDomainSocketConnection)
        return redis.Redis.from_pool(Pool(connection_class=local, path=address.path, **given))
    given |= {"socket_keepalive": True, "socket_keepalive_options": tcp_keepalive()}
    given |= {} if isinstance(options.ssl, bool) else options.ssl
    is_tls = bool(options.ssl) or address.is_tls
    if address.scheme not in SEVERAL:
        ((host, port),) = address.hosts
        kind = kind_of(redis.SSLConnection if is_tls else redis.Connection)
        pool = Pool(connection_class=kind, host=host, port=port or DEFAULT_PORT, **given)
        return redis.Redis.from_pool(pool)
    nodes = [(host, port or NODE_PORTS[address.scheme]) for host, port in address.hosts]
    # The default of the nodes' own clients tries ten times, ever more slowly.
    own_given = timeouts | dict(options.sentinel_kwargs)
    if address.tag:
        if is_tls:
            raise ConfigError(f"broker URL {hide_password(url)!r}: no TLS to a cluster yet")
        from blimp.queue.redis.cluster import SlotConnection, SlotMaster, TagPacker

        login = {name: given[name] for name in ("username", "password")}
        return redis.Redis.from_pool(
            SentinelPool(
                address.tag,
                SlotMaster(nodes, **login, **timeouts),
                connection_class=kind_of(SlotConnection),
                command_packer=TagPacker(address.tag),
                **given,
            )
        )
    master = options.master_name or address.options.get("master_name")
    if not master:
        raise ConfigError(
            f"broker URL {hide_password(url)!r}: a sentinel needs `master_name`, in the URL's "
            "path, sentinel://host/NAME/0, in its query or the transport options"
        )
    sentinel = redis.sentinel.Sentinel(nodes, sentinel_kwargs=own_given)
    names = ("SentinelManagedSSLConnection", "SentinelManagedConnection")
    kind = kind_of(getattr(redis.sentinel, names[not is_tls]))
    given |= {"connection_class": kind, "connection_pool_class": SentinelPool}
    return cast("Redis", sentinel.master_for(master, redis.Redis, **given))


class Link:
    """A client of one server, and its pool of connections. Thread-safe; close is idempotent."""

    def __init__(self, *, url: str, timeout_s: float, options: ClientOptions = DEFAULTS) -> None:
        self.url = url
        self.timeout_s = timeout_s
        self.client = open_redis(url, timeout_s=timeout_s, options=options)
        self._pool: Any = self.client.connection_pool
        address = address_of(url, schemes=(*SCHEMES, "socket"))
        self.tag = address.tag  # of every key in a cluster
        self._is_plain = not address.tag and "wait_replicas" not in address.options

    def connection(self) -> Any:
        """Return a connection of the caller's own, for commands that block."""
        return self._pool.get_connection()

    def give_up(self, connection: Any) -> None:
        """Close a connection that `connection` returned."""
        connection.disconnect()
        self._pool.release(connection)

    def call(self, *command: Any) -> Any:
        """Return the answer to a command: what redis-py does about it costs as much again.

        Raises redis-py's errors: the command may have run then.
        """
        import redis

        connection = self._pool.take()
        try:
            if self._is_plain:  # a fifth of the time that redis-py's connection takes
                channel = connection._sock
                if channel is None:  # the app is closed, or has gone over to another broker
                    raise redis.ConnectionError("the connection was closed meanwhile")
                channel.sendall(pack_command(command))
            else:
                connection.send_command(*command)
            answer = connection.read_response()
        except redis.ResponseError:
            self._pool.put(connection)
            raise
        except BaseException:
            self.give_up(connection)
            raise
        self._pool.put(connection)
        return answer

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script that may run twice."""
        import redis

        try:
            return self.call("EVALSHA", script.digest, len(keys), *keys, *args)
        except (redis.ConnectionError, ConnectionError, redis.exceptions.NoScriptError):
            pass  # the idle connection had died, or the server is new
        return script.run(self.client, keys, args)  # once more, with all care

    def close(self) -> None:
        self.client.close()
        self._pool.disconnect()

    def check_server(self) -> tuple[str, ...]:
        """Return warnings about the server's settings. Raises ConfigError if it cannot be used.

        Too old: the scripts need newer commands. Eviction: a full server would drop confirmed
        messages, and report nothing.
        """
        found: Any = self.client.info("server", "memory", "persistence")
        text = str(found.get("redis_version", "0"))
        version = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
        shown = f"broker {hide_password(self.url)}"
        if "cluster" in (found.get("redis_mode"), found.get("server_mode")) and not self.tag:
            raise ConfigError(
                f"{shown} is a node of a cluster, whose scripts need all keys in one slot: write "
                "cluster://HOST:PORT,HOST2:PORT/TAG"
            )
        if version < MINIMUM:
            raise ConfigError(
                f"{shown} is Redis {text}: its scripts need Redis >= 7.0 or any Valkey"
            )
        policy = found.get("maxmemory_policy", NO_EVICTION)
        if policy != NO_EVICTION:
            raise ConfigError(
                f"{shown} has maxmemory-policy {policy}: a full server evicts messages that it "
                f"has confirmed; set maxmemory-policy {NO_EVICTION}"
            )
        if found.get("aof_enabled", 1) == 0:
            return (f"{shown} has appendonly no: what it has confirmed is lost if it ends",)
        return ()


class RedisServer:
    """Clients of one server, or of several of which one is in use. Thread-safe.

    url: of the server, or the brokers: it is then the server in use.
    max_connections: to each server, for all that share this; see `open_redis`.
    Connects on first use. Every call raises LinkError if no server answers within `timeout_s`.
    Close is idempotent.
    """

    def __init__(
        self,
        url: str | Brokers,
        *,
        timeout_s: float = 2.0,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.brokers = url if isinstance(url, Brokers) else Brokers(url)
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._lock = threading.Lock()
        self._links: dict[str, Link] = {}

    @property
    def client(self) -> Redis:
        """A client of the server in use now."""
        return self.client_of(self.brokers.current)

    def client_of(self, url: str) -> Redis:
        return self.link_to(url).client

    def link_to(self, url: str) -> Link:
        """Return what all share that ask the server at `url` through this."""
        with self._lock:
            if url not in self._links:
                self._links[url] = Link(
                    url=url,
                    timeout_s=self._timeout_s,
                    options=ClientOptions(max_connections=self._max_connections),
                )
            return self._links[url]

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script that may run twice, as `ask` does, at a third of the price."""
        return self.ask(lambda _: self.link_to(self.brokers.current).run(script, keys, args))

    def ask(self, function: Callable[[Redis], T]) -> T:
        """Call `function` with a client; of several brokers, until one answers.

        It may be called more than once. Raises LinkError if none answers.
        """
        for left in reversed(range(len(self.brokers))):
            url = self.brokers.current
            try:
                with self.link(url):
                    return function(self.client_of(url))
            except LinkError:
                if not left or url == self.brokers.current:
                    raise
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def link(self, url: str | None = None) -> Iterator[None]:
        """Turn redis-py's errors into LinkError; have another broker in use if this is lost.

        url: of the broker that is asked, by default the one in use.
        """
        with link_errors(url or self.brokers.current, self.brokers.failed):
            yield

    def close(self) -> None:
        with self._lock:
            while self._links:
                self._links.popitem()[1].close()


def type_checked(function: Callable[[], T]) -> T:
    """Call `function`. Raises ResultError if the server refuses a key, as one of a wrong type.

    Trying again cannot help.
    """
    import redis

    try:
        return function()
    except redis.ResponseError as error:
        if is_refusal(error):
            raise ResultError(f"the key holds data of another type: {error}") from None
        raise
