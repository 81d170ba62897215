"""The way to the server: from a kombu connection's URL to redis-py clients."""

from __future__ import annotations

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from blimp.errors import ConfigError
from blimp.queue.redis.urls import hide_password, open_sentinel, redis_url, tcp_keepalive

MINIMUM_REDIS, MINIMUM_VALKEY = (7, 0), (8, 0)
DEFAULT_TIMEOUT_S = 2.0
SCHEMES = ("redis", "rediss", "redis+socket", "socket", "unix", "valkey", "valkeys", "sentinel")


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


class Link:
    """Clients of one server. Thread-safe; connects on first use; close is idempotent.

    options: kombu transport options; `socket_timeout`, `socket_connect_timeout`,
    `master_name` and `sentinel_kwargs` (of redis-py, for the sentinels) are read here.
    ssl: as kombu.Connection has it: True, or redis-py's options with it. A `rediss` URL needs
        none: it may have them in its query, `?ssl_ca_certs=…`. Certificates are checked.
    Raises ConfigError for a URL that it cannot use.
    """

    def __init__(self, *, url: str, options: dict[str, Any], ssl: Any = None) -> None:
        self.url = url
        self.timeout_s = float(options.get("socket_timeout") or DEFAULT_TIMEOUT_S)
        self._options: dict[str, Any] = {
            "socket_timeout": self.timeout_s,
            "socket_connect_timeout": float(
                options.get("socket_connect_timeout") or self.timeout_s
            ),
            # A pooled connection that died while it lay idle is replaced once. The scripts that
            # do not tell their own repetition are run past it; see Scripts.run_once.
            "retry": Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
            "protocol": 2,
            "client_name": options.get("client_name"),
        }
        self._ssl: dict[str, Any] | None = dict(ssl) if isinstance(ssl, dict) else None
        if ssl and self._ssl is None:
            self._ssl = {}
        self.client: redis.Redis = self._open(options)

    def connection(self) -> Any:
        """Return a connection of the caller's own, for commands that block."""
        return self.client.connection_pool.get_connection()

    def give_up(self, connection: Any) -> None:
        """Close a connection that `connection` returned."""
        connection.disconnect()
        self.client.connection_pool.release(connection)

    def check_version(self) -> None:
        """Raise ConfigError where the server is too old for what the scripts use."""
        found = self.client.info("server")
        server = str(found.get("server_name", "redis"))
        name, least = ("Valkey", MINIMUM_VALKEY) if server == "valkey" else ("Redis", MINIMUM_REDIS)
        text = str(found.get(f"{server}_version", found.get("redis_version", "0")))
        version = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
        if version < least:
            raise ConfigError(
                f"broker {hide_password(self.url)} is {name} {text}: streams with claims that "
                f"keep the lease need Valkey >= {MINIMUM_VALKEY[0]}.{MINIMUM_VALKEY[1]} "
                f"or Redis >= {MINIMUM_REDIS[0]}.{MINIMUM_REDIS[1]}"
            )

    def after_fork(self) -> None:
        """Let go of the parent's connections: closed here, they stay open there."""
        self.client.connection_pool.reset()

    def close(self) -> None:
        self.client.close()
        self.client.connection_pool.disconnect()

    def _open(self, options: dict[str, Any]) -> redis.Redis:
        scheme, _, rest = self.url.partition("://")
        if scheme not in SCHEMES:
            raise ConfigError(
                f"broker URL {hide_password(self.url)!r}: its scheme is none of {SCHEMES}"
            )
        if scheme == "sentinel":
            return self._open_sentinel(options)
        if scheme == "socket":
            scheme = "redis+socket"
        url = redis_url(f"{scheme}://{rest}")
        given = dict(self._options)
        if not url.startswith("unix://"):
            given |= _keepalive()
            if self._ssl is not None:
                url = url.replace("redis://", "rediss://", 1)
                given |= self._ssl
        client: redis.Redis = redis.Redis.from_url(url, **given)
        return client

    def _open_sentinel(self, options: dict[str, Any]) -> redis.Redis:
        """Open `sentinel://[user:password@]host[:port][,host[:port]…]/[database]?master_name=M`."""
        secure = {} if self._ssl is None else {"ssl": True, **self._ssl}
        return open_sentinel(
            self.url,
            options=self._options | _keepalive() | secure,
            master=options.get("master_name"),
            sentinel_options=options.get("sentinel_kwargs"),
        )


def _keepalive() -> dict[str, Any]:
    return {"socket_keepalive": True, "socket_keepalive_options": tcp_keepalive()}
