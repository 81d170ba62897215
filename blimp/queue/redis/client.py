"""Clients of Redis servers: the one factory, and the client of the broker in use."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hiredis import pack_command

from blimp.errors import ConfigError, LinkError, ResultError
from blimp.queue.redis.address import SEVERAL
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
MINIMUM = {"redis": ("Redis", (7, 0)), "valkey": ("Valkey", (8, 0))}
DEFAULT_TIMEOUT_S = 2.0


def open_redis(
    url: str,
    *,
    timeout_s: float,
    ssl: Any = None,
    options: Mapping[str, Any] | None = None,
    retries: int = 1,
) -> Redis:
    """Return a thread-safe client of the server at `url`; it connects on its first command.

    A pooled connection that has died since its last use is replaced once without delay; an
    unreachable server raises redis.ConnectionError or TimeoutError within `timeout_s`.

    ssl: True, or redis-py's options with it. A `rediss` URL needs none: it may have them in
        its query, `?ssl_ca_certs=…`. Certificates are checked.
    options: kombu's transport options, of which `socket_connect_timeout`, `client_name`,
        `master_name` (which may be in the URL's query) and `sentinel_kwargs` are read.
    retries: of a command whose connection has died.
    Raises ConfigError for a URL that it cannot use.
    """
    import redis  # 40 ms, which a command-line help need not pay

    options = options or {}
    # kombu calls a Unix socket `socket://`, too.
    address = address_of(url, schemes=(*SCHEMES, "socket"))
    timeouts: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": float(options.get("socket_connect_timeout") or timeout_s),
        # Scripts that do not recognise their own repetition avoid it; see Script.run_once.
        "retry": redis.retry.Retry(
            redis.backoff.NoBackoff(), retries, supported_errors=(redis.ConnectionError,)
        ),
    }
    given = timeouts | {"protocol": 2, "client_name": options.get("client_name")}
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
        pool = redis.ConnectionPool(connection_class=local, path=address.path, **given)
        return redis.Redis.from_pool(pool)
    given |= {"socket_keepalive": True, "socket_keepalive_options": tcp_keepalive()}
    given |= ssl if isinstance(ssl, dict) else {}
    is_tls = bool(ssl) or address.is_tls
    if address.scheme not in SEVERAL:
        ((host, port),) = address.hosts
        kind = kind_of(redis.SSLConnection if is_tls else redis.Connection)
        pool = redis.ConnectionPool(
            connection_class=kind, host=host, port=port or DEFAULT_PORT, **given
        )
        return redis.Redis.from_pool(pool)
    nodes = [(host, port or NODE_PORTS[address.scheme]) for host, port in address.hosts]
    # The default of the nodes' own clients tries ten times, ever more slowly.
    own_given = timeouts | (options.get("sentinel_kwargs") or {})
    if address.tag:
        if is_tls:
            raise ConfigError(f"broker URL {hide_password(url)!r}: no TLS to a cluster yet")
        from blimp.queue.redis.cluster import SlotConnection, SlotMaster, TagPacker

        login = {name: given[name] for name in ("username", "password")}
        pool = redis.sentinel.SentinelConnectionPool(
            address.tag,
            SlotMaster(nodes, **login, **timeouts),
            connection_class=kind_of(SlotConnection),
            command_packer=TagPacker(address.tag),
            **given,
        )
        return redis.Redis.from_pool(pool)
    master = options.get("master_name") or address.options.get("master_name")
    if not master:
        raise ConfigError(
            f"broker URL {hide_password(url)!r}: a sentinel needs `master_name`, in the URL's "
            "path, sentinel://host/NAME/0, in its query or the transport options"
        )
    sentinel = redis.sentinel.Sentinel(nodes, sentinel_kwargs=own_given)
    names = ("SentinelManagedSSLConnection", "SentinelManagedConnection")
    kind = kind_of(getattr(redis.sentinel, names[not is_tls]))
    return cast("Redis", sentinel.master_for(master, redis.Redis, connection_class=kind, **given))


def streams_options(*, timeout_s: float) -> dict[str, Any]:
    """Return transport options under which kombu leaves each retry to its caller."""
    waits = dict.fromkeys(("max_retries", "interval_start", "interval_step", "interval_max"), 0)
    return {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, **waits}


class DirectCalls:
    """Commands over connections of its own: redis-py's pool costs as much as the command.

    Thread-safe. is_plain: the server is no cluster, and no replica is waited for. An error is
    redis-py's; the command may have run then.
    """

    def __init__(self, client: Redis, *, is_plain: bool) -> None:
        self._client = client
        self._is_plain = is_plain
        self._idle: deque[Any] = deque()  # connections that no thread uses now
        reset_after_fork(self)

    def call(self, *command: Any) -> Any:
        import redis

        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._client.connection_pool.get_connection()
        try:
            if self._is_plain:  # a fifth of the time that redis-py's connection takes
                connection._sock.sendall(pack_command(command))
            else:
                connection.send_command(*command)
            answer = connection.read_response()
        except redis.ResponseError:
            self._idle.append(connection)
            raise
        except BaseException:
            _give_up(self._client, connection)
            raise
        self._idle.append(connection)
        return answer

    def after_fork(self) -> None:
        self._idle = deque()

    def close(self) -> None:
        while self._idle:
            _give_up(self._client, self._idle.pop())


def _give_up(client: Redis, connection: Any) -> None:
    connection.disconnect()
    client.connection_pool.release(connection)


class Link:
    """A client of one server, and connections of its pool. Thread-safe; close is idempotent.

    options: kombu's transport options; `socket_timeout`, and those of `open_redis`, as ssl is.
    """

    def __init__(self, *, url: str, options: dict[str, Any], ssl: Any = None) -> None:
        self.url = url
        self.timeout_s = float(options.get("socket_timeout") or DEFAULT_TIMEOUT_S)
        self.client = open_redis(url, timeout_s=self.timeout_s, ssl=ssl, options=options)
        address = address_of(url, schemes=(*SCHEMES, "socket"))
        self.tag = address.tag  # of every key in a cluster
        self.waits = "wait_replicas" in address.options

    def connection(self) -> Any:
        """Return a connection of the caller's own, for commands that block."""
        return self.client.connection_pool.get_connection()

    def give_up(self, connection: Any) -> None:
        """Close a connection that `connection` returned."""
        _give_up(self.client, connection)

    def after_fork(self) -> None:
        """Let go of the parent's connections: closed here, they stay open there."""
        self.client.connection_pool.reset()

    def close(self) -> None:
        self.client.close()
        self.client.connection_pool.disconnect()

    def check_server(self) -> tuple[str, ...]:
        """Return warnings about the server's settings. Raises ConfigError if it cannot be used.

        Too old: the scripts need newer commands. Eviction: a full server would drop confirmed
        messages, and report nothing.
        """
        found: Any = self.client.info("server", "memory", "persistence")
        kind = str(found.get("server_name", "redis"))
        name, least = MINIMUM.get(kind, MINIMUM["redis"])
        text = str(found.get(f"{kind}_version", found.get("redis_version", "0")))
        version = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
        shown = f"broker {hide_password(self.url)}"
        if "cluster" in (found.get("redis_mode"), found.get("server_mode")) and not self.tag:
            raise ConfigError(
                f"{shown} is a node of a cluster, whose scripts need all keys in one slot: write "
                "cluster://HOST:PORT,HOST2:PORT/TAG"
            )
        if version < least:
            raise ConfigError(
                f"{shown} is {name} {text}: streams with claims that keep the lease need "
                "Valkey >= 8.0 or Redis >= 7.0"
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
    Connects on first use. Every call raises LinkError if no server answers within `timeout_s`.
    Close is idempotent.
    """

    def __init__(self, url: str | Brokers, *, timeout_s: float = 2.0) -> None:
        self.brokers = url if isinstance(url, Brokers) else Brokers(url)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._clients: dict[str, Redis] = {}
        self._calls: dict[Redis, DirectCalls] = {}

    @property
    def client(self) -> Redis:
        """A client of the server in use now."""
        return self.client_of(self.brokers.current)

    def client_of(self, url: str) -> Redis:
        with self._lock:
            if url not in self._clients:
                client = open_redis(url, timeout_s=self._timeout_s)
                address = address_of(url, schemes=SCHEMES)
                is_plain = not address.tag and "wait_replicas" not in address.options
                self._clients[url] = client
                self._calls[client] = DirectCalls(client, is_plain=is_plain)
            return self._clients[url]

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script that may run twice, as `ask` does, at a third of the price."""
        return self.ask(lambda client: self._run(client, script, keys, args))

    def _run(self, client: Redis, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        import redis

        with contextlib.suppress(
            redis.ConnectionError, ConnectionError, redis.exceptions.NoScriptError, KeyError
        ):  # the idle connection had died, the server is new, or this is being closed
            return self._calls[client].call("EVALSHA", script.digest, len(keys), *keys, *args)
        return script.run(client, keys, args)

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
            while self._calls:
                self._calls.popitem()[1].close()
            while self._clients:
                self._clients.popitem()[1].close()


@cache
def _inherited() -> weakref.WeakSet[Any]:
    """Return what `reset_after_fork` was called with and still lives."""
    found: weakref.WeakSet[Any] = weakref.WeakSet()
    os.register_at_fork(after_in_child=lambda: [one.after_fork() for one in list(found)])
    return found


def reset_after_fork(one: Any) -> None:
    """Have `one.after_fork()` called in every child forked while `one` lives.

    A forked child has its parent's sockets, locks and messages, and must use none of them: it
    starts again, and sends the server nothing. No other thread runs then.
    """
    _inherited().add(one)


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
