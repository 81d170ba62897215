"""The pools of an app: those that its tasks require, and those that it is told of."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError, LeaseError, LinkError
from blimp.queue.resources.grant import Outcome, Ticket
from blimp.queue.resources.pool import RELEASE_TASK, ResourcePool
from blimp.queue.resources.pool_keys import pool_keys
from blimp.queue.worker.middleware.requires import Requires

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp

DEFAULT_TTL_S = 600.0


class Pools:
    """Executor pools by name, on the app's `broker_link`. Thread-safe.

    `app.pools["ships"]` is that pool, whether or not it was declared; only the names that
    were, or that a task requires, are iterated. An app that has one has the task
    `blimp.release` too, which `ExecutorPool.release_signature` calls.
    """

    def __init__(self, app: TaskApp) -> None:
        self._app = app
        self._ttl_s: dict[str, float] = {}
        self._pools: dict[str, ResourcePool] = {}
        self._lock = threading.Lock()

    def declare(self, name: str, *, ttl_s: float = DEFAULT_TTL_S) -> None:
        """Say how long a grant of pool `name` lasts unless it is renewed.

        Raises ConfigError where it is in use with another time already.
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
        """Have pool `name` be known. Raises ConfigError for what can be no name."""
        pool_keys(name)
        if not any(isinstance(layer, Requires) for layer in self._app.middleware):
            raise ConfigError(
                f"app {self._app.name!r}: its middleware has no Requires, so that a task would "
                f"run without the executor of {name!r} that it requires"
            )
        with self._lock:
            self._ttl_s.setdefault(name, DEFAULT_TTL_S)
            is_new = RELEASE_TASK not in self._app.tasks
        if is_new:
            self._app.task(name=RELEASE_TASK, autoretry_for=(LinkError,), max_retries=None)(
                self._release
            )

    def __getitem__(self, name: str) -> ResourcePool:
        """Raises ConfigError where the app has no Redis server, or it can be no name."""
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
        """Give back what `grant` says, once, and return what was found.

        A callback may hand it a result before; it is nothing to it. Raises LeaseError for what
        was never a grant.
        """
        ticket = Ticket.read(grant)
        found = self[ticket.pool].release(ticket)
        if found.outcome is Outcome.FORGED:
            raise LeaseError(str(found))
        return str(found)
