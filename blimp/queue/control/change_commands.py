"""Commands that change a worker: names, arguments and answers are those of Celery's `control`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from kombu import Exchange, Queue

from blimp.errors import ConfigError, MessageError
from blimp.queue.control.command import CommandContext, text
from blimp.queue.control.inspect_commands import ids_of
from blimp.queue.options import per_second
from blimp.queue.protocol.message import check_limits

if TYPE_CHECKING:
    from blimp.queue.task import Task

MAX_WORKERS = 256  # threads or processes of a pool
MAX_QUEUES = 64
CHANGE_S = 2.0  # how long a change of queues may take until it is an error
EXCHANGE_TYPES = ("direct", "topic")


def revoke(
    context: CommandContext, task_id: Any, terminate: Any = False, signal: Any = None, **_: Any
) -> dict[str, str]:
    """Revoke tasks. `signal` is ignored: see `TaskApp.revoke` for how a running task ends.

    The answer to `terminate` says of each task what becomes of it in this worker.
    """
    ids, app = ids_of(task_id, "task_id"), context.worker.app
    now_s = app.broker_clock.now_s()
    effects: dict[str, str] = {}
    for id in ids:
        app.revocations.keep(id, terminate=bool(terminate), now_s=now_s)
        effects[id] = context.revoke(id, bool(terminate))
    if not terminate:
        return {"ok": f"tasks {set(ids)} flagged as revoked"}
    here = ", ".join(f"{id}: {effect}" for id, effect in effects.items() if effect)
    unknown = [id for id, effect in effects.items() if not effect]
    if unknown:  # Celery's words
        here += f"{'; ' if here else ''}tasks unknown: {', '.join(unknown)}"
    return {"ok": f"terminate: {here}"}


def terminate(context: CommandContext, signal: Any, task_id: Any, **_: Any) -> dict[str, str]:
    return revoke(context, task_id, terminate=True, signal=signal)


def rate_limit(
    context: CommandContext, task_name: Any, rate_limit: Any, **_: Any
) -> dict[str, str]:
    task = _task(context, task_name)
    per_s = per_second(rate_limit)
    task.options = msgspec.structs.replace(task.options, rate_limit=rate_limit or None)
    context.worker.in_flight.limit_rate(task.name, per_s)
    context.worker.consumer_loop.look_again()
    if per_s is None:
        return {"ok": "rate limit disabled successfully"}
    return {"ok": "new rate limit set successfully"}


def time_limit(
    context: CommandContext, task_name: Any = None, hard: Any = None, soft: Any = None, **_: Any
) -> dict[str, str]:
    task = _task(context, task_name)
    hard_s, soft_s = _seconds(hard, "hard"), _seconds(soft, "soft")
    check_limits(soft_s=soft_s, hard_s=hard_s)
    if soft_s is not None and not task.options.interruptible:
        raise ConfigError(f"soft limit of {task.name!r}: it is not interruptible")
    task.options = msgspec.structs.replace(task.options, soft_time_limit=soft_s, time_limit=hard_s)
    return {"ok": "time limits set successfully"}


def add_consumer(
    context: CommandContext,
    queue: Any,
    exchange: Any = None,
    exchange_type: Any = None,
    routing_key: Any = None,
) -> dict[str, str]:
    """Consume from `queue` as well; bind it if another exchange than its own is named."""
    name, consumer = text(queue, "queue"), context.worker.consumer_loop
    kind = exchange_type or "direct"
    if kind not in EXCHANGE_TYPES:
        raise MessageError(f"exchange_type {kind!r:.80}: must be one of {EXCHANGE_TYPES}")
    if name not in consumer.queues:
        if len(consumer.queues) >= MAX_QUEUES:
            raise MessageError(f"add_consumer {name!r}: the limit is {MAX_QUEUES} queues")
        _consume(context, (*consumer.queues, name))
    if exchange is not None and exchange != name:
        key = name if routing_key is None else text(routing_key, "routing_key")
        other = Exchange(text(exchange, "exchange"), type=kind)
        bound = Queue(name, exchange=other, routing_key=key)(context.connect().default_channel)
        bound.exchange.declare()
        bound.bind_to(bound.exchange, routing_key=key)
    return {"ok": f"add consumer {name}"}


def cancel_consumer(context: CommandContext, queue: Any, **_: Any) -> dict[str, str]:
    """Consume nothing more from `queue`; what is in flight goes on."""
    name, consumer = text(queue, "queue"), context.worker.consumer_loop
    if name in consumer.queues:
        _consume(context, tuple(one for one in consumer.queues if one != name))
    return {"ok": f"no longer consuming from {name}"}


def pool_grow(
    context: CommandContext, n: Any = 1, pool: Any = "threads", **_: Any
) -> dict[str, str]:
    _resize(context, n, pool, sign=1)
    return {"ok": "pool will grow"}


def pool_shrink(
    context: CommandContext, n: Any = 1, pool: Any = "threads", **_: Any
) -> dict[str, str]:
    _resize(context, n, pool, sign=-1)
    return {"ok": "pool will shrink"}


def shutdown(context: CommandContext, **_: Any) -> dict[str, str]:
    """Stop warm: what waits is requeued, what runs may end."""
    context.worker.stop()
    return {"ok": "shutting down"}


def _task(context: CommandContext, name: Any) -> Task:
    found = context.worker.app.tasks.get(text(name, "task_name"))
    if found is None:
        raise MessageError("unknown task")  # Celery's words
    return found


def _consume(context: CommandContext, queues: tuple[str, ...]) -> None:
    error = context.worker.consumer_loop.change_queues(queues, timeout_s=CHANGE_S)
    if error is not None:
        raise MessageError(f"queues {', '.join(queues) or 'none'}: {error}")


def _resize(context: CommandContext, n: Any, pool: Any, *, sign: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_WORKERS:
        raise MessageError(f"n {n!r:.80}: must be a whole number from 1 to {MAX_WORKERS}")
    worker = context.worker
    pools, sizes = worker.pools, worker.sizes
    by_name = {
        "threads": (sizes.sync_workers, pools.resize_threads),
        "processes": (sizes.process_workers, pools.resize_processes),
    }
    if pool not in by_name:
        raise MessageError(f"pool {pool!r:.80}: must be one of {tuple(by_name)}")
    before, resize = by_name[pool]
    size = before + sign * n
    if not 1 <= size <= MAX_WORKERS:
        raise MessageError(f"{size} {pool}: must be from 1 to {MAX_WORKERS}")
    resize(size)
    worker.in_flight.grow(sign * n)
    worker.consumer_loop.look_again()


def _seconds(value: Any, name: str) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise MessageError(f"{name} {value!r:.80}: must be seconds, or null for no limit")
    return None if value is None else float(value)


CHANGE_COMMANDS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        revoke, terminate, rate_limit, time_limit, add_consumer, cancel_consumer, pool_grow,
        pool_shrink, shutdown,
    )
}  # fmt: skip
