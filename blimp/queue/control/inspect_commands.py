"""Commands that only ask: the names, arguments and answers are those of Celery's `inspect`."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kombu import Exchange, Queue

from blimp import __version__
from blimp.errors import MessageError
from blimp.queue.control.command import CommandContext, text
from blimp.queue.protocol.message import MAX_REPR_LENGTH, to_json
from blimp.queue.redis.urls import hide_password
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
        "pid": os.getpid(),
        "clock": str(worker.logical_clock.value),
        "uptime": round(worker.app.clock.now_s() - context.started_s),
        "pool": _pool(worker),
        "broker": _broker(worker.app),
        "prefetch_count": worker.in_flight.limit(),
        "rusage": {name[3:]: getattr(used, name) for name in dir(used) if name[:3] == "ru_"},
    }


def conf(context: CommandContext, **_: Any) -> dict[str, Any]:
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
    }


def report(context: CommandContext, **_: Any) -> dict[str, str]:
    """Return what a bug report should contain."""
    import kombu
    import redis

    about = platform.uname()
    settings = conf(context)
    lines = (
        f"software -> blimp:{__version__} kombu:{kombu.__version__} redis:{redis.__version__} "
        f"py:{platform.python_version()}",
        f"platform -> system:{about.system} kernel version:{about.release} "
        f"arch:{about.machine} imp:{platform.python_implementation()}",
        f"settings -> transport:{settings['broker_transport']} "
        f"results:{settings['result_backend']}",
        "",
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
    return [_task(tasks[name], wanted) for name in sorted(tasks)]


def active_queues(context: CommandContext, **_: Any) -> list[dict[str, Any]]:
    exchange = Exchange("", type="direct")
    return [
        dict(Queue(name, exchange=exchange, routing_key=name).as_dict(recurse=True))
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


# --- shapes, as Celery has them -----------------------------------------------------------------


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


def _task(task: Task, attributes: Sequence[str]) -> str:
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
    connection = app.broker_kind.open_connection(app.broker, timeout_s=app.timeout_s)
    hidden = ("password", "credential_provider", "transport_options")  # the last: not JSON
    info = {name: value for name, value in connection.info().items() if name not in hidden}
    return info | {"alternates": [hide_password(u) for u in app.brokers.urls if u != app.broker]}


INSPECT_COMMANDS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        ping, hello, clock, stats, conf, report, registered, active_queues, active, reserved,
        scheduled, revoked, query_task,
    )
}  # fmt: skip
