"""A record as a row of Celery's table, and back.

The row holds what Celery 5.7 writes with `result_serializer="json"`. A state that is finer than
Celery's is in the result, beside the exception that Celery makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from blimp.errors import ResultError
from blimp.queue.protocol.message import to_json
from blimp.queue.results.sql.tables import FINAL_STATUS, MAX_LENGTH

MAX_RETRIES = 2**31 - 1
EXTENDED = ("name", "worker", "retries", "queue")
PICKLE = b"\x80"
_NULL = msgspec.Raw(b"null")


class Document(msgspec.Struct):
    """The parts of what `record.encode` writes for which there are columns."""

    status: str
    task_id: str
    result: msgspec.Raw = _NULL
    traceback: str | None = None
    children: msgspec.Raw = _NULL
    date_done: str | None = None
    name: str | None = None
    args: msgspec.Raw = _NULL
    kwargs: msgspec.Raw = _NULL
    worker: str | None = None
    retries: int | None = None
    queue: str | None = None
    blimp_state: str | None = None


_decoder = msgspec.json.Decoder(Document)


def row_of(data: bytes, *, extended: bool, now: datetime) -> dict[str, Any]:
    """Return the columns for a record as `encode` writes it. Raises ResultError.

    now: its date if it has none, so that a task that never ends is cleaned up, too.
    """
    try:
        document = _decoder.decode(data)
        date = naive_utc(document.date_done) if document.date_done else now
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise ResultError(f"a result of {len(data)} bytes cannot be read: {error}") from error
    row = {
        "task_id": check_id(document.task_id),
        "status": document.status,
        "result": _result(document),
        "date_done": date,
        "traceback": _text(document.traceback),
        "children": _bytes(document.children, empty=b"[]"),
    }
    if extended:
        row |= {
            "name": _text(document.name, limit=MAX_LENGTH),
            "args": _bytes(document.args),
            "kwargs": _bytes(document.kwargs),
            "worker": _text(document.worker, limit=MAX_LENGTH),
            "retries": max(0, min(document.retries or 0, MAX_RETRIES)),
            "queue": _text(document.queue, limit=MAX_LENGTH),
        }
    return row


def document_of(row: Mapping[str, Any]) -> bytes:
    """Return the record of a row. Raises ResultError naming a column that cannot be read."""
    status = row["status"]
    document = {
        "status": status,
        "result": _json(row, "result"),
        "traceback": row["traceback"],
        "children": _json(row, "children") or [],
        "date_done": None,
        "task_id": row["task_id"],
    }
    if row["date_done"] is not None and status in FINAL_STATUS:
        document["date_done"] = row["date_done"].replace(tzinfo=UTC).isoformat()
    for name in EXTENDED:
        if name in row:
            document[name] = row[name]
    for name in ("args", "kwargs"):
        if row.get(name) is not None:
            document[name] = _json(row, name)
    fault = document["result"]
    if status in FINAL_STATUS and status != "SUCCESS" and isinstance(fault, dict):
        state = fault.pop("blimp_state", None)
        if state is not None:
            document["blimp_state"] = state
    return to_json(document)


def check_id(id: str) -> str:
    """Return `id`. Raises ResultError if it cannot be that of a row."""
    if not 0 < len(id) <= MAX_LENGTH:
        raise ResultError(f"id {id:.40}… of {len(id)} letters: a table takes 1 to {MAX_LENGTH}")
    if "\0" in id:
        raise ResultError(f"id {id!r}: a table takes no zero bytes")
    return id


def naive_utc(date: str) -> datetime:
    """Return an ISO 8601 date for a column without a time zone, which is UTC as Celery's."""
    found = datetime.fromisoformat(date)
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


def utc_now(wall_s: float) -> datetime:
    return datetime.fromtimestamp(wall_s, UTC).replace(tzinfo=None)


def from_json(data: object, *, what: str) -> Any:
    """Return the value in a column of JSON. Raises ResultError."""
    if data is None:
        return None
    if not isinstance(data, bytes):
        raise ResultError(f"{what} is {type(data).__name__}, must be bytes")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        hint = ": a pickle, which is never opened here" if data.startswith(PICKLE) else ""
        raise ResultError(f"{what} of {len(data)} bytes is no JSON ({error}){hint}") from error


def _json(row: Mapping[str, Any], column: str) -> Any:
    return from_json(row[column], what=column)


def _result(document: Document) -> bytes:
    result = bytes(document.result)
    if document.blimp_state is None:
        return result
    fault = msgspec.json.decode(result)
    if not isinstance(fault, dict):  # Celery raises what this names, and fails without it
        fault = {"exc_type": document.blimp_state, "exc_message": [], "exc_module": "blimp.errors"}
    return to_json(fault | {"blimp_state": document.blimp_state})


def _bytes(value: msgspec.Raw, *, empty: bytes = b"null") -> bytes | None:
    data = bytes(value)
    return None if data in (b"null", empty) else data


def _text(text: str | None, *, limit: int | None = None) -> str | None:
    """Return `text` without zero bytes, which PostgreSQL refuses, cut at `limit` letters."""
    return None if text is None else text.replace("\0", "\ufffd")[:limit]
