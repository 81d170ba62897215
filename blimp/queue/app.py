"""TaskApp: the tasks that belong together, and the broker they travel through.

Tested by test_settings.py.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import msgspec

from blimp.clock import Clock, SystemClock
from blimp.closing import Closing
from blimp.errors import ConfigError, LinkError, ResultError, UnknownTask
from blimp.queue.brokers import broker_for
from blimp.queue.extensions import FOLLOW_UPS, KEPT, SCHEDULES, Hooks, Middleware
from blimp.queue.located import ByName, app_at, path_of_app
from blimp.queue.log import stderr_logger
from blimp.queue.neighbours import load, neighbour
from blimp.queue.options import (
    TaskKeywords,
    UnboundKeywords,
    limited,
    options_of,
    remote_control_mode,
)
from blimp.queue.protocol.annotated import P, R
from blimp.queue.protocol.embed import MAP, STARMAP
from blimp.queue.protocol.signing import Signer
from blimp.queue.publish.revocations import BROADCAST, Revocation, Revocations
from blimp.queue.redis.client import RedisServer
from blimp.queue.redis.clock import BrokerClock
from blimp.queue.redis.urls import SCHEMES, Brokers
from blimp.queue.results.backend import (
    awaited,
    database_url,
    warn_of_waiting,
)
from blimp.queue.results.redis_backend import RedisResults
from blimp.queue.retry import (
    CONNECTING,
    ONCE,
    PUBLISHING,
    Outage,
    policy_of,
)
from blimp.queue.settings import AppKeywords, app_settings
from blimp.queue.task import Task, builtin_task, map_task, name_of

if TYPE_CHECKING:
    from blimp.queue.canvas.parts import Chords
    from blimp.queue.context import RegisterBound, TaskContext
    from blimp.queue.dependencies import Kept
    from blimp.queue.extensions import FollowUps
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.publish.publisher import Publisher, SendOptions
    from blimp.queue.redis.fleet import Fleet
    from blimp.queue.resources.pool import Pools
    from blimp.queue.results.awaiting import Awaiting
    from blimp.queue.results.backend import ResultBackend
    from blimp.queue.results.handle import AsyncResult
    from blimp.queue.task import Register


class TaskApp(Hooks, Closing, ByName):
    """A registry of tasks with a broker. Connects on first use. A context manager.

        app = TaskApp("weather", broker="redis://localhost/0", result_backend="redis://localhost/0")

        @app.task(name="weather.read", autoretry_for=(OSError,))
        def read(station: str) -> float: ...

    broker: a URL: `redis://`, `rediss://`, `redis+socket://`, `unix://`, `valkey://`,
        `valkeys://`, `sentinel://` or `cluster://`; `amqp://` or `memory://` with fewer guarantees.
        Or several, in a list or with `;` between them: if one does not answer, the next is used,
        by `failover_strategy`.
    result_backend: a Redis URL, or several; `db+sqlite:///file` or
        `db+postgresql+psycopg://…`; or None to keep no results.
    keywords: see AppSettings, and ResultOptions for how results are kept: `result_extended`,
        `result_expires_s`, `database_…`. Raises ConfigError for a wrong one.
    """

    task_class: type[Task] = Task  # of what `task` makes

    def __init__(
        self,
        name: str,
        *,
        broker: str | Sequence[str],
        result_backend: str | Sequence[str] | None = None,
        clock: Clock | None = None,
        **keywords: Unpack[AppKeywords],
    ) -> None:
        super().__init__(name)
        self.settings = settings = app_settings(keywords)
        self.brokers = Brokers(broker, strategy=settings.failover_strategy)
        self.broker_kind = broker_for(self.brokers.urls, name=settings.transport)
        self.transport = self.broker_kind.name
        self.capabilities = self.broker_kind.capabilities
        self.queue = settings.queue or name
        self.limit_bytes = settings.limit_bytes
        self.timeout_s = settings.timeout_s
        self.clock: Clock = clock or SystemClock()
        self.log_level = "info"  # of what a worker writes on standard error
        self.make_log: Callable[..., Any] = stderr_logger
        self.tracer: Any = None  # of what is sent: its `sending(message)` is a context manager
        self.tasks: dict[str, Task] = {}
        self.signer = None if settings.signing_key is None else Signer(settings.signing_key)
        self.remote_control = remote_control_mode(
            settings.remote_control, is_signed=self.signer is not None
        )
        self.result_backend = result_backend
        self.result_options = settings.results
        database = database_url(result_backend)
        kept = None
        if result_backend is not None and database is None:
            kept = Brokers(result_backend, schemes=SCHEMES)
        # Whether results are kept on the broker itself.
        self.shares_server = kept is not None and kept.urls == self.brokers.urls
        kept = self.brokers if self.shares_server else kept  # they change over together
        store = self.brokers if self.capabilities.on_redis else kept
        self._store = None if store is None else self._server(store)
        self.has_store = store is not None  # whether there is a `broker_link`
        self.results: ResultBackend | None = None
        if kept is not None:
            self.results = RedisResults(
                server=self._store if self._store and kept is store else self._server(kept),
                clock=self.clock,
                keep_s=self.result_options.keep_s,
                limit_bytes=self.result_limit_bytes,
                signer=self.signer,
            )
        if database is not None:
            self.results = neighbour("db")(
                url=database,
                clock=self.clock,
                options=self.result_options,
                limit_bytes=self.result_limit_bytes,
                timeout_s=self.timeout_s,
                notify_server=self._store,
            )
        self.broker_clock = BrokerClock(link=self._store, clock=self.clock)
        self.revocations = Revocations(link=self._store, app=name, signer=self.signer)
        self.retry_policy = policy_of(settings.retry_policy, PUBLISHING) if settings.retry else ONCE
        self.connection_retry_policy = policy_of(settings.connection_retry_policy, CONNECTING)
        self.on_connection_error = settings.on_connection_error
        # None: the worker's default. Outside of it stands what extensions add.
        self.middleware = None if settings.middleware is None else tuple(settings.middleware)
        self.outer_middleware: tuple[Middleware, ...] = ()
        self.chance = random.Random()
        self.events = settings.events
        self.on_sent: Callable[..., None] | None = None  # (message, at_s=): a task was sent
        if settings.send_sent_event:
            self.on_sent = neighbour("sent events")(self).send

    def _server(self, urls: Brokers) -> RedisServer:
        most = self.settings.max_connections
        return RedisServer(urls, timeout_s=self.timeout_s, max_connections=most)

    @property
    def broker(self) -> str:
        """The broker in use: of several, the one that answered last."""
        return self.brokers.current

    @property
    def result_limit_bytes(self) -> int:
        """The most bytes of a result, and of what a step returns."""
        return self.result_options.result_limit_bytes or self.limit_bytes

    @property
    def longest_wait_s(self) -> float:
        """How long a consumer may block if nothing wakes it: longest without another broker."""
        return self.capabilities.longest_wait_s if len(self.brokers) == 1 else 1.0

    @property
    def completes_at_once(self) -> bool:
        """Whether a result and its acknowledgement are one step: same server, our transport."""
        return self.capabilities.atomic_completion and self.shares_server

    @property
    def broker_link(self) -> RedisServer:
        """The Redis server that keeps more than messages: ages, marks, pools, revocations.

        The broker itself, or the result backend if the broker is not one. Raises ConfigError if
        there is neither.
        """
        if self._store is None:
            raise ConfigError(
                f"app {self.name!r}: transport {self.transport!r} has no Redis server"
            )
        return self._store

    @cached_property
    def publisher(self) -> Publisher:
        """What sends its messages."""
        from blimp.queue.publish.publisher import Publisher  # a worker may send none

        made = Publisher(
            url=self.brokers,
            timeout_s=self.timeout_s,
            broker=self.broker_kind,
            limit_bytes=self.limit_bytes,
            signer=self.signer,
            policy=self.retry_policy,
            clock=self.clock,
            now_s=self.broker_clock.recent_s,
            server=self._store if self.capabilities.on_redis else None,
        )
        one: Publisher = vars(self).setdefault("publisher", made)  # of all threads that come first
        return one

    @cached_property
    def fleet(self) -> Fleet:
        """Its live workers. Raises ConfigError without a Redis server."""
        from blimp.queue.redis.fleet import Fleet  # only workers, and who asks about them

        return Fleet(link=self.broker_link, app=self.name, clock=self.clock)

    def versions(self) -> dict[str, str]:
        """Return the version of each of its tasks: another one takes other arguments."""
        return {name: task.version for name, task in self.tasks.items()}

    @cached_property
    def pools(self) -> Pools:
        """The pools of resources that its tasks may require, by name."""
        from blimp.queue.resources.pool import Pools  # most apps have none

        return Pools(self)

    @cached_property
    def kept(self) -> Kept:
        """What was made once for tasks that depend on it."""
        from blimp.queue.dependencies import Kept  # most tasks depend on nothing

        return Kept()

    def close_kept(self) -> None:
        """Close what was made once, but for what belongs to a loop. Raises what that raises."""
        if "kept" in vars(self):
            self.kept.close()

    @cached_property
    def awaiting(self) -> Awaiting:
        """The threads that wait for its coroutines."""
        from blimp.queue.results.awaiting import Awaiting  # without asyncio in plain programs

        return Awaiting(self)

    @cached_property
    def follow_ups(self) -> FollowUps:
        """What a worker writes after the tasks of canvases."""
        made: FollowUps = load(FOLLOW_UPS)(self)  # most workers run no canvas
        return made

    @cached_property
    def chords(self) -> Chords | None:
        """Where the parts of chords are counted, None without a Redis server."""
        from blimp.queue.canvas.parts import Chords  # most programs use none

        results = self.results
        link = results.server if isinstance(results, RedisResults) else self._store
        return (
            None
            if link is None
            else Chords(link=link, keep_s=self.chord_keep_s, signer=self.signer)
        )

    @property
    def chord_keep_s(self) -> int:
        """How long a chord is kept after its last part, 0 for ever.

        A day at least: a part may take longer than results are kept.
        """
        keep_s = 86_400 if self.results is None else self.results.keep_s
        return keep_s and max(86_400, keep_s)

    @property
    def chords_end_at_once(self) -> bool:
        """Whether the parts of chords are counted in the step that ends a delivery."""
        shares = self.shares_server or not isinstance(self.results, RedisResults)
        return self.capabilities.atomic_completion and shares

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload  # of a `bind` that is only known as a bool, the parameters are the function's
    def task(  # type: ignore[overload-overlap]
        self, /, *, bind: Literal[True], **keywords: Unpack[UnboundKeywords]
    ) -> RegisterBound: ...

    @overload
    def task(self, /, **keywords: Unpack[TaskKeywords]) -> Register: ...

    def task(
        self, function: Callable[..., Any] | None = None, /, **keywords: Unpack[TaskKeywords]
    ) -> Any:
        """Register a function, plain or `async def`, as a task; see TaskKeywords.

        Raises ConfigError for a name that is taken, or an option that there is not.
        """
        options = options_of(limited(keywords, self.settings))

        def register(function: Callable[..., Any]) -> Task:
            name = keywords.get("name") or name_of(function)
            task = self.task_class(app=self, name=name, function=function, options=options)
            if task.name in self.tasks:
                raise ConfigError(f"app {self.name!r}: two tasks are named {task.name!r}")
            if options.requires is not None:
                self.pools.require(options.requires)
            elif options.is_limited:
                self.pools.check_granted("its concurrency_key")
            if options.fair_key is not None and not self.capabilities.shares_fairly:
                raise ConfigError(
                    f"task {name!r}: fair_key needs a Redis or Valkey broker, and the transport of "
                    f"app {self.name!r} is {self.transport!r}"
                )
            if options.schedule is not None and SCHEDULES not in self.extensions:
                self.extensions.append(SCHEDULES)
            if task.has_dependencies and KEPT not in self.extensions:
                self.extensions.append(KEPT)
            self.tasks[task.name] = task
            return task

        return register if function is None else register(function)

    def import_tasks(self) -> None:
        """Import the modules that register tasks; by default the app's own does, or imports them.

        The command line and child processes call it once they have the app.
        """

    def direct_context(self, task: Task, args: Any, kwargs: Any) -> TaskContext:
        """Return what a bound task gets from `Task.call`."""
        from blimp.queue.context import DirectContext
        from blimp.queue.publish.publisher import make_message

        message = make_message(
            task.name,
            tuple(args),
            dict(kwargs),
            {},
            defaults=task.options,
            queue=self.queue,
            now_s=None,
            origin="",
        )
        return DirectContext(task, message)

    def get_task(self, name: str) -> Task:
        """Return the task called `name`. Raises UnknownTask naming those there are."""
        try:
            return self.tasks[name]
        except KeyError:
            if (found := builtin_task(self, name)) is not None:
                return found
            known = ", ".join(sorted(self.tasks)) or "none"
            reason = f"no task {name!r} in app {self.name!r}; it has: {known}"
            raise UnknownTask(reason, task=name) from None

    def task_for(self, message: TaskMessage) -> Task:
        """Return the task that `message` asks for. Raises UnknownTask, MessageError."""
        if message.task in (MAP, STARMAP):
            return map_task(self, message)
        return self.get_task(message.task)

    def send_task(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        **options: Unpack[SendOptions],
    ) -> AsyncResult:
        """Send a task by name; see SendOptions.

        Missing options default to those of the task, if it is registered here.
        Raises LinkError if no broker answers, MessageError if JSON cannot hold the arguments
        or the message is longer than the limit.
        """
        from blimp.queue.publish.publisher import send
        from blimp.queue.results.handle import AsyncResult  # a worker waits for none

        warn_of_waiting(self, "delay() or apply_async()", "adelay() or aapply_async()")
        id = send(self, name, args, kwargs, options)
        task = self.tasks.get(name)
        ignored = bool(options.get("ignore_result")) or (
            task is not None and task.options.ignore_result
        )
        return AsyncResult(id, app=self, task=name, ignored=ignored)

    asend_task = awaited(send_task)

    def send_canvas(
        self,
        signature: dict[str, Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Send a signature, chain, group or chord; see canvas/signature.py and SendOptions.

        Returns the handle of its result. Raises as `send_task` does, and ConfigError if there
        is no Redis server to count a chord.
        """
        from blimp.queue.canvas.send import send  # most programs send none

        warn_of_waiting(self, "delay() or apply_async()", "adelay() or aapply_async()")
        return send(self, signature, args, kwargs, **options)

    def send_many(
        self, signatures: Iterable[dict[str, Any]], **options: Unpack[SendOptions]
    ) -> list[AsyncResult]:
        """Send many signatures, as `add.s(1, 2)`; return the handle of each, in order.

        Some 200 go in one step, which a Redis broker takes whole or not at all; an iterator is
        read as they go. options: for each, instead of its own; `retry` and `retry_policy` hold for
        the steps. Raises PartlySent once the broker has some, before that as `send_canvas` does.
        """
        from blimp.queue.canvas.send import raise_partly, steps  # most programs send none

        warn_of_waiting(self, "send_many()", "asend_many()")
        sent: list[AsyncResult] = []
        try:
            for step in steps(self, signatures, dict(options)):
                sent += step()
        except Exception as error:
            raise_partly(sent, error)
        return sent

    async def asend_many(
        self, signatures: Iterable[dict[str, Any]], **options: Unpack[SendOptions]
    ) -> list[AsyncResult]:
        """Do what `send_many` does, from a coroutine: others go on while it waits."""
        from blimp.queue.canvas.send import raise_partly, steps

        sent: list[AsyncResult] = []
        try:
            for step in steps(self, signatures, dict(options)):
                sent += await self.awaiting.call(step)
        except Exception as error:
            raise_partly(sent, error)
        return sent

    def result(self, id: str) -> AsyncResult:
        """Return a handle on task `id`, from any sender."""
        from blimp.queue.results.handle import AsyncResult  # a worker waits for none

        return AsyncResult(id, app=self)

    def revoke(self, id: str, *, terminate: bool = False) -> Revocation:
        """Revoke task `id`, sent or not; return what was found of it.

        If its message waits, it never runs, and its state is REVOKED at once. What a worker has
        already is "in flight": the worker is asked, and its state is the worker's to say.
        A revocation is kept for a day.
        terminate: end it, too, if it runs: a coroutine is cancelled, a process killed; in a
        plain function SoftTimeLimitExceeded is raised, and `TaskContext.revoked` is set.
        Raises LinkError.
        """
        self.revocations.keep(id, terminate=terminate, now_s=self.broker_clock.now_s())
        self.broadcast(BROADCAST, {"id": id, "terminate": terminate})
        try:
            return self.revocations.revoke_waiting(
                id,
                queues={self.queue, *(task.options.queue for task in self.tasks.values())},
                mark_message=self.publisher.revoke if self.capabilities.finds_messages else None,
                results=self.results,
                wall_s=self.clock.wall_s(),
            )
        except (LinkError, ResultError):  # the workers know of it all the same
            return Revocation.SENT

    # --- emergency broadcast and link ------------------------------------------------------

    @property
    def emergency_exchange(self) -> str:
        return f"{self.name}.emergency"

    def broadcast(
        self, name: str, payload: dict[str, Any] | None = None, *, id: str | None = None
    ) -> AsyncResult:
        """Send to every listening worker at once; repeat with the same `id` until confirmed.

        Raises LinkError without a broker.
        """
        id = id or str(uuid.uuid4())
        self.publisher.broadcast(
            self.emergency_exchange, {"id": id, "name": name, "payload": payload or {}}
        )
        return self.result(id)

    if not TYPE_CHECKING:  # a checker knows what there is

        def __getattr__(self, name: str) -> Any:
            from blimp.queue.words import APP, missing  # of a mistake alone

            raise missing(self, APP, name)

    def __reduce__(self) -> Any:
        return app_at, (path_of_app(self),)

    # --- life ------------------------------------------------------------------------------

    def outage(
        self, event: str, *, log: Any, ends: bool = False, brokers: int | None = None
    ) -> Outage:
        """Return what one part of a worker waits for its broker with.

        ends: it gives up as the policy says; other parts go on. brokers: how many it fails over
        between, by default all.
        """
        policy = self.connection_retry_policy
        return Outage(
            event=event,
            clock=self.clock,
            log=log,
            policy=policy if ends else msgspec.structs.replace(policy, max_retries=None),
            brokers=brokers or len(self.brokers),
            on_error=self.on_connection_error if ends else None,
        )

    def close(self) -> None:
        if "awaiting" in vars(self):
            self.awaiting.close()
        if "publisher" in vars(self):
            self.publisher.close()
        if self._store is not None:
            self._store.close()
        if self.results is not None:
            self.results.close()
        self.close_kept()
