"""What a task calls when it has ended: messages that are sent with its end, or not at all.

Celery's signatures, as they stand in a message's `callbacks` and `errbacks`. A callback gets
the result before its own arguments, an errback the task's id, unless it is `immutable`.
Exactly one of the two kinds follows an end: every final state but SUCCESS is an error here,
so that what was taken is given back whatever became of the task.

Source: docs.celeryq.dev, "Canvas: Designing Work-flows", signatures and link_error.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from blimp.errors import MessageError
from blimp.tasks.message import LOW, MAX_NAME_LENGTH, TaskMessage
from blimp.tasks.observe.context import PARENT, STATE
from blimp.tasks.results.record import FINAL, State

MOST_CALLBACKS = 100
_INHERITED = ("blimp_vehicle", "blimp_source", PARENT, STATE)


def read_callbacks(embed: dict[str, Any] | None, what: str) -> tuple[dict[str, Any], ...]:
    """Return the signatures under `what`. Raises MessageError saying what is wrong with one."""
    found = (embed or {}).get(what)
    if not found:
        return ()
    if not isinstance(found, list) or len(found) > MOST_CALLBACKS:
        raise MessageError(f"body: {what!r} must be a list of at most {MOST_CALLBACKS} signatures")
    return tuple(check_signature(one, where=f"body: {what}[{n}]") for n, one in enumerate(found))


def check_signature(signature: object, *, where: str) -> dict[str, Any]:
    """Return `signature` where it asks for a single task. Raises MessageError."""
    if not isinstance(signature, dict):
        raise MessageError(f"{where} is {type(signature).__name__}, must be a signature")
    name = signature.get("task")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
        raise MessageError(f"{where}: 'task' must be 1 to {MAX_NAME_LENGTH} letters")
    if signature.get("subtask_type"):
        kind = f"{signature['subtask_type']!r:.40}"
        raise MessageError(f"{where} is a {kind}: this version calls single tasks only")
    for part, kinds in (("args", (list, tuple)), ("kwargs", (dict,)), ("options", (dict,))):
        value = signature.get(part)
        if value is not None and not isinstance(value, kinds):
            raise MessageError(
                f"{where}: {part} is {type(value).__name__}, must be {kinds[0].__name__}"
            )
    options = signature.get("options") or {}
    for part in ("task_id", "queue"):
        value = options.get(part)
        if value is not None and (
            not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH
        ):
            raise MessageError(f"{where}: {part} must be 1 to {MAX_NAME_LENGTH} letters")
    for part in ("link", "link_error", "chord"):
        if options.get(part):
            raise MessageError(f"{where}: {part!r} is set: this version calls single tasks only")
    return signature


def following(
    message: TaskMessage, *, state: State, result: Any, queue: str
) -> tuple[TaskMessage, ...]:
    """Return what is to be sent after `message` ended in `state`; nothing before it has.

    queue: where a signature that names none goes. The ids come from the message's own: sent
    twice, where result and acknowledgement are two steps, they are the same tasks.
    """
    if state not in FINAL:
        return ()
    if state is State.SUCCESS:
        return _each(message, message.callbacks, "callback", (result,), queue)
    return _each(message, message.errbacks, "errback", (message.id,), queue)


def _each(
    message: TaskMessage,
    signatures: Sequence[dict[str, Any]],
    kind: str,
    first: tuple[Any, ...],
    queue: str,
) -> tuple[TaskMessage, ...]:
    return tuple(
        _message(message, signature, first=first, queue=queue, name=f"{message.id}/{kind}/{number}")
        for number, signature in enumerate(signatures)
    )


def _message(
    parent: TaskMessage, signature: dict[str, Any], *, first: tuple[Any, ...], queue: str, name: str
) -> TaskMessage:
    options = signature.get("options") or {}
    args = tuple(signature.get("args") or ())
    priority = options.get("priority")
    return TaskMessage(
        id=options.get("task_id") or str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
        task=signature["task"],
        args=args if signature.get("immutable") else (*first, *args),
        kwargs=dict(signature.get("kwargs") or {}),
        queue=options.get("queue") or queue,
        priority=priority
        if isinstance(priority, int) and 0 <= priority <= LOW
        else parent.priority,
        root_id=parent.root_id or parent.id,
        parent_id=parent.id,
        origin=parent.origin,
        headers=_inherited(parent.headers),
    )


def _inherited(headers: dict[str, Any]) -> dict[str, Any]:
    """Return the parent's headers that say for whom, from whom and of which trace.

    Not how old or how often.
    """
    return {name: headers[name] for name in _INHERITED if name in headers}
