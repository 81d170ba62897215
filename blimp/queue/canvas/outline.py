"""One signature of a single task as a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import MessageError
from blimp.queue.protocol.embed import Signature, options_of
from blimp.queue.protocol.message import LOW, NORMAL, TaskMessage

if TYPE_CHECKING:
    from blimp.queue.canvas.rewriting import Then
    from blimp.queue.task import Task


def _nothing(*_: object) -> None:
    """Allow everything."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What messages have that their signatures do not say.

    queue: where they go. tasks: those known here, whose options count where a signature says
    nothing. now_s: the broker's time; may raise LinkError. issues: they begin to age now.
    check: raises MessageError for messages and chords, by group and size, that cannot be sent.
    """

    queue: str
    now_s: Callable[[], float]
    tasks: Mapping[str, Task] = msgspec.field(default_factory=dict)
    root_id: str | None = None
    parent_id: str | None = None
    priority: int | None = None
    origin: str = ""
    headers: dict[str, Any] = msgspec.field(default_factory=dict)
    issues: bool = False
    check: Callable[[Sequence[TaskMessage], Sequence[tuple[str, int]]], None] = _nothing


def make_message(
    signature: Signature,
    *,
    id: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    then: Then,
    settings: Settings,
) -> TaskMessage:
    """Return the message of one task. Raises MessageError for an option that is wrong."""
    name, options = signature["task"], options_of(signature)
    task = settings.tasks.get(name)
    own, own_kwargs = tuple(signature.get("args") or ()), dict(signature.get("kwargs") or {})
    if not signature.get("immutable"):
        own, own_kwargs = (*args, *own), own_kwargs | kwargs
    ttl_s = _number(options, "ttl_s", task.options.ttl_s if task else None)
    if options.get("coalesce"):
        raise MessageError(f"{name!r} has 'coalesce': only a task that is sent alone may")
    ignore = options.get("ignore_result")
    if ignore is None and task is not None:
        ignore = task.options.ignore_result
    stamps = options.get("stamped_headers") or ()
    return TaskMessage(
        id=id,
        task=name,
        args=own,
        kwargs=own_kwargs,
        queue=options.get("queue") or (task.options.queue if task else None) or settings.queue,
        priority=_priority(options, task, settings),
        eta_s=_moment(options, "eta", "countdown", settings),
        expires_s=_moment(options, "expires", "expires", settings),
        issued_ms=int(settings.now_s() * 1000) if settings.issues or ttl_s is not None else None,
        ttl_s=ttl_s,
        timelimit=(_number(options, "time_limit"), _number(options, "soft_time_limit")),
        ignore_result=bool(ignore),
        root_id=settings.root_id or options.get("root_id"),
        parent_id=settings.parent_id or options.get("parent_id"),
        group_id=then.group_id,
        group_index=then.group_index,
        chain=then.chain,
        chord=then.chord,
        callbacks=then.link,
        errbacks=then.link_error,
        nesting=options.get("replaced_task_nesting") or 0,
        stamps={stamp: options.get(stamp) for stamp in stamps} if stamps else {},
        origin=settings.origin,
        headers=settings.headers | (options.get("headers") or {}),
    )


def _priority(options: Mapping[str, Any], task: Task | None, settings: Settings) -> int:
    priority = options.get("priority")
    if isinstance(priority, int) and 0 <= priority <= LOW:
        return priority
    if settings.priority is not None:
        return settings.priority
    return task.options.priority if task else NORMAL


def _number(options: Mapping[str, Any], name: str, default: float | None = None) -> float | None:
    value = options.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise MessageError(f"option {name!r} is {value!r:.40}, must be a number above 0")
    return value


def _moment(
    options: Mapping[str, Any], name: str, from_now: str, settings: Settings
) -> float | None:
    """Return a time, seconds since the epoch: one that is told, or so many seconds from now."""
    value = options.get(name)
    if value is None or isinstance(value, int | float):
        after_s = options.get(from_now)
        if after_s is None:
            return None
        if isinstance(after_s, bool) or not isinstance(after_s, int | float):
            raise MessageError(f"option {from_now!r} is {after_s!r:.40}, must be seconds")
        return settings.now_s() + after_s
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise MessageError(f"option {name!r} is {value!r:.80}, must be an ISO 8601 time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
