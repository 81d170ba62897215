"""The pools of an app: those that its tasks require, and those that were declared."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from blimp.errors import ConfigError, LeaseError, LinkError
from blimp.queue.resources.grant import ReleaseOutcome, Ticket
from blimp.queue.resources.pool import RELEASE_TASK, ResourcePool, check_pool

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.redis.client import RedisServer

DEFAULT_TTL_S = 600.0


class PoolsApp(Protocol):
    """What pools need of a TaskApp."""

    name: str
    clock: Clock
    middleware: Any

    @property
    def broker_link(self) -> RedisServer: ...

    @property
    def tasks(self) -> Mapping[str, Any]: ...

    @property
    def task(self) -> Callable[..., Any]: ...


class Pools:
    """Resource pools by name, on the app's `broker_link`. Thread-safe.

    `app.pools["ships"]` is that pool, declared or not; iteration yields only the names that
    were declared, or that a task requires. An app with one of these has the task
    `blimp.release`, too, which `ResourcePool.release_signature` calls.
    """

    def __init__(self, app: PoolsApp) -> None:
        self._app = app
        self._ttl_s: dict[str, float] = {}
        self._pools: dict[str, ResourcePool] = {}
        self._lock = threading.Lock()

    def declare(self, name: str, *, ttl_s: float = DEFAULT_TTL_S) -> None:
        """Set how long a grant of pool `name` lasts unless it is renewed.

        Raises ConfigError if the pool is in use with another time to live.
        """
        self.require(name)
        with self._lock:
            used = self._pools.get(name)
            if used is not None and used.ttl_s != ttl_s:
                raise ConfigError(
                    f"pool {name!r} of app {self._app.name!r} is in use with a time to live of "
                    f"{used.ttl_s:g} s: declare it before"
                )
            self._ttl_s[name] = ttl_s

    def require(self, name: str) -> None:
        """Make pool `name` known. Raises ConfigError for what cannot be a name."""
        check_pool(name)
        layers: Iterable[Any] | None = self._app.middleware  # None: the worker's default
        if layers is not None and not any(getattr(one, "grants", False) for one in layers):
            raise ConfigError(
                f"app {self._app.name!r}: its middleware has no Requires, so that a task would "
                f"run without the resource of {name!r} that it requires"
            )
        with self._lock:
            self._ttl_s.setdefault(name, DEFAULT_TTL_S)
            is_new = RELEASE_TASK not in self._app.tasks
        if is_new:
            register = self._app.task(
                name=RELEASE_TASK, autoretry_for=(LinkError,), max_retries=None
            )
            register(self._release)

    def __getitem__(self, name: str) -> ResourcePool:
        """Raises ConfigError if the app has no Redis server, or `name` cannot be a name."""
        with self._lock:
            pool = self._pools.get(name)
            if pool is None:
                pool = self._pools[name] = ResourcePool(
                    self._app.broker_link,
                    name,
                    ttl_s=self._ttl_s.get(name, DEFAULT_TTL_S),
                    clock=self._app.clock,
                )
            return pool

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._ttl_s))

    def _release(self, *_results: Any, grant: Any) -> str:
        """Release `grant`, once, and return what was found.

        Results that a callback gets first are ignored. Raises LeaseError for what never was a
        grant.
        """
        ticket = Ticket.read(grant)
        found = self[ticket.pool].release(ticket)
        if found.outcome is ReleaseOutcome.FORGED:
            raise LeaseError(str(found))
        return str(found)
