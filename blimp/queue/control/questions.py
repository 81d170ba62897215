"""Commands that only ask: the names, arguments and answers are Celery's `inspect`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blimp.errors import MessageError
from blimp.queue.control import report as telling
from blimp.queue.control.pidbox import text
from blimp.queue.worker.job import Stage

if TYPE_CHECKING:
    from blimp.queue.control.handler import CommandHandler
    from blimp.queue.worker.job import Job

MOST_IDS = 1000
MOST_REVOKED = 10_000
ATTRIBUTES = ("exchange", "routing_key", "rate_limit")


def ping(handler: CommandHandler, **_: Any) -> dict[str, str]:
    return {"ok": "pong"}


def hello(handler: CommandHandler, from_node: str, **_: Any) -> Any:
    """Tell a Celery worker that has just started what it may have missed; take nothing over."""
    if from_node == handler.worker_handle.name:
        return None
    return {"revoked": revoked(handler), "clock": handler.clock.forward()}


def clock(handler: CommandHandler, **_: Any) -> dict[str, int]:
    return {"clock": handler.clock.value}


def stats(handler: CommandHandler, **_: Any) -> dict[str, Any]:
    worker_handle = handler.worker_handle
    return {
        "total": dict(worker_handle.consumer_loop.totals),
        "pid": os.getpid(),
        "clock": str(handler.clock.value),
        "uptime": round(worker_handle.app.clock.now_s() - worker_handle.began_s),
        "pool": telling.pool(worker_handle.pools),
        "broker": telling.broker(worker_handle.app),
        "prefetch_count": worker_handle.in_flight.limit(),
        "rusage": telling.rusage(),
    }


def conf(handler: CommandHandler, with_defaults: Any = False, **_: Any) -> dict[str, Any]:
    return telling.configuration(handler.worker_handle, with_defaults=bool(with_defaults))


def report(handler: CommandHandler, **_: Any) -> dict[str, str]:
    return {"ok": telling.report(handler.worker_handle)}


def registered(
    handler: CommandHandler, taskinfoitems: Any = None, builtins: Any = False, **_: Any
) -> list[str]:
    wanted = taskinfoitems or ATTRIBUTES
    if not isinstance(wanted, list | tuple) or not all(isinstance(one, str) for one in wanted):
        raise MessageError("registered: taskinfoitems must be a list of names")
    tasks = handler.worker_handle.app.tasks
    return [telling.task(tasks[name], wanted) for name in sorted(tasks)]


def active_queues(handler: CommandHandler, **_: Any) -> list[dict[str, Any]]:
    return [telling.queue(name) for name in handler.worker_handle.consumer_loop.queues]


def active(handler: CommandHandler, safe: Any = False, **_: Any) -> list[dict[str, Any]]:
    return _told(handler, _in_state(handler, "active"), is_safe=bool(safe))


def reserved(handler: CommandHandler, **_: Any) -> list[dict[str, Any]]:
    return _told(handler, _in_state(handler, "reserved"))


def scheduled(handler: CommandHandler, **_: Any) -> list[dict[str, Any]]:
    """Those that this worker holds. On streams the server keeps most of them."""
    return [
        {
            "eta": telling.eta(job),
            "priority": job.message.priority,
            "request": telling.request(handler.worker_handle, job),
        }
        for job in _in_state(handler, "scheduled")
    ]


def revoked(handler: CommandHandler, **_: Any) -> list[str]:
    """The newest of them: an answer has its limit, too."""
    return handler.worker_handle.app.revocations.ids()[-MOST_REVOKED:]


def query_task(handler: CommandHandler, ids: Any, **_: Any) -> dict[str, list[Any]]:
    wanted = set(ids_of(ids, "ids"))
    return {
        job.message.id: [_state(handler, job), telling.request(handler.worker_handle, job)]
        for job in handler.worker_handle.in_flight.jobs()
        if job.message.id in wanted
    }


def ids_of(value: object, name: str) -> list[str]:
    """Return the ids of tasks in `value`, one or a list. Raises MessageError."""
    several = value if isinstance(value, list | tuple) else [value]
    if len(several) > MOST_IDS:
        raise MessageError(f"{name}: {len(several)} of them, the limit is {MOST_IDS}")
    return [text(one, name) for one in several]


def _state(handler: CommandHandler, job: Job) -> str:
    if job.stage is Stage.RUNNING:
        return "active"
    if job.stage is Stage.DONE:
        return "ready"
    return "scheduled" if handler.worker_handle.in_flight.is_scheduled(job) else "reserved"


def _in_state(handler: CommandHandler, state: str) -> list[Job]:
    return [job for job in handler.worker_handle.in_flight.jobs() if _state(handler, job) == state]


def _told(
    handler: CommandHandler, jobs: list[Job], *, is_safe: bool = False
) -> list[dict[str, Any]]:
    return [telling.request(handler.worker_handle, job, is_safe=is_safe) for job in jobs]


QUESTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        ping, hello, clock, stats, conf, report, registered, active_queues, active, reserved,
        scheduled, revoked, query_task,
    )
}  # fmt: skip
QUESTIONS |= {  # Celery's older words, and its client's
    "dump_conf": conf,
    "dump_tasks": registered,
    "registered_tasks": registered,
    "tasks": registered,
    "dump_schedule": scheduled,
    "dump_reserved": reserved,
    "dump_active": active,
    "dump_revoked": revoked,
}
