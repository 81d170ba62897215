"""What remote control answers and does: names, arguments and answers are those of Celery.

A function a command. The questions are Celery's `inspect`, the changes its `control`.
"""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import kombu
import msgspec

from blimp.distribution import build
from blimp.errors import ConfigError, MessageError
from blimp.queue.brokers.base import Exchange
from blimp.queue.celery.control.command import CommandContext, text
from blimp.queue.options import per_second
from blimp.queue.protocol.message import MAX_REPR_LENGTH, check_limits, to_json
from blimp.queue.redis.urls import hide_password
from blimp.queue.worker import interpreter
from blimp.queue.worker.job import Stage

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.task import Task
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.worker import Worker

MAX_IDS = 1000
MAX_REVOKED = 10_000
MAX_ARGUMENT_BYTES = 16_384  # longer arguments are shown as text, cut
ATTRIBUTES = ("exchange", "routing_key", "rate_limit")
MAX_WORKERS = 256  # threads or processes of a pool
MAX_QUEUES = 64
CHANGE_S = 2.0  # how long a change of queues may take until it is an error
EXCHANGE_TYPES = ("direct", "topic")
DEFAULTS = {  # settings of Celery's that are always so
    "accept_content": ["json"], "task_serializer": "json", "result_serializer": "json",
    "task_protocol": 2, "task_acks_late": True, "enable_utc": True, "timezone": "UTC",
    "worker_enable_remote_control": True, "control_exchange": "celery",
}  # fmt: skip

# --- questions -----------------------------------------------------------------------------------


def ping(context: CommandContext, **_: Any) -> dict[str, str]:
    return {"ok": "pong"}


def hello(context: CommandContext, from_node: str, **_: Any) -> Any:
    """Answer a Celery worker that has just started: revocations go to it, none come from it."""
    if from_node == context.worker.name:
        return None
    return {"revoked": revoked(context), "clock": context.worker.logical_clock.forward()}


def clock(context: CommandContext, **_: Any) -> dict[str, int]:
    return {"clock": context.worker.logical_clock.value}


def stats(context: CommandContext, **_: Any) -> dict[str, Any]:
    worker, used = context.worker, resource.getrusage(resource.RUSAGE_SELF)
    return {
        "total": dict(worker.consumer_loop.totals),
        "blimp_ended": [(*key, count) for key, count in worker.ended.copy().items()],
        "pid": os.getpid(),
        "python": interpreter.described(),
        "clock": str(worker.logical_clock.value),
        "uptime": round(worker.app.clock.now_s() - context.started_s),
        "pool": _pool(worker),
        "broker": _broker(worker.app),
        "prefetch_count": worker.in_flight.limit(),
        "rusage": {name[3:]: getattr(used, name) for name in dir(used) if name[:3] == "ru_"},
    }


def conf(context: CommandContext, with_defaults: Any = False, **_: Any) -> dict[str, Any]:
    """Return the app's settings under Celery's names if it has them, without secrets."""
    app = context.worker.app
    results = app.result_backend
    urls = [results] if isinstance(results, str) else results
    return {
        "broker_url": [hide_password(url) for url in app.brokers.urls],
        "broker_transport": app.transport,
        "result_backend": urls and [hide_password(str(url)) for url in urls],
        "task_default_queue": app.queue,
        "worker_pool": _pool(context.worker),
        "blimp_app": app.name,
        "blimp_remote_control": app.remote_control,
        "blimp_signed": app.signer is not None,
        "blimp_limit_bytes": app.limit_bytes,
        "blimp_timeout_s": app.timeout_s,
    } | (DEFAULTS if with_defaults else {})


def report(context: CommandContext, **_: Any) -> dict[str, str]:
    """Return what a bug report should contain."""
    import redis  # 40 ms, which a worker on RabbitMQ need not pay

    about, settings = platform.uname(), conf(context)
    lines = (
        f"software -> blimp:{build().version} kombu:{kombu.__version__} redis:{redis.__version__} "
        f"py:{platform.python_version()}",
        f"platform -> system:{about.system} kernel version:{about.release} arch:{about.machine}",
        *(f"{name}: {value!r}" for name, value in sorted(settings.items())),
    )
    return {"ok": "\n".join(lines)}


def registered(
    context: CommandContext, taskinfoitems: Any = None, builtins: Any = False, **_: Any
) -> list[str]:
    wanted = taskinfoitems or ATTRIBUTES
    if not isinstance(wanted, list | tuple) or not all(isinstance(one, str) for one in wanted):
        raise MessageError("registered: taskinfoitems must be a list of names")
    tasks = context.worker.app.tasks
    return [_registered(tasks[name], wanted) for name in sorted(tasks)]


def active_queues(context: CommandContext, **_: Any) -> list[dict[str, Any]]:
    exchange = kombu.Exchange("", type="direct")
    return [
        dict(kombu.Queue(name, exchange=exchange, routing_key=name).as_dict(recurse=True))
        for name in context.worker.queues
    ]


def active(context: CommandContext, safe: Any = False, **_: Any) -> list[dict[str, Any]]:
    return [_request(context.worker, job, is_safe=bool(safe)) for job in _jobs(context, "active")]


