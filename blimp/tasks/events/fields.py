"""What an event says, in Celery's words.

Source: Celery 5.7, `events/dispatcher.py`, `worker/request.py`, `worker/heartbeat.py`.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from blimp import __version__
from blimp.tasks.message import MAX_REPR_LENGTH, build_headers
from blimp.tasks.results.record import State

if TYPE_CHECKING:
    from blimp.tasks.message import TaskMessage
    from blimp.tasks.results.record import Fault
    from blimp.tasks.work.job import Job, Verdict

Fields = dict[str, Any]

SOFTWARE = {"sw_ident": "blimp", "sw_ver": __version__, "sw_sys": os.uname().sysname}
MAX_TRACEBACK_LENGTH = 8192
_REVOKED = (State.REVOKED, State.EXPIRED, State.SUPERSEDED)
_encode = msgspec.json.Encoder().encode


def to_bytes(fields: Fields) -> bytes:
    """Return `fields` as JSON, whatever a stranger's texts hold."""
    try:
        return _encode(fields)
    except UnicodeEncodeError:  # half a surrogate pair
        return _encode({key: _mended(value) for key, value in fields.items()})


def _mended(value: Any) -> Any:
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def utc_offset_h() -> float:
    """Return hours west of UTC, which is what Celery calls `utcoffset`."""
    return (time.altzone if time.localtime().tm_isdst > 0 else time.timezone) / 3600


def about_message(message: TaskMessage) -> Fields:
    """Return what is told of a task before it runs."""
    headers = message.headers
    if not (_is_text(headers.get("argsrepr")) and _is_text(headers.get("kwargsrepr"))):
        headers = build_headers(message)
    return {
        "uuid": message.id,
        "name": message.task,
        "args": headers["argsrepr"][:MAX_REPR_LENGTH],
        "kwargs": headers["kwargsrepr"][:MAX_REPR_LENGTH],
        "root_id": message.root_id or message.id,
        "parent_id": message.parent_id,
        "retries": message.retries,
        "eta": _text_or_none(headers.get("eta")),
        "expires": _text_or_none(headers.get("expires")),
    }


def about_sent(message: TaskMessage) -> Fields:
    """Return what its sender tells of a task."""
    return about_message(message) | {
        "queue": message.queue,
        "exchange": "",
        "routing_key": message.queue,
    }


def about_end(job: Job, verdict: Verdict) -> tuple[str, Fields] | None:
    """Return the type of the event that tells of a job's end, and what is particular to it.

    None where nothing is known of it. What another delivery has ended is told once more: its
    worker may have been killed before it did.
    """
    state, result, fault, trace = verdict.state, verdict.result, verdict.fault, verdict.traceback
    if verdict.settled:
        if job.previous is None or not job.previous.final:
            return None
        previous = job.previous
        state, result = previous.state, previous.result
        fault, trace = previous.fault, previous.traceback
    if verdict.give_back:
        return "task-rejected", {"requeue": True}
    told = {"exception": _exception(fault), "traceback": trace and trace[-MAX_TRACEBACK_LENGTH:]}
    if verdict.retry_in_s is not None:
        return "task-retried", told
    if state is State.SUCCESS:
        return "task-succeeded", {"result": short(result), "runtime": _runtime_s(job)}
    if state in _REVOKED:
        expired = state is State.EXPIRED
        return "task-revoked", {"terminated": job.is_called, "signum": None, "expired": expired}
    if verdict.dead and fault is not None and fault.exc_type == "Reject":
        return "task-rejected", {"requeue": False}
    return "task-failed", told


def short(value: Any) -> str:
    """Return `value` as people read it, cut where it is long."""
    try:
        text = repr(value)
    except Exception as error:  # a result may be of a class whose own methods raise
        text = f"<{type(value).__name__}: {type(error).__name__} in its repr>"
    return _cut(text)


def _exception(fault: Fault | None) -> str:
    if fault is None:
        return ""
    return _cut(f"{fault.exc_type}({', '.join(map(short, fault.exc_message))})")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_REPR_LENGTH else f"{text[: MAX_REPR_LENGTH - 3]}..."


def _runtime_s(job: Job) -> float | None:
    if job.started_s is None or job.ended_s is None:
        return None  # its function was called elsewhere, or before events were told
    return job.ended_s - job.started_s


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
