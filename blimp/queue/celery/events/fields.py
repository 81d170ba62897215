"""The fields of an event, as Celery names them.

Source: Celery 5.7, `events/dispatcher.py`, `worker/request.py`, `worker/heartbeat.py`.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.distribution import build
from blimp.queue.protocol.message import MAX_REPR_LENGTH, build_headers
from blimp.queue.protocol.record import State

if TYPE_CHECKING:
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.protocol.record import Fault, Outcome
    from blimp.queue.worker.job import Job

Fields = dict[str, Any]

MAX_TRACEBACK_LENGTH = 8192
_REVOKED = (State.REVOKED, State.EXPIRED, State.SUPERSEDED)
_encode = msgspec.json.Encoder().encode


class Started(msgspec.Struct, frozen=True):
    """A task's function was called. The frequent events are structs: they encode faster."""

    type: str
    timestamp: float
    uuid: str


class Received(Started, frozen=True):
    name: str
    args: str
    kwargs: str
    root_id: str
    parent_id: str | None
    retries: int
    eta: str | None
    expires: str | None


class Succeeded(Started, frozen=True):
    result: str
    runtime: float | None


def to_bytes(event: Fields | msgspec.Struct, *, program: bytes) -> bytes:
    """Return `event` as JSON, for any text a task may hold.

    program: the fields that every event of a program has, as a JSON object.
    """
    try:
        return _encode(event)[:-1] + b"," + program[1:]
    except UnicodeEncodeError:  # half a surrogate pair
        fields = event if isinstance(event, dict) else msgspec.structs.asdict(event)
        return to_bytes({key: _valid(value) for key, value in fields.items()}, program=program)


@cache
def software() -> Fields:
    """Return what a worker says of its program."""
    return {"sw_ident": "blimp", "sw_ver": build().version, "sw_sys": os.uname().sysname}


def program(*, hostname: str, pid: int) -> bytes:
    """Return the fields that every event of a program has, as JSON."""
    return _encode({"hostname": hostname, "utcoffset": utc_offset_h(), "pid": pid})


def _valid(value: Any) -> Any:
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def utc_offset_h() -> float:
    """Return hours west of UTC, which is what Celery calls `utcoffset`."""
    return (time.altzone if time.localtime().tm_isdst > 0 else time.timezone) / 3600


def received(message: TaskMessage, *, at_s: float, kind: str = "task-received") -> Received:
    """Return the event of a task that has arrived. at_s: the time of day."""
    headers = message.headers
    args, kwargs = headers.get("argsrepr"), headers.get("kwargsrepr")
    if not (isinstance(args, str) and isinstance(kwargs, str)):
        headers = build_headers(message)
        args, kwargs = headers["argsrepr"], headers["kwargsrepr"]
    eta, expires = headers.get("eta"), headers.get("expires")
    return Received(
        kind,
        at_s,
        message.id,
        message.task,
        args[:MAX_REPR_LENGTH],
        kwargs[:MAX_REPR_LENGTH],
        message.root_id or message.id,
        message.parent_id,
        message.retries,
        eta if isinstance(eta, str) else None,
        expires if isinstance(expires, str) else None,
    )


def sent(message: TaskMessage, *, at_s: float) -> Fields:
    """Return the event of a task that was sent."""
    return msgspec.structs.asdict(received(message, at_s=at_s, kind="task-sent")) | {
        "queue": message.queue,
        "exchange": "",
        "routing_key": message.queue,
    }


def ended(job: Job, outcome: Outcome, *, at_s: float) -> Fields | Succeeded | None:
    """Return the event of a job's end; None if it has not ended, or its end is not known.

    An end that another delivery has written gets its event once more: that worker may have been
    killed before it sent one.
    """
    state, result, fault, trace = outcome.state, outcome.result, outcome.fault, outcome.traceback
    if outcome.again_in_s is not None or outcome.replacement is not None:
        return None
    if outcome.settled:
        if job.previous is None or not job.previous.final:
            return None
        previous = job.previous
        state, result = previous.state, previous.result
        fault, trace = previous.fault, previous.traceback
    is_over = not outcome.requeue and outcome.retry_in_s is None
    if state is State.SUCCESS and is_over:
        return Succeeded("task-succeeded", at_s, job.message.id, short(result), _runtime_s(job))
    event: Fields = {"timestamp": at_s, "uuid": job.message.id}
    if outcome.requeue:
        return event | {"type": "task-rejected", "requeue": True}
    if outcome.dead and fault is not None and fault.exc_type == "Reject":
        return event | {"type": "task-rejected", "requeue": False}
    if state in _REVOKED:
        expired = state is State.EXPIRED
        why = {"terminated": job.is_called, "signum": None, "expired": expired}
        return event | {"type": "task-revoked", **why}
    return event | {
        "type": "task-failed" if outcome.retry_in_s is None else "task-retried",
        "exception": _exception(fault),
        "traceback": trace and trace[-MAX_TRACEBACK_LENGTH:],
    }


def short(value: Any) -> str:
    """Return `value` as text for people, cut if it is long."""
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
        return None  # its function was called elsewhere, or before events were enabled
    return job.ended_s - job.started_s
