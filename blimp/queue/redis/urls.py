"""Broker and result URLs: kombu's and redis-py's spelling of the same server.

kombu writes a Unix socket as `redis+socket:///path?virtual_host=0`, redis-py as
`unix:///path?db=0`; `redis://` and `rediss://` are the same in both. `valkey://` and
`valkeys://` are other words for them. A sentinel's URL names the master in its query:
`sentinel://host:26379,host2:26379/0?master_name=flight`.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from blimp.errors import ConfigError, LinkError, NotAuthorised

if TYPE_CHECKING:
    from redis import Redis

SCHEMES = ("redis", "rediss", "redis+socket", "unix", "valkey", "valkeys", "sentinel")
SENTINEL_PORT = 26379
MAX_REASON_LENGTH = 300
# Errors that end by themselves: no memory, no disk, not the master, too few replicas.
PASSING = ("OOM", "MISCONF", "READONLY", "NOREPLICAS", "MASTERDOWN", "LOADING", "BUSY")


def check_url(url: str) -> str:
    """Return `url` when this package can use it. Raises ConfigError naming what it can."""
    return check_address(url, schemes=SCHEMES)


def check_address(url: str, *, schemes: Collection[str] | None = None) -> str:
    """Return `url` when its parts can be told apart. Raises ConfigError saying why not."""
    scheme, separator, _ = url.partition("://")
    if schemes is not None and (not separator or scheme not in schemes):
        raise ConfigError(f"broker URL {hide_password(url)!r}: its scheme is none of {schemes}")
    try:
        parts = urlsplit(url)
        if parts.scheme != "sentinel":  # which may have several addresses
            _ = parts.port  # judged where it is read
    except ValueError as error:
        raise ConfigError(f"broker URL {hide_password(url)!r}: {error}") from None
    return url


def kombu_url(url: str) -> str:
    """Return `url` as kombu reads it."""
    url = _without_valkey(url)
    if not url.startswith("unix://"):
        return url
    parts = urlsplit(url)
    database = dict(parse_qsl(parts.query)).get("db", "0")
    return f"redis+socket://{parts.path}?virtual_host={database}"


def redis_url(url: str) -> str:
    """Return `url` as redis-py reads it; a sentinel's is left to `open_sentinel`."""
    url = _without_valkey(url)
    if not url.startswith("redis+socket://"):
        return url
    parts = urlsplit(url.removeprefix("redis+"))
    options = dict(parse_qsl(parts.query))
    options["db"] = options.pop("virtual_host", "0").lstrip("/") or "0"
    user, at, _ = parts.netloc.rpartition("@")
    return f"unix://{user}{at}{parts.path}?{urlencode(options)}"


def _without_valkey(url: str) -> str:
    return re.sub(r"^valkey(s?)://", r"redis\1://", url)


def hide_password(url: str) -> str:
    """Return `url` without its password: what a message may show."""
    # Up to the last @, whatever stands between: a password may hold any of : @ / ? and #.
    shown = re.sub(r"(://[^:/?#]*):.*@", r"\1:***@", url, flags=re.DOTALL)
    # redis-py takes them in the query, too, for itself and for sentinels.
    return re.sub(r"([?&;][a-z_]*password=)[^&;]*", r"\1***", shown, flags=re.IGNORECASE)


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
    reason, _, _ = str(error).partition(" : <redis.")  # the whole of a sentinel's client
    return LinkError(f"no {where}: {reason:.{MAX_REASON_LENGTH}}")


def is_lost(error: BaseException) -> bool:
    """Say whether `error`, or a cause of it, means that a broker is away or not the master."""
    import redis

    away = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.ReadOnlyError, OSError)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LinkError | OSError | redis.RedisError):
            return isinstance(cause, (*away, LinkError))
        cause = cause.__cause__ or cause.__context__
    return False


def is_refused(error: BaseException) -> bool:
    """Say whether `error`, or a cause of it, is a broker that says no, and not a link lost."""
    import redis
    from amqp.exceptions import ChannelError, IrrecoverableConnectionError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ChannelError | IrrecoverableConnectionError):
            return True
        if isinstance(cause, OSError | redis.RedisError):
            return False
        cause = cause.__cause__ or cause.__context__
    return not isinstance(error, LinkError)


def is_refusal(error: Exception) -> bool:
    """Say whether the server means this one key, such as one of a wrong type."""
    import redis

    # What it says of itself has classes of its own.
    return type(error) is redis.ResponseError and not str(error).startswith(PASSING)


@contextlib.contextmanager
def link_errors(url: str, on_lost: Callable[[str], None] | None = None) -> Iterator[None]:
    """Turn errors of redis-py into LinkError; tell `on_lost` where the server is away."""
    import redis

    try:
        yield
    except (redis.RedisError, OSError) as error:
        if on_lost is not None and is_lost(error):
            on_lost(url)
        # What redis-py and its causes have to say is in the text.
        raise link_error(url, error) from None


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

    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": redis.retry.Retry(
            redis.backoff.NoBackoff(), 1, supported_errors=(redis.ConnectionError,)
        ),
        "client_name": client_name,
    }
    plain = redis_url(url)
    if not plain.startswith("unix://"):
        options |= {"socket_keepalive": True, "socket_keepalive_options": tcp_keepalive()}
    if plain.startswith("sentinel://"):
        return open_sentinel(plain, options=options)
    client: Redis = redis.Redis.from_url(plain, **options)
    return client


def open_sentinel(
    url: str,
    *,
    options: dict[str, Any],
    master: str | None = None,
    sentinel_options: dict[str, Any] | None = None,
) -> Redis:
    """Return a client of whichever server the sentinels at `url` call the master.

    options: of redis-py, for the master; its timeouts hold for the sentinels too.
    Raises ConfigError where nothing names the master.
    """
    import redis

    parts = urlsplit(url)
    master = master or dict(parse_qsl(parts.query)).get("master_name")
    if not master:
        raise ConfigError(
            f"broker URL {hide_password(url)!r}: a sentinel needs `master_name`, in the "
            "URL's query or the transport options"
        )
    secret, _, hosts = parts.netloc.rpartition("@")
    user, _, password = secret.partition(":")
    nodes = []
    for host in hosts.split(","):
        name, _, port = host.rpartition(":") if ":" in host else (host, "", "")
        nodes.append((name or "localhost", int(port or SENTINEL_PORT)))
    # Its own default tries ten times, ever more slowly.
    own = ("socket_timeout", "socket_connect_timeout", "retry")
    timeouts = {name: options[name] for name in own}
    sentinel = redis.sentinel.Sentinel(
        nodes,
        sentinel_kwargs=timeouts | (sentinel_options or {}),
        **options,
        username=unquote(user) or None,
        password=unquote(password) or None,
        db=int(parts.path.strip("/") or 0),
    )
    client: Redis = sentinel.master_for(master, redis.Redis)
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
