"""What became of a task: its states and the record that Celery also reads.

Celery knows three final states. Ours are finer, so a record carries both: `status` is
Celery's, `blimp_state` is ours if they differ. A Celery program that waits for a refused
command gets an exception named Refused with the reason, and does not wait for ever.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from blimp.errors import ResultError
from blimp.queue.protocol.fault import Fault, read_fault
from blimp.queue.protocol.kombu_body import from_json
from blimp.queue.protocol.message import to_json


class State(StrEnum):
    """What is known of a task. The last seven are final: see FINAL."""

    PENDING = "PENDING"  # nothing is known: not sent, not begun, or forgotten
    STARTED = "STARTED"
    PROGRESS = "PROGRESS"
    RETRY = "RETRY"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    REFUSED = "REFUSED"  # the ship said no; the reason is the result
    EXPIRED = "EXPIRED"  # too old before it could begin
    INTERRUPTED = "INTERRUPTED"  # begun, cut off, and not run again
    REVOKED = "REVOKED"  # called back
    SUPERSEDED = "SUPERSEDED"  # a newer message with the same key came before it began


FINAL = frozenset(
    {
        State.SUCCESS,
        State.FAILURE,
        State.REFUSED,
        State.EXPIRED,
        State.INTERRUPTED,
        State.REVOKED,
        State.SUPERSEDED,
    }
)

CELERY_STATUS = {
    State.REFUSED: "FAILURE",
    State.INTERRUPTED: "FAILURE",
    State.EXPIRED: "REVOKED",
    State.SUPERSEDED: "REVOKED",
}


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One task's last known state.

    result: what it returned (SUCCESS), how far it is (PROGRESS), or its fault.
    args, kwargs: only if results are extended; they do not count for a limit.
    children: what its end has begun, as Celery writes results.
    """

    id: str
    state: State
    result: Any = None
    fault: Fault | None = None
    traceback: str | None = None
    date_done: str | None = None
    name: str | None = None
    worker: str | None = None
    retries: int = 0
    queue: str | None = None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    parent_id: str | None = None
    group_id: str | None = None
    children: tuple[Any, ...] = ()

    @property
    def final(self) -> bool:
        return self.state in FINAL

    @property
    def reason(self) -> str:
        """Why it did not succeed, "" if it did or is still under way."""
        return self.fault.text if self.fault else ""


def encode(record: Record, *, limit_bytes: int) -> bytes:
    """Return `record` as Celery's JSON.

    Raises ResultError if JSON cannot hold the result, or it is longer than the limit.
    """
    status = CELERY_STATUS.get(record.state, record.state.value)
    document: dict[str, Any] = {
        "status": status,
        "result": record.fault.document() if record.fault else record.result,
        "traceback": record.traceback,
        "children": record.children,
        "date_done": record.date_done,
        "task_id": record.id,
        "name": record.name,
        "worker": record.worker,
        "retries": record.retries,
        "queue": record.queue,
    }
    given = {
        name: value
        for name, value in (("args", record.args), ("kwargs", record.kwargs))
        if value is not None
    }
    document |= given
    if record.parent_id:
        document["parent_id"] = record.parent_id
    if record.group_id:
        document["group_id"] = record.group_id
    if status != record.state.value:
        document["blimp_state"] = record.state.value
    try:
        data = to_json(document)
        size = len(data) - (len(to_json(given)) if given else 0)
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError(f"{record.name} returned what JSON cannot hold: {error}") from error
    if size > limit_bytes:
        raise ResultError(
            f"{record.name} returned {size} bytes as JSON: the limit is {limit_bytes}"
        )
    return data


def decode(data: bytes) -> Record:
    """Return the record that this package or Celery wrote. Raises ResultError otherwise."""
    try:
        document = from_json(data)
        if not isinstance(document, dict):
            raise ValueError(f"it is {type(document).__name__}, must be an object")
        state = State(document.get("blimp_state") or document["status"])
        result, fault = document.get("result"), None
        if state in FINAL and state is not State.SUCCESS and isinstance(result, dict):
            fault = read_fault(result, state)
        return Record(
            id=str(document["task_id"]),
            state=state,
            result=None if fault else result,
            fault=fault,
            traceback=document.get("traceback"),
            date_done=document.get("date_done"),
            name=document.get("name"),
            worker=document.get("worker"),
            retries=document.get("retries") or 0,
            queue=document.get("queue"),
            args=document.get("args"),
            kwargs=document.get("kwargs"),
            parent_id=document.get("parent_id"),
            group_id=document.get("group_id"),
            children=tuple(document.get("children") or ()),
        )
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise ResultError(f"a result of {len(data)} bytes cannot be read: {error}") from error
