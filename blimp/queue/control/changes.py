"""Commands that change something: the names, arguments and answers are Celery's `control`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import ConfigError, MessageError
from blimp.queue.control.pidbox import text
from blimp.queue.control.questions import ids_of
from blimp.queue.options import check_limits, per_second

if TYPE_CHECKING:
    from blimp.queue.control.handler import CommandHandler
    from blimp.queue.task import Task

MOST_WORKERS = 256  # threads or processes of a pool
MOST_QUEUES = 64
CHANGE_S = 2.0  # how long a change of queues may take before it is answered for
EXCHANGE_TYPES = ("direct", "topic")


def revoke(
    handler: CommandHandler, task_id: Any, terminate: Any = False, signal: Any = None, **_: Any
) -> dict[str, str]:
    """Call tasks back. Which signal is not heeded: see `TaskApp.revoke` for how they end."""
    ids, worker_handle = ids_of(task_id, "task_id"), handler.worker_handle
    now_s = worker_handle.app.broker_clock.now_s()
    for id in ids:
        worker_handle.app.revocations.keep(id, terminate=bool(terminate), now_s=now_s)
        worker_handle.revoking.hear(id, bool(terminate))
    if not terminate:
        return {"ok": f"tasks {set(ids)} flagged as revoked"}
    here = {job.message.id for job in worker_handle.in_flight.jobs()}
    ended = ", ".join(id for id in ids if id in here)
    return {"ok": f"terminate: {ended or 'tasks unknown'}"}


def terminate(handler: CommandHandler, signal: Any, task_id: Any, **_: Any) -> dict[str, str]:
    return revoke(handler, task_id, terminate=True, signal=signal)


def revoke_by_stamped_headers(handler: CommandHandler, **_: Any) -> dict[str, str]:
    raise MessageError("revoke_by_stamped_headers: this worker keeps no stamps; revoke by ids")


def rate_limit(
    handler: CommandHandler, task_name: Any, rate_limit: Any, **_: Any
) -> dict[str, str]:
    task = _task(handler, task_name)
    per_s = per_second(rate_limit)
    task.options = msgspec.structs.replace(task.options, rate_limit=rate_limit or None)
    handler.worker_handle.in_flight.limit_rate(task.name, per_s)
    handler.worker_handle.consumer_loop.look_again()
    if per_s is None:
        return {"ok": "rate limit disabled successfully"}
    return {"ok": "new rate limit set successfully"}


def time_limit(
    handler: CommandHandler, task_name: Any = None, hard: Any = None, soft: Any = None, **_: Any
) -> dict[str, str]:
    task = _task(handler, task_name)
    hard_s, soft_s = _seconds(hard, "hard"), _seconds(soft, "soft")
    check_limits(soft_s=soft_s, hard_s=hard_s)
    if soft_s is not None and not task.options.interruptible:
        raise ConfigError(f"soft limit of {task.name!r}: it is not interruptible")
    task.options = msgspec.structs.replace(task.options, soft_time_limit=soft_s, time_limit=hard_s)
    return {"ok": "time limits set successfully"}


def add_consumer(
    handler: CommandHandler,
    queue: Any,
    exchange: Any = None,
    exchange_type: Any = None,
    routing_key: Any = None,
) -> dict[str, str]:
    """Consume from `queue` as well; bind it where an exchange other than its own is named."""
    name, consumer = text(queue, "queue"), handler.worker_handle.consumer_loop
    kind = exchange_type or "direct"
    if kind not in EXCHANGE_TYPES:
        raise MessageError(f"exchange_type {kind!r:.80}: must be one of {EXCHANGE_TYPES}")
    if name not in consumer.queues:
        if len(consumer.queues) >= MOST_QUEUES:
            raise MessageError(f"add_consumer {name!r}: the limit is {MOST_QUEUES} queues")
        _consume(handler, (*consumer.queues, name))
    if exchange is not None and exchange != name:
        _bind(handler, name, exchange=text(exchange, "exchange"), kind=kind, key=routing_key)
    return {"ok": f"add consumer {name}"}


def cancel_consumer(handler: CommandHandler, queue: Any, **_: Any) -> dict[str, str]:
    """Take nothing more from `queue`; what is in hand goes on."""
    name, consumer = text(queue, "queue"), handler.worker_handle.consumer_loop
    if name in consumer.queues:
        _consume(handler, tuple(one for one in consumer.queues if one != name))
    return {"ok": f"no longer consuming from {name}"}


def pool_grow(
    handler: CommandHandler, n: Any = 1, pool: Any = "threads", **_: Any
) -> dict[str, str]:
    _resize(handler, _count(n), pool)
    return {"ok": "pool will grow"}


def pool_shrink(
    handler: CommandHandler, n: Any = 1, pool: Any = "threads", **_: Any
) -> dict[str, str]:
    _resize(handler, -_count(n), pool)
    return {"ok": "pool will shrink"}


def pool_restart(handler: CommandHandler, **_: Any) -> dict[str, str]:
    raise MessageError("pool_restart: a pool is not restarted; begin the worker anew")


def autoscale(handler: CommandHandler, **_: Any) -> dict[str, str]:
    raise MessageError("autoscale: not supported; use pool_grow and pool_shrink")


def shutdown(handler: CommandHandler, **_: Any) -> dict[str, str]:
    """Stop warm: what waits goes back, what runs may end."""
    handler.worker_handle.stop()
    return {"ok": "shutting down"}


def _task(handler: CommandHandler, name: Any) -> Task:
    found = handler.worker_handle.app.tasks.get(text(name, "task_name"))
    if found is None:
        raise MessageError("unknown task")  # Celery's words
    return found


def _consume(handler: CommandHandler, queues: tuple[str, ...]) -> None:
    error = handler.worker_handle.consumer_loop.change_queues(queues, timeout_s=CHANGE_S)
    if error is not None:
        raise MessageError(f"queues {', '.join(queues) or 'none'}: {error}")


def _bind(handler: CommandHandler, queue: str, *, exchange: str, kind: str, key: Any) -> None:
    from kombu import Exchange, Queue

    where = Exchange(exchange, type=kind)
    routing_key = queue if key is None else text(key, "routing_key")
    bound = Queue(queue, exchange=where, routing_key=routing_key)(
        handler.connection().default_channel
    )
    bound.exchange.declare()
    bound.bind_to(bound.exchange, routing_key=routing_key)


def _resize(handler: CommandHandler, by: int, pool: Any) -> None:
    pools = handler.worker_handle.pools
    sizes = {"threads": pools.sizes.sync_workers, "processes": pools.sizes.process_workers}
    if pool not in sizes:
        raise MessageError(f"pool {pool!r:.80}: must be one of {tuple(sizes)}")
    size = sizes[pool] + by
    if not 1 <= size <= MOST_WORKERS:
        raise MessageError(f"{size} {pool}: must be from 1 to {MOST_WORKERS}")
    if pool == "threads":
        pools.resize_threads(size)
    else:
        pools.resize_processes(size)
    handler.worker_handle.in_flight.grow(by)
    handler.worker_handle.consumer_loop.look_again()


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_WORKERS:
        raise MessageError(f"n {value!r:.80}: must be a whole number from 1 to {MOST_WORKERS}")
    return value


def _seconds(value: Any, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MessageError(f"{name} {value!r:.80}: must be seconds, or null for no limit")
    return float(value)


CHANGES: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        revoke, terminate, revoke_by_stamped_headers, rate_limit, time_limit, add_consumer,
        cancel_consumer, pool_grow, pool_shrink, pool_restart, autoscale, shutdown,
    )
}  # fmt: skip
