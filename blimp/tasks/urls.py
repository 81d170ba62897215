"""Broker and result URLs: kombu's and redis-py's spelling of the same server.

kombu writes a Unix socket as `redis+socket:///path?virtual_host=0`, redis-py as
`unix:///path?db=0`; `redis://` and `rediss://` are the same in both.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from blimp.errors import ConfigError, LinkError, NotAuthorised

if TYPE_CHECKING:
    from redis import Redis

SCHEMES = ("redis", "rediss", "redis+socket", "unix")


def check_url(url: str) -> str:
    """Return `url` when this package can use it. Raises ConfigError naming what it can."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise ConfigError(f"broker URL {hide_password(url)!r}: its scheme is none of {SCHEMES}")
    try:
        _ = urlsplit(url).port  # judged where it is read
    except ValueError as error:
        raise ConfigError(f"broker URL {hide_password(url)!r}: {error}") from None
    return url


def kombu_url(url: str) -> str:
    """Return `url` as kombu reads it."""
    if not url.startswith("unix://"):
        return url
    parts = urlsplit(url)
    database = dict(parse_qsl(parts.query)).get("db", "0")
    return f"redis+socket://{parts.path}?virtual_host={database}"


def redis_url(url: str) -> str:
    """Return `url` as redis-py reads it."""
    if not url.startswith("redis+socket://"):
        return url
    parts = urlsplit(url.removeprefix("redis+"))
    options = dict(parse_qsl(parts.query))
    options["db"] = options.pop("virtual_host", "0").lstrip("/") or "0"
    user, at, _ = parts.netloc.rpartition("@")
    return f"unix://{user}{at}{parts.path}?{urlencode(options)}"


def hide_password(url: str) -> str:
    """Return `url` without its password: what a message may show."""
    # Up to the last @, whatever stands between: a password may hold any of : @ / ? and #.
    return re.sub(r"(://[^:/?#]*):.*@", r"\1:***@", url, flags=re.DOTALL)


def link_error(url: str, error: BaseException) -> LinkError:
    """Return what `error`, of kombu or redis-py, means: no broker there, or one that says no."""
    import redis
    from amqp.exceptions import AccessRefused

    where = f"broker at {hide_password(url)}"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(
            cause,
            redis.AuthenticationError | redis.exceptions.NoPermissionError | AccessRefused,
        ):
            return NotAuthorised(f"{where} refuses: {cause}")
        if isinstance(cause, redis.ResponseError):
            return LinkError(f"{where}: {cause}")
        cause = cause.__cause__ or cause.__context__
    return LinkError(f"no {where}: {error}")


def tcp_keepalive() -> dict[int, int]:
    """Return socket options under which a peer that vanished is noticed in about 10 s."""
    names = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
    return {getattr(socket, name): value for name, value in names.items() if hasattr(socket, name)}


def open_redis(url: str, *, timeout_s: float, client_name: str | None = None) -> Redis:
    """Return a thread-safe client of the server at `url`; it connects on its first command.

    A pooled connection that has died since its last use is replaced once without delay;
    a server that is away raises redis.exceptions.ConnectionError or TimeoutError within
    `timeout_s`.
    """
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
        "client_name": client_name,
    }
    if not redis_url(url).startswith("unix://"):
        options |= {"socket_keepalive": True, "socket_keepalive_options": tcp_keepalive()}
    client: Redis = redis.Redis.from_url(redis_url(url), **options)
    return client


def transport_options(*, timeout_s: float) -> dict[str, Any]:
    """Return kombu transport options under which no call on a dead link hangs."""
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
        "socket_keepalive_options": tcp_keepalive(),
        "health_check_interval": 5,
        "max_retries": 1,
        "interval_start": 0,
        "interval_step": 0.1,
        "interval_max": 0.2,
        "connect_retries_timeout": timeout_s,
    }
