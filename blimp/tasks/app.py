"""TaskApp: the tasks that belong together, and the broker they travel through."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack, overload

from blimp.clock import Clock, SystemClock
from blimp.closing import Closing
from blimp.errors import ConfigError, UnknownTask
from blimp.tasks.broker_clock import BrokerClock
from blimp.tasks.carrier import STREAMS, choose_transport, is_on_redis
from blimp.tasks.message import MAX_MESSAGE_BYTES, NORMAL, TaskMessage
from blimp.tasks.middleware import default_middleware
from blimp.tasks.options import TaskKeywords, check_priority, options_of
from blimp.tasks.publisher import Publisher
from blimp.tasks.results.handle import ResultHandle
from blimp.tasks.results.redis import RedisResults
from blimp.tasks.task import Task
from blimp.tasks.urls import check_url

if TYPE_CHECKING:
    from blimp.tasks.boot import BootStep
    from blimp.tasks.broadcast import BroadcastHandler
    from blimp.tasks.middleware import Middleware


class TaskApp(Closing):
    """A registry of tasks with a broker. Connects on first use. A context manager.

        app = TaskApp("weather", broker="redis://localhost/0", result_backend="redis://localhost/0")

        @app.task(name="weather.read", autoretry_for=(OSError,))
        def read(station: str) -> float: ...

    broker: `redis://`, `rediss://`, `redis+socket://` or `unix://` URL; `amqp://` or
        `memory://` for what those can do.
    result_backend: a Redis URL, or None to keep no results.
    queue: where its tasks go unless told otherwise; the app's name by default.
    limit_bytes: messages and results above it are refused.
    transport: "streams", which loses nothing; or "redis" (kombu's own), "amqp", "memory" or
        any of kombu's as "module:Class": a worker says at its start what is missing then.
    """

    def __init__(
        self,
        name: str,
        *,
        broker: str,
        result_backend: str | None = None,
        queue: str | None = None,
        middleware: Iterable[Middleware] | None = None,
        limit_bytes: int = MAX_MESSAGE_BYTES,
        timeout_s: float = 2.0,
        clock: Clock | None = None,
        transport: str | None = None,
    ) -> None:
        self.name = name
        self.transport = choose_transport(transport, broker)
        self.broker = check_url(broker) if is_on_redis(self.transport) else broker
        self.queue = queue or name
        self.limit_bytes = limit_bytes
        self.timeout_s = timeout_s
        self.clock: Clock = clock or SystemClock()
        self.log_level = "info"  # of what a worker writes on standard error
        self.tasks: dict[str, Task] = {}
        self.broadcasts: dict[str, BroadcastHandler] = {}
        self.boot_steps: list[BootStep] = []
        self.link_watchers: list[Callable[[bool], None]] = []
        self.result_backend = result_backend
        self.results = None if result_backend is None else self._redis(check_url(result_backend))
        # Its own, not that of `results`: where the broker is the server, both are used at once.
        server = broker if is_on_redis(self.transport) else result_backend
        self._store = None if server is None else self._redis(server)
        self.broker_clock = BrokerClock(link=self._store, clock=self.clock)
        self.publisher = Publisher(url=broker, timeout_s=timeout_s, transport=self.transport)
        self.middleware: tuple[Middleware, ...] = tuple(
            default_middleware(self) if middleware is None else middleware
        )
        self._origin = f"{os.getpid()}@{socket.gethostname()}"

    @property
    def completes_at_once(self) -> bool:
        """Whether a result and its acknowledgement are one step: same server, our transport."""
        return self.transport == STREAMS and self.result_backend == self.broker

    @property
    def broker_link(self) -> RedisResults:
        """The Redis server beside the queues, for what kombu has no word for.

        The broker itself, or where that is none, the one that keeps the results. Raises
        ConfigError where there is neither.
        """
        if self._store is None:
            raise ConfigError(
                f"app {self.name!r}: transport {self.transport!r} has no Redis server"
            )
        return self._store

    @property
    def has_store(self) -> bool:
        """Whether there is a `broker_link`."""
        return self._store is not None

    @overload
    def task(self, function: Callable[..., Any], /) -> Task: ...

    @overload
    def task(self, /, **keywords: Unpack[TaskKeywords]) -> Callable[[Callable[..., Any]], Task]: ...

    def task(
        self, function: Callable[..., Any] | None = None, /, **keywords: Unpack[TaskKeywords]
    ) -> Task | Callable[[Callable[..., Any]], Task]:
        """Register a function, plain or `async def`, as a task; see TaskKeywords.

        Raises ConfigError for a name that is taken, or an option that there is not.
        """
        options = options_of(keywords)

        def register(function: Callable[..., Any]) -> Task:
            default = f"{function.__module__}.{function.__qualname__}"
            name = keywords.get("name") or default
            task = Task(app=self, name=name, function=function, options=options)
            if task.name in self.tasks:
                raise ConfigError(f"app {self.name!r}: two tasks are named {task.name!r}")
            self.tasks[task.name] = task
            return task

        return register if function is None else register(function)

    def get_task(self, name: str) -> Task:
        """Return the task called `name`. Raises UnknownTask naming those there are."""
        try:
            return self.tasks[name]
        except KeyError:
            known = ", ".join(sorted(self.tasks)) or "none"
            raise UnknownTask(f"no task {name!r} in app {self.name!r}; it has: {known}") from None

    def send_task(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        countdown: float | None = None,
        eta: datetime | None = None,
        expires: float | datetime | None = None,
        ttl_s: float | None = None,
        priority: int = NORMAL,
        queue: str | None = None,
        task_id: str | None = None,
        ignore_result: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> ResultHandle:
        """Send a task by name, whether or not it is registered here.

        countdown, eta: not to begin before then. expires: not to begin after then (seconds
        from now, or a time). ttl_s: not to begin when older than this on the broker's
        clock. priority: 0 (first) to 9 (last). Raises LinkError where the broker is away.
        """
        now_s = self.broker_clock.now_s()
        if eta is not None:
            eta_s: float | None = eta.timestamp()
        else:
            eta_s = None if countdown is None else now_s + countdown
        if isinstance(expires, datetime):
            expires_s: float | None = expires.timestamp()
        else:
            expires_s = None if expires is None else now_s + expires
        message = TaskMessage(
            id=task_id or str(uuid.uuid4()),
            task=name,
            args=tuple(args),
            kwargs=dict(kwargs or {}),
            queue=queue or self.queue,
            priority=check_priority(priority),
            eta_s=eta_s,
            expires_s=expires_s,
            issued_ms=int(now_s * 1000),
            ttl_s=ttl_s,
            ignore_result=ignore_result,
            origin=self._origin,
            headers=headers or {},
        )
        self.publisher.publish(message)
        return self.result(message.id)

    def result(self, id: str) -> ResultHandle:
        return ResultHandle(id=id, results=self.results, clock=self.clock)

    # --- emergency broadcast and link ------------------------------------------------------

    @property
    def emergency_exchange(self) -> str:
        return f"{self.name}.emergency"

    def on_broadcast(self, name: str) -> Callable[[BroadcastHandler], BroadcastHandler]:
        """Register what a worker does at once on `broadcast(name, …)`, past every queue.

        The handler gets the broadcast and returns what confirms it (JSON), or None where it
        could not act: it is then called again when the sender repeats itself.
        """

        def register(handler: BroadcastHandler) -> BroadcastHandler:
            if name in self.broadcasts:
                raise ConfigError(f"app {self.name!r}: two handlers for broadcast {name!r}")
            self.broadcasts[name] = handler
            return handler

        return register

    def broadcast(
        self, name: str, payload: dict[str, Any] | None = None, *, id: str | None = None
    ) -> ResultHandle:
        """Tell every listening worker at once; repeat with the same `id` until confirmed.

        Raises LinkError where the broker is away.
        """
        id = id or str(uuid.uuid4())
        self.publisher.broadcast(
            self.emergency_exchange, {"id": id, "name": name, "payload": payload or {}}
        )
        return self.result(id)

    def on_link(self, watcher: Callable[[bool], None]) -> Callable[[bool], None]:
        """Register what a worker calls about once a second: did the broker answer just now?"""
        self.link_watchers.append(watcher)
        return watcher

    def boot_step(self, step: BootStep) -> BootStep:
        """Have a worker start `step` before it consumes, and stop it, in reverse order, after.

        A step has the coroutines `start(worker)` and `stop(worker)`; one that does not start
        ends the worker.
        """
        self.boot_steps.append(step)
        return step

    # --- life ------------------------------------------------------------------------------

    def _redis(self, url: str) -> RedisResults:
        return RedisResults(
            url=url, clock=self.clock, limit_bytes=self.limit_bytes, timeout_s=self.timeout_s
        )

    def close(self) -> None:
        self.publisher.close()
        if self._store is not None:
            self._store.close()
        if self.results is not None:
            self.results.close()
