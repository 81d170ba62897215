"""Broker and result URLs: kombu's and redis-py's spelling of the same server.

kombu writes a Unix socket as `redis+socket:///path?virtual_host=0`, redis-py as
`unix:///path?db=0`; `redis://` and `rediss://` are the same in both. `valkey://` and
`valkeys://` are other words for them. A sentinel's URL names the master in its query:
`sentinel://host:26379,host2:26379/0?master_name=flight`, or before the database in its path:
`sentinel://host:26379,host2:26379/flight/0`. A cluster's names some of its nodes and the hash tag
of all keys: `cluster://host:6379,host2:6379/weather`.

`Brokers`: which URLs a program has, and which of them is in use.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from blimp.errors import ConfigError, LinkError, NotAuthorised
from blimp.queue.redis.address import (
    MEMORY,
    RABBIT_SCHEMES,
    REDIS_SCHEMES,
    SEVERAL,
    SOCKETS,
    Address,
    read_address,
)

SCHEMES = REDIS_SCHEMES
DEFAULT_PORT = 6379
NODE_PORTS = {"sentinel": 26379, "cluster": DEFAULT_PORT}
MAX_REASON_LENGTH = 300
# Errors that end by themselves: no memory, no disk, not the master, too few replicas.
PASSING = ("OOM", "MISCONF", "READONLY", "NOREPLICAS", "MASTERDOWN", "LOADING", "BUSY")


def address_of(url: str, *, schemes: Collection[str] | None = None) -> Address:
    """Return the parts of `url`. Raises ConfigError saying why it cannot be used."""
    scheme, separator, _ = url.partition("://")
    if schemes is not None and (not separator or scheme not in schemes):
        raise ConfigError(f"broker URL {hide_password(url)!r}: its scheme must be one of {schemes}")
    try:
        return read_address(url)
    except ValueError as error:
        raise ConfigError(f"broker URL {hide_password(url)!r}: {error}") from None


def check_address(url: str, *, schemes: Collection[str] | None = None) -> str:
    """Return `url` if it can be used. Raises ConfigError saying why not."""
    address_of(url, schemes=schemes)
    return url


check_url = partial(check_address, schemes=SCHEMES)  # of a Redis server


def redis_url(url: str) -> str:
    """Return `url` as redis-py reads it; a sentinel's stays as it is."""
    url = re.sub(r"^valkey(s?)://", r"redis\1://", url)
    if not url.startswith("redis+socket://"):
        return url
    parts = urlsplit(url.removeprefix("redis+"))
    options = dict(parse_qsl(parts.query))
    options["db"] = options.pop("virtual_host", "0").lstrip("/") or "0"
    user, at, _ = parts.netloc.rpartition("@")
    return f"unix://{user}{at}{parts.path}?{urlencode(options)}"


