"""A pool's server: its script, what that answers, and how a waiting holder is woken."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.closing import Closing
from blimp.errors import ConfigError, LeaseError
from blimp.queue.redis.clock import READ_CLOCK, monotonic_words
from blimp.queue.redis.scripts import Script
from blimp.queue.redis.urls import link_errors

if TYPE_CHECKING:
    from redis import Redis

    from blimp.queue.redis.client import RedisServer

WRONG_TYPE = "POOLTYPE"
RETRY_S = 0.2  # between two attempts of a waiting holder whose subscription was refused

_SCRIPT = Script(READ_CLOCK + (Path(__file__).parent / "pool.lua").read_text())


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place among those that wait: how many are before it, for how many resources."""

    before: int
    resources: int


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a resource, since when, and how long unless it is renewed.

    leaving: the resource leaves the pool when it is released.
    """

    resource: str
    holder: str
    token: int
    held_s: float
    left_s: float
    leaving: bool = False


class PoolStats(msgspec.Struct, frozen=True, kw_only=True):
    """A pool at one moment, and its counters since it was made.

    free: resources, in the order in which they will be granted. waiting: holders, in order.
    token: the last one; before the first grant, the server's time in µs when the pool was made.
    acquired: grants. again: a holder asked for what it had. released: returned by its holder.
    double_released: releases of what was released. expired: grants that were not renewed.
    refused: asked for and not granted. stale: releases of what had ended otherwise; forged: of
    what never was. superseded, taken_away: grants that were ended for another. lost: renewals
    of a grant that had ended. gone: waiting holders that stopped asking. repaired: the pool's
    keys were damaged, and rebuilt.
    """

    name: str
    free: tuple[str, ...]
    busy: tuple[Holding, ...]
    waiting: tuple[str, ...]
    token: int = 0
    acquired: int = 0
    again: int = 0
    renewed: int = 0
    released: int = 0
    double_released: int = 0
    expired: int = 0
    refused: int = 0
    stale: int = 0
    forged: int = 0
    superseded: int = 0
    taken_away: int = 0
    lost: int = 0
    gone: int = 0
    repaired: int = 0
    added: int = 0
    removed: int = 0

    @property
    def size(self) -> int:
        return len(self.free) + len(self.busy)


COUNTERS = frozenset(PoolStats.__struct_fields__) - {"name", "free", "busy", "waiting"}


class PoolServer:
    """Runs the script on a redis-py client, or on an app's `broker_link`: the broker in use."""

    def __init__(self, client: Redis | RedisServer) -> None:
        self._given: Any = client
        self._is_link = hasattr(client, "ask")
        if not self._is_link and not hasattr(client, "execute_command"):
            raise ConfigError(
                f"a pool's client must be a redis.Redis, or an app's broker_link: {client!r:.60}"
            )

    @property
    def client(self) -> Any:
        return self._given.client if self._is_link else self._given

    def run(self, keys: list[str], args: list[Any]) -> Any:
        """Run the script; texts come back as `str`.

        Raises LinkError, and LeaseError naming a key of the wrong type; nothing changed then.
        """

        if self._is_link:
            return _text(self._given.ask(lambda client: _run(client, keys, args)))
        about = self._given.connection_pool.connection_kwargs
        with link_errors(str(about.get("path") or f"{about.get('host')}:{about.get('port')}")):
            return _text(_run(self._given, keys, args))


def _run(client: Any, keys: list[str], args: list[Any]) -> Any:
    from redis.exceptions import ResponseError

    try:
        return _SCRIPT.run(client, keys, [*args[:2], monotonic_words(), *args[2:]])
    except ResponseError as error:
        _, found, reason = str(error).partition(f"{WRONG_TYPE} ")
        if not found:
            raise
        raise LeaseError(f"{reason}: it is not this pool's; nothing changed") from None


def read_stats(name: str, answer: Any) -> PoolStats:
    """Return what the operation `look` answered. A damaged counter is 0, from which it goes on."""
    counters, free, busy, waiting = answer
    found = dict(zip(counters[::2], counters[1::2], strict=True))
    numbers = {
        one: int(text)
        for one, text in found.items()
        if one in COUNTERS and text.isascii() and text.isdecimal()
    }
    return PoolStats(
        name=name, free=tuple(free), busy=read_holdings(busy), waiting=tuple(waiting), **numbers
    )


def read_holdings(rows: list[list[str]]) -> tuple[Holding, ...]:
    return tuple(
        Holding(
            resource=resource,
            holder=holder,
            token=int(token),
            held_s=int(held_us) / 1e6,
            left_s=max(0.0, int(left_us) / 1e6),
            leaving=leaving == "1",
        )
        for resource, holder, token, held_us, left_us, leaving in rows
    )


def _text(answer: Any) -> Any:
    """Return `answer` with its bytes as text, whether or not the client decodes them."""
    if isinstance(answer, bytes):
        return answer.decode(errors="backslashreplace")
    if isinstance(answer, list):
        return [_text(part) for part in answer]
    return answer


class Wakeup(Closing):
    """A subscription to the channel of one waiting holder. Used by one thread.

    It never raises for its server: the holder asks again soon, woken or not.
    """

    def __init__(self, *, server: PoolServer, channel: str) -> None:
        self._server = server
        self._channel = channel
        self._pubsub: Any = None

    def listen(self) -> None:
        """Subscribe if that is not done; the subscription is in force on return.

        Those that wait leave half of an app's connections to what they wait for: the others of them
        ask every RETRY_S.
        """
        pool = self._server.client.connection_pool
        if self._pubsub is None and not getattr(pool, "is_half_used", False):
            self._pubsub = self._server.client.pubsub()
            with self._closing_if_lost():
                self._pubsub.subscribe(self._channel)
                self._pubsub.get_message(timeout=1.0)  # confirmed: no message is missed after it

    def wait(self, timeout_s: float) -> None:
        """Return when woken, after `timeout_s`, or sooner if the connection is lost."""
        if self._pubsub is None:
            threading.Event().wait(min(timeout_s, RETRY_S))
            return
        with self._closing_if_lost():
            received = self._pubsub.get_message(timeout=timeout_s)
            while received is not None:  # woken more than once: asking once is enough
                received = self._pubsub.get_message(timeout=0.0)

    @contextlib.contextmanager
    def _closing_if_lost(self) -> Iterator[None]:
        from redis.exceptions import RedisError

        try:
            yield
        except (RedisError, OSError):
            self.close()

    def close(self) -> None:
        """Give up the subscription. Idempotent."""
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            with contextlib.suppress(Exception):
                pubsub.close()
