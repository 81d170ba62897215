"""The settings of a TaskApp and of a Worker, read once when it is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from blimp.errors import ConfigError
from blimp.queue.brokers.base import BrokerOptions
from blimp.queue.extensions import Middleware
from blimp.queue.options import Options
from blimp.queue.protocol.message import check_limits
from blimp.queue.protocol.signing import Key
from blimp.queue.redis.address import LEAST_CONNECTIONS
from blimp.queue.redis.client import MAX_CONNECTIONS
from blimp.queue.results.backend import ResultKeywords, ResultOptions, result_options
from blimp.queue.retry import OnConnectionError, RetryPolicy, Seconds


class AppKeywords(ResultKeywords, total=False):
    """The keywords of `TaskApp`; see AppSettings, and ResultOptions."""

    queue: str | None
    middleware: Iterable[Middleware] | None
    limit_bytes: int
    max_dead_letters: int
    max_dead_letter_bytes: int
    unknown_task_wait_s: float
    timeout_s: float
    max_connections: int
    transport: str | None
    failover_strategy: str
    retry: bool
    retry_policy: RetryPolicy | dict[str, Any] | None
    connection_retry_policy: RetryPolicy | dict[str, Any] | None
    on_connection_error: OnConnectionError | None
    signing_key: Key | Sequence[Key] | None
    events: bool
    send_sent_event: bool
    remote_control: str | None
    time_limit: float | None
    soft_time_limit: float | None


class AppSettings(BrokerOptions, frozen=True, kw_only=True):
    """How an app sends, and what its workers do.

    queue: the default queue of its tasks; the app's name if it is not given.
    middleware: of its workers, instead of the default.
    limit_bytes: larger results are refused, too.
    unknown_task_wait_s: how long a message waits while no live worker knows its task, as in a
        rolling deploy; then it fails, and is a dead letter. 0: at once.
    timeout_s: how long a call waits for the server, or for a connection to it.
    max_connections: to each server, of all threads together, at least 2, as one of them hears
        results. A worker has a few more, so that what its tasks ask never holds up a lease or an
        emergency stop. A URL may have its own, `?max_connections=…`.
    transport: the name of a broker (brokers/__init__.py) if the URL does not say it. A worker
        logs at its start which guarantees are missing.
    retry, retry_policy: whether and how a message is published again after a connection error.
    connection_retry_policy: how a worker reconnects to its broker; `max_retries` ends it.
    on_connection_error: called with each error, and the seconds until the next attempt.
    signing_key: messages are signed with it, and others refused; of several, the first signs.
    events: its workers send task events, as Celery's do; see docs/events.md.
    send_sent_event: the sender of a task sends an event, too, at a round trip each.
    remote_control: what callers who reach the broker may do with a worker: "all" that Celery
        offers; "inspect": ask questions, and change it only if the command is signed; "off":
        nothing. By default "inspect" with a signing key, and "all" without.
    time_limit, soft_time_limit: of each task that gives none, in seconds; see TaskOptions. A task
        with `time_limit=None` has none.
    """

    queue: str | None = None
    middleware: Iterable[Middleware] | None = None
    unknown_task_wait_s: Annotated[float, msgspec.Meta(ge=0.0)] = 600.0
    max_connections: Annotated[int, msgspec.Meta(ge=LEAST_CONNECTIONS)] = MAX_CONNECTIONS
    transport: str | None = None
    failover_strategy: str = "round-robin"
    retry: bool = True
    retry_policy: RetryPolicy | dict[str, Any] | None = None
    connection_retry_policy: RetryPolicy | dict[str, Any] | None = None
    on_connection_error: OnConnectionError | None = None
    signing_key: Key | Sequence[Key] | None = None
    events: bool = False
    send_sent_event: bool = False
    remote_control: str | None = None
    time_limit: float | None = None
    soft_time_limit: float | None = None
    results: ResultOptions

    def __repr__(self) -> str:
        """Return no value of it: one is a key."""
        return "AppSettings(…)"


def app_settings(keywords: AppKeywords) -> AppSettings:
    """Return `keywords` as settings. Raises ConfigError naming a wrong one."""
    names = {*AppSettings.__struct_fields__} - {"results"}
    own: dict[str, Any] = {name: one for name, one in keywords.items() if name in names}
    results: Any = {name: one for name, one in keywords.items() if name not in names}
    if unknown := results.keys() - {*ResultOptions.__struct_fields__}:
        from blimp.queue.words import SETTINGS, here  # of a mistake alone

        words = f"{', '.join(sorted(unknown))}{here(SETTINGS, *sorted(unknown))}"
        raise ConfigError(f"TaskApp has no option {words}")
    try:
        settings = AppSettings(**own, results=result_options(results))
        check_limits(soft_s=settings.soft_time_limit, hard_s=settings.time_limit)
        return settings
    except ConfigError as error:
        raise ConfigError(f"TaskApp options: {error}") from None


Some = Annotated[int, Meta(ge=1)]


class WorkerKeywords(TypedDict, total=False):
    """The keywords of `Worker`; see WorkerSettings."""

    name: str | None
    queues: Sequence[str]
    loop_workers: int
    loop_concurrency: int
    sync_workers: int
    process_workers: int | None
    prefetch: int | None
    max_tasks: int | None
    max_memory_mb: float | None
    grace_s: float
    app_path: str | None


class WorkerSettings(Options, frozen=True, kw_only=True):
    """How much a worker runs, and what of.

    name: unique among the app's live workers. A worker that restarts under the name of a killed
        one gets back what that had not acknowledged. queues: by default the app's own.
    sync_workers: threads for plain tasks. loop_workers: threads with an asyncio loop each,
        running `loop_concurrency` `async def` tasks at once.
    process_workers: child processes for cpu_bound tasks; by default the cores but one. They
        start with the first such task.
    app_path: where a child finds the app, "module:attribute"; by default where its tasks are.
    prefetch: messages in flight at once for each kind of pool that its tasks need; the rest
        stay with the broker, for other workers. None: as many as run at once, or what
        AdaptivePrefetch says, if that is more.
    max_tasks, max_memory_mb: after so many tasks, or above so much memory, it stops as in a
        warm stop, waits for what runs, and restarts. A child is replaced at the same limits,
        and its tasks do not count for the worker.
    grace_s: how long a warm stop waits for what runs.
    """

    name: str | None = None
    queues: Sequence[str] = ()
    loop_workers: Some = 1
    loop_concurrency: Some = 16
    sync_workers: Some = 8
    process_workers: Some | None = None
    prefetch: Some | None = None
    max_tasks: Some | None = None
    max_memory_mb: Annotated[float, Meta(gt=0.0)] | None = None
    grace_s: Seconds = 10.0
    app_path: str | None = None