def hide_password(url: str) -> str:
    """Return `url` without its password: what a message may show."""
    # Up to the last @, whatever stands between: a password may hold any of : @ / ? and #, and so
    # may a user's name before it. A socket's path may hold them, too, and is no secret.
    is_path = re.match(rf"({'|'.join(map(re.escape, SOCKETS))}|db\+sqlite)://(?:/|$)", url)
    name = r"[^:/?#]*" if is_path else "[^:]*"
    shown = re.sub(rf"(://{name}):.*@", r"\1:***@", url, count=1, flags=re.DOTALL)
    # Without an @, what should be a port is no number: it may be a password.
    shown = re.sub(r"(://[^:/?#@,\[\]]*):(?!\d*(?:[/?#,;]|$))[^@]*$", r"\1:***", shown)
    # redis-py takes them in the query, too, for itself and for sentinels.
    return re.sub(r"([?&;][a-z_]*password=)[^&;]*", r"\1***", shown, flags=re.IGNORECASE)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error`, what caused it, what caused that, …"""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def link_error(url: str, error: BaseException) -> LinkError:
    """Return what `error`, of kombu or redis-py, means: no broker there, or one that says no."""
    import redis
    from amqp.exceptions import AccessRefused

    refusals = (redis.AuthenticationError, redis.exceptions.NoPermissionError, AccessRefused)
    where = f"broker at {hide_password(url)}"
    for cause in _causes(error):
        if isinstance(cause, refusals):
            return NotAuthorised(f"{where} refuses: {cause}")
        if isinstance(cause, redis.ResponseError):
            return LinkError(f"{where}: {cause}")
    reason, _, _ = str(error).partition(" : <redis.")  # the whole of a sentinel's client
    return LinkError(f"no {where}: {reason:.{MAX_REASON_LENGTH}}")


def is_lost(error: BaseException) -> bool:
    """Say whether `error`, or a cause of it, means that a broker is lost, or not the master."""
    import redis

    lost = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.ReadOnlyError)
    for cause in _causes(error):
        if isinstance(cause, LinkError | OSError | redis.RedisError):
            return isinstance(cause, (*lost, LinkError, OSError))
    return False


def is_refused(error: BaseException) -> bool:
    """Say whether `error`, or a cause of it, is a broker that says no, and not a link lost."""
    import redis
    from amqp.exceptions import ChannelError, IrrecoverableConnectionError

    for cause in _causes(error):
        if isinstance(cause, ChannelError | IrrecoverableConnectionError):
            return True
        if isinstance(cause, OSError | redis.RedisError):
            return False
    return not isinstance(error, LinkError)


def is_refusal(error: Exception) -> bool:
    """Say whether the server means this one key, such as one of a wrong type."""
    import redis

    # What it says of itself has classes of its own.
    return type(error) is redis.ResponseError and not str(error).startswith(PASSING)


@contextlib.contextmanager
def link_errors(url: str, on_lost: Callable[[str], None] | None = None) -> Iterator[None]:
    """Turn errors of redis-py into LinkError; call `on_lost` if the server is unreachable."""
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


def _in_turn(urls: Sequence[str]) -> Iterator[str]:
    """Yield `urls` for ever, from the second on: the first is in use."""
    return itertools.islice(itertools.cycle(urls), 1, None)


def _shuffle(urls: Sequence[str]) -> Iterator[str]:
    """Yield `urls` for ever: each once in every round, the rounds in no order."""
    chance = random.Random()
    last = urls[0]
    while True:
        order = list(urls)
        chance.shuffle(order)
        if order[0] == last:
            order.append(order.pop(0))
        yield from order
        last = order[-1]


STRATEGIES = {"round-robin": _in_turn, "shuffle": _shuffle}


class Brokers:
    """One or several URLs; every part of a program uses the same one. Thread-safe.

    urls: a URL, several in one text with `;` between them, or a sequence.
    strategy: what comes after one that does not answer: "round-robin" or "shuffle".
    schemes: those the URLs may have; None: any.
    Raises ConfigError for a URL or a strategy that there is not.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        strategy: str = "round-robin",
        schemes: Collection[str] | None = None,
    ) -> None:
        self.urls = split_urls(urls)
        for url in self.urls:
            check_address(url, schemes=schemes)
        if strategy not in STRATEGIES:
            names = sorted(STRATEGIES)
            raise ConfigError(f"failover strategy {strategy!r:.80}: must be one of {names}")
        self._lock = threading.Lock()
        self.current = self.urls[0]  # the URL in use
        self._order = STRATEGIES[strategy](self.urls)

    def __len__(self) -> int:
        return len(self.urls)

    def __str__(self) -> str:
        return ";".join(hide_password(url) for url in self.urls)

    def failed(self, url: str) -> None:
        """`url` does not answer: have the next in use, unless another is already."""
        with self._lock:
            if len(self.urls) > 1 and url == self.current:
                self.current = next(self._order)


def split_urls(urls: str | Sequence[str]) -> tuple[str, ...]:
    """Return each URL of a list, or of a text with `;` before the next scheme.

    Only of a scheme that there is: a password may hold a `;` and what looks like another one.
    """
    schemes = "|".join(map(re.escape, (*REDIS_SCHEMES, *RABBIT_SCHEMES, MEMORY)))
    parts = re.split(rf";\s*(?=(?:{schemes})://)", urls) if isinstance(urls, str) else urls
    found = tuple(dict.fromkeys(part.strip(" ;") for part in parts))
    if not found:
        raise ConfigError("broker: must name at least one URL")
    return found


def public_parts(url: str) -> dict[str, Any]:
    """Return what everybody may see of `url`, by the names of a kombu.Connection's attributes.

    Raises ConfigError, without any secret in its text.
    """
    # kombu calls a Unix socket `socket://`, too.
    address = address_of(url, schemes=(*SCHEMES, "socket"))
    hosts, port = address.path or address.shown_hosts, None
    if address.hosts and address.scheme not in SEVERAL:  # whose addresses have ports of their own
        ((hosts, port),) = address.hosts
        port = port or DEFAULT_PORT
    return {
        "hostname": hosts,
        "port": port,
        "userid": address.username,
        "virtual_host": str(address.database),
    }