def reserved(context: CommandContext, **_: Any) -> list[dict[str, Any]]:
    return [_request(context.worker, job) for job in _jobs(context, "reserved")]


def scheduled(context: CommandContext, **_: Any) -> list[dict[str, Any]]:
    """Those that this worker holds. On streams the server keeps most of them."""
    return [
        {
            "eta": job.message.eta_s and datetime.fromtimestamp(job.message.eta_s, UTC).isoformat(),
            "priority": job.message.priority,
            "request": _request(context.worker, job),
        }
        for job in _jobs(context, "scheduled")
    ]


def revoked(context: CommandContext, **_: Any) -> list[str]:
    """The newest of them: an answer has a limit."""
    return context.worker.app.revocations.ids()[-MAX_REVOKED:]


def query_task(context: CommandContext, ids: Any, **_: Any) -> dict[str, list[Any]]:
    wanted = set(ids_of(ids, "ids"))
    return {
        job.message.id: [_state(context.worker, job), _request(context.worker, job)]
        for job in context.worker.jobs()
        if job.message.id in wanted
    }


def ids_of(value: object, name: str) -> list[str]:
    """Return the ids of tasks in `value`, one or a list. Raises MessageError."""
    several = value if isinstance(value, list | tuple) else [value]
    if len(several) > MAX_IDS:
        raise MessageError(f"{name}: {len(several)} of them, the limit is {MAX_IDS}")
    return [text(one, name) for one in several]


# --- changes -------------------------------------------------------------------------------------


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
        other = Exchange(text(exchange, "exchange"), kind)
        context.worker.app.publisher.bind(name, other, key)
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


# --- inside --------------------------------------------------------------------------------------


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


def _state(worker: Worker, job: Job) -> str:
    if job.stage is Stage.RUNNING:
        return "active"
    if job.stage is Stage.DONE:
        return "ready"
    return "scheduled" if worker.in_flight.is_scheduled(job) else "reserved"


def _jobs(context: CommandContext, state: str) -> list[Job]:
    worker = context.worker
    return [job for job in worker.jobs() if _state(worker, job) == state]


def _request(worker: Worker, job: Job, *, is_safe: bool = False) -> dict[str, Any]:
    """Return what Celery's `Request.info` does. is_safe: arguments as text."""
    message, is_running = job.message, job.stage is Stage.RUNNING
    is_safe = is_safe or len(to_json([message.args, message.kwargs])) > MAX_ARGUMENT_BYTES
    started_s = None
    if is_running and job.started_s is not None:
        clock = worker.app.clock
        started_s = round(clock.wall_s() - (clock.now_s() - job.started_s), 2)
    return {
        "id": message.id,
        "name": message.task,
        "args": repr(message.args)[:MAX_REPR_LENGTH] if is_safe else list(message.args),
        "kwargs": repr(message.kwargs)[:MAX_REPR_LENGTH] if is_safe else message.kwargs,
        "type": message.task,
        "hostname": worker.name,
        "time_start": started_s,
        "acknowledged": is_running and not job.task.options.acks_late,
        "delivery_info": {
            "exchange": "",
            "routing_key": message.queue,
            "priority": message.priority,
            "redelivered": message.delivery - message.retries > 1,
        },
        "worker_pid": (getattr(job.call, "pid", None) or os.getpid()) if is_running else None,
    }


def _registered(task: Task, attributes: Sequence[str]) -> str:
    """Return its name, and those of `attributes` that it has, as Celery writes them."""
    options = task.options
    known = {
        name: getattr(options, name)
        for name in options.__struct_fields__
        if not callable(getattr(options, name))
    }
    known |= {"name": task.name, "serializer": "json", "routing_key": options.queue}
    shown = [f"{one}={known[one]}" for one in attributes if known.get(one) is not None]
    return f"{task.name} [{' '.join(shown)}]" if shown else task.name


def _pool(worker: Worker) -> dict[str, Any]:
    """Return Celery's fields of a pool, for the threads of plain tasks, and ours beside them."""
    pools = worker.pools
    sizes = pools.sizes
    return {
        "implementation": f"{type(pools).__module__}:{type(pools).__name__}",
        "max-concurrency": sizes.sync_workers,
        "threads": sizes.sync_workers,
        "processes": [os.getpid(), *pools.child_pids()],
        "max-tasks-per-child": pools.max_tasks or "N/A",
        "put-guarded-by-semaphore": False,
        "timeouts": [0, 0],
        "writes": "N/A",
        "loop-workers": sizes.loop_workers,
        "loop-concurrency": sizes.loop_concurrency,
        "process-workers": sizes.process_workers,
    }


def _broker(app: TaskApp) -> dict[str, Any]:
    """Return kombu's `Connection.info` of the broker in use, without passwords."""
    info = app.broker_kind.info(app.broker, timeout_s=app.timeout_s)
    return info | {"alternates": [hide_password(u) for u in app.brokers.urls if u != app.broker]}


INSPECT_COMMANDS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        ping, hello, clock, stats, conf, report, registered, active_queues, active, reserved,
        scheduled, revoked, query_task,
    )
}  # fmt: skip
CHANGE_COMMANDS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        revoke, terminate, rate_limit, time_limit, add_consumer, cancel_consumer, pool_grow,
        pool_shrink, shutdown,
    )
}  # fmt: skip
