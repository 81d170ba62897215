"""The tasks named `celery.*`: every app has them, because Celery's clients send them.

`celery.map` and `celery.starmap` call another task, here and now, with one item after the other.
They run as that task would: with its options, in its pool, with what it requires.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import MessageError
from blimp.queue.canvas.signature import chord, chunks, group, signature
from blimp.queue.options import TaskOptions
from blimp.queue.protocol.embed import GATHER, STARMAP, check_signature, kind_of
from blimp.queue.task import AppOfTask, Task

if TYPE_CHECKING:
    from blimp.queue.context import TaskContext
    from blimp.queue.protocol.message import TaskMessage


def builtin_task(app: AppOfTask, name: str) -> Task | None:
    """Return the built-in task called `name`, None if there is none."""
    function = _FUNCTIONS.get(name)
    if function is None:
        return None
    return Task(app=app, name=name, function=function, options=TaskOptions(bind=True))


def map_task(app: AppOfTask, message: TaskMessage) -> Task:
    """Return the task that a `celery.map` or `celery.starmap` message asks for.

    Raises UnknownTask, MessageError.
    """
    called = message.kwargs.get("task")
    check_signature(called, where=f"{message.task}: task")
    task = app.get_task(called["task"])  # type: ignore[index]
    if kind_of(called) is not None:  # type: ignore[arg-type]
        raise MessageError(f"{message.task}: {task.name!r} is not a single task")
    options = msgspec.structs.replace(task.options, bind=True)
    function = _mapping(task, star=message.task == STARMAP)
    return Task(app=app, name=message.task, function=function, options=options)


def _mapping(called: Task, *, star: bool) -> Callable[..., Any]:
    def calls(context: TaskContext, it: Sequence[Any]) -> list[tuple[Any, ...]]:
        before: tuple[Any, ...] = ()
        if called.options.bind:
            own = copy.copy(context)
            own.task = called
            before = (own,)
        return [(*before, *(item if star else (item,))) for item in it]

    def call_each(context: TaskContext, task: object, it: Sequence[Any]) -> list[Any]:  # noqa: ARG001
        return [called.function(*args) for args in calls(context, it)]

    async def await_each(context: TaskContext, task: object, it: Sequence[Any]) -> list[Any]:  # noqa: ARG001
        return [await called.function(*args) for args in calls(context, it)]

    return await_each if called.is_async else call_each


def _accumulate(_: TaskContext, *args: Any, index: int | None = None, **__: Any) -> Any:
    return args if index is None else args[index]


def _backend_cleanup(context: TaskContext) -> None:
    results = context.task.app.results
    if results is not None:
        results.cleanup()


def _chunks(context: TaskContext, task: Any, it: Sequence[Any], n: int) -> None:
    context.replace(chunks(signature(task), it, n))


def _group(
    context: TaskContext,
    tasks: Sequence[Any],
    result: object = None,  # noqa: ARG001
    group_id: str | None = None,  # noqa: ARG001
    partial_args: Sequence[Any] = (),
    **_: object,
) -> None:
    context.replace(group(signature(one).clone(partial_args) for one in tasks))


def _chord(
    context: TaskContext, header: Any, body: Any, partial_args: Sequence[Any] = (), **_: object
) -> None:
    tasks = header["kwargs"]["tasks"] if isinstance(header, dict) else header
    parts = [signature(one).clone(partial_args) for one in tasks]
    context.replace(chord(parts, signature(body)))


def _chain(_: TaskContext, *__: Any, **___: Any) -> None:
    raise NotImplementedError("chain is not a real task")


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    GATHER: _accumulate,
    "celery.backend_cleanup": _backend_cleanup,
    "celery.chunks": _chunks,
    "celery.group": _group,
    "celery.chord": _chord,
    "celery.chain": _chain,
}
