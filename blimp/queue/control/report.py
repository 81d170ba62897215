"""What a worker tells of itself, its app and its jobs, in the shapes that Celery's have."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from blimp.queue.protocol.message import MAX_REPR_LENGTH, to_json
from blimp.queue.redis.urls import hide_password
from blimp.queue.worker.job import Stage

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.control.remote_control import WorkerHandle
    from blimp.queue.task import Task
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.pools.pools import WorkerPools

MAX_ARGUMENT_BYTES = 16_384  # longer ones are told as text, cut off
USAGE = (
    "utime", "stime", "maxrss", "ixrss", "idrss", "isrss", "minflt", "majflt", "nswap", "inblock",
    "oublock", "msgsnd", "msgrcv", "nsignals", "nvcsw", "nivcsw",
)  # fmt: skip


def request(worker_handle: WorkerHandle, job: Job, *, is_safe: bool = False) -> dict[str, Any]:
    """Return what Celery's `Request.info` does. is_safe: arguments as text."""
    message, is_running = job.message, job.stage is Stage.RUNNING
    is_safe = is_safe or len(to_json([message.args, message.kwargs])) > MAX_ARGUMENT_BYTES
    began_s = None
    if is_running and job.started_s is not None:
        now_s = worker_handle.app.clock.now_s()
        began_s = round(worker_handle.app.clock.wall_s() - (now_s - job.started_s), 2)
    return {
        "id": message.id,
        "name": message.task,
        "args": repr(message.args)[:MAX_REPR_LENGTH] if is_safe else list(message.args),
        "kwargs": repr(message.kwargs)[:MAX_REPR_LENGTH] if is_safe else message.kwargs,
        "type": message.task,
        "hostname": worker_handle.name,
        "time_start": began_s,
        "acknowledged": is_running and not job.task.options.acks_late,
        "delivery_info": {
            "exchange": "",
            "routing_key": message.queue,
            "priority": message.priority,
            "redelivered": message.delivery - message.retries > 1,
        },
        "worker_pid": (getattr(job.call, "pid", None) or os.getpid()) if is_running else None,
    }


def eta(job: Job) -> str | None:
    when_s = job.message.eta_s
    return None if when_s is None else datetime.fromtimestamp(when_s, UTC).isoformat()


def task(task: Task, attributes: Sequence[str]) -> str:
    """Return its name, and those of `attributes` that it has, as Celery writes them."""
    options = task.options
    known = {
        name: getattr(options, name)
        for name in options.__struct_fields__
        if not callable(getattr(options, name))
    }
    known |= {"name": task.name, "serializer": "json", "routing_key": options.queue}
    said = [f"{one}={known[one]}" for one in attributes if known.get(one) is not None]
    return f"{task.name} [{' '.join(said)}]" if said else task.name


def queue(name: str) -> dict[str, Any]:
    from kombu import Exchange, Queue

    exchange = Exchange("", type="direct")
    return dict(Queue(name, exchange=exchange, routing_key=name).as_dict(recurse=True))


def pool(pools: WorkerPools) -> dict[str, Any]:
    """Return Celery's words for a pool, and ours beside them. Plain tasks' threads come first."""
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


def broker(app: TaskApp) -> dict[str, Any]:
    """Return what kombu's `Connection.info` does, of the broker in use and without passwords."""
    url = hide_password(app.broker)
    parts = urlsplit(url)
    return {
        "hostname": parts.hostname or parts.path or url,
        "userid": parts.username,
        "virtual_host": parts.path.lstrip("/") if parts.hostname else "",
        "port": None if parts.scheme == "sentinel" else parts.port,
        "insist": False,
        "ssl": parts.scheme in ("rediss", "valkeys", "amqps"),
        "transport": app.transport,
        "connect_timeout": app.timeout_s,
        "transport_options": {},
        "login_method": None,
        "uri_prefix": None,
        "heartbeat": 0,
        "failover_strategy": None,
        "alternates": [hide_password(one) for one in app.brokers.urls if one != app.broker],
    }


def rusage() -> dict[str, float] | str:
    try:
        import resource
    except ImportError:
        return "N/A"
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {name: getattr(used, f"ru_{name}") for name in USAGE}


def configuration(worker_handle: WorkerHandle, *, with_defaults: bool) -> dict[str, Any]:
    """Return the app's settings under Celery's names where it has them, without secrets."""
    app = worker_handle.app
    found: dict[str, Any] = {
        "broker_url": [hide_password(url) for url in app.brokers.urls],
        "broker_transport": app.transport,
        "result_backend": _results(app),
        "task_default_queue": app.queue,
        "worker_pool": pool(worker_handle.pools),
        "blimp_app": app.name,
        "blimp_remote_control": app.remote_control,
        "blimp_signed": app.signer is not None,
        "blimp_limit_bytes": app.limit_bytes,
        "blimp_timeout_s": app.timeout_s,
    }
    if with_defaults:
        found |= {
            "accept_content": ["json"],
            "task_serializer": "json",
            "result_serializer": "json",
            "task_protocol": 2,
            "task_acks_late": True,
            "enable_utc": True,
            "timezone": "UTC",
            "worker_enable_remote_control": True,
            "control_exchange": "celery",
        }
    return {name: value if _is_plain(value) else repr(value) for name, value in found.items()}


def report(worker_handle: WorkerHandle) -> str:
    """Return what a report of a bug should say."""
    import kombu
    import redis

    from blimp import __version__

    about = platform.uname()
    settings = configuration(worker_handle, with_defaults=False)
    return "\n".join(
        (
            f"software -> blimp:{__version__} kombu:{kombu.__version__} redis:{redis.__version__} "
            f"py:{platform.python_version()}",
            f"platform -> system:{about.system} kernel version:{about.release} "
            f"arch:{about.machine} imp:{platform.python_implementation()}",
            f"settings -> transport:{worker_handle.app.transport} "
            f"results:{settings['result_backend']}",
            "",
            *(f"{name}: {value!r}" for name, value in sorted(settings.items())),
        )
    )


def _results(app: TaskApp) -> list[str] | None:
    given = app.result_backend
    if given is None:
        return None
    urls = (given,) if isinstance(given, str) else given
    return [hide_password(str(url)) for url in urls]


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | list | dict)
