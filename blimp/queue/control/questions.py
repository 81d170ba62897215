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
    from blimp.queue.control.handler import Desk
    from blimp.queue.worker.job import Job

MOST_IDS = 1000
MOST_REVOKED = 10_000
ATTRIBUTES = ("exchange", "routing_key", "rate_limit")


def ping(desk: Desk, **_: Any) -> dict[str, str]:
    return {"ok": "pong"}


def hello(desk: Desk, from_node: str, **_: Any) -> Any:
    """Tell a Celery worker that has just started what it may have missed; take nothing over."""
    if from_node == desk.site.name:
        return None
    return {"revoked": revoked(desk), "clock": desk.clock.forward()}


def clock(desk: Desk, **_: Any) -> dict[str, int]:
    return {"clock": desk.clock.value}


def stats(desk: Desk, **_: Any) -> dict[str, Any]:
    site = desk.site
    return {
        "total": dict(site.consumer.totals),
        "pid": os.getpid(),
        "clock": str(desk.clock.value),
        "uptime": round(site.app.clock.now_s() - site.began_s),
        "pool": telling.pool(site.crew),
        "broker": telling.broker(site.app),
        "prefetch_count": site.hand.limit(),
        "rusage": telling.rusage(),
    }


def conf(desk: Desk, with_defaults: Any = False, **_: Any) -> dict[str, Any]:
    return telling.configuration(desk.site, with_defaults=bool(with_defaults))


def report(desk: Desk, **_: Any) -> dict[str, str]:
    return {"ok": telling.report(desk.site)}


def registered(desk: Desk, taskinfoitems: Any = None, builtins: Any = False, **_: Any) -> list[str]:
    wanted = taskinfoitems or ATTRIBUTES
    if not isinstance(wanted, list | tuple) or not all(isinstance(one, str) for one in wanted):
        raise MessageError("registered: taskinfoitems must be a list of names")
    tasks = desk.site.app.tasks
    return [telling.task(tasks[name], wanted) for name in sorted(tasks)]


def active_queues(desk: Desk, **_: Any) -> list[dict[str, Any]]:
    return [telling.queue(name) for name in desk.site.consumer.queues]


def active(desk: Desk, safe: Any = False, **_: Any) -> list[dict[str, Any]]:
    return _told(desk, _in_state(desk, "active"), is_safe=bool(safe))


def reserved(desk: Desk, **_: Any) -> list[dict[str, Any]]:
    return _told(desk, _in_state(desk, "reserved"))


def scheduled(desk: Desk, **_: Any) -> list[dict[str, Any]]:
    """Those that this worker holds. On streams the server keeps most of them."""
    return [
        {
            "eta": telling.eta(job),
            "priority": job.message.priority,
            "request": telling.request(desk.site, job),
        }
        for job in _in_state(desk, "scheduled")
    ]


def revoked(desk: Desk, **_: Any) -> list[str]:
    """The newest of them: an answer has its limit, too."""
    return desk.site.app.revocations.ids()[-MOST_REVOKED:]


def query_task(desk: Desk, ids: Any, **_: Any) -> dict[str, list[Any]]:
    wanted = set(ids_of(ids, "ids"))
    return {
        job.message.id: [_state(desk, job), telling.request(desk.site, job)]
        for job in desk.site.hand.jobs()
        if job.message.id in wanted
    }


def ids_of(value: object, name: str) -> list[str]:
    """Return the ids of tasks in `value`, one or a list. Raises MessageError."""
    several = value if isinstance(value, list | tuple) else [value]
    if len(several) > MOST_IDS:
        raise MessageError(f"{name}: {len(several)} of them, the limit is {MOST_IDS}")
    return [text(one, name) for one in several]


def _state(desk: Desk, job: Job) -> str:
    if job.stage is Stage.RUNNING:
        return "active"
    if job.stage is Stage.DONE:
        return "ready"
    return "scheduled" if desk.site.hand.is_scheduled(job) else "reserved"


def _in_state(desk: Desk, state: str) -> list[Job]:
    return [job for job in desk.site.hand.jobs() if _state(desk, job) == state]


def _told(desk: Desk, jobs: list[Job], *, is_safe: bool = False) -> list[dict[str, Any]]:
    return [telling.request(desk.site, job, is_safe=is_safe) for job in jobs]


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
