"""What a worker calls for a task of Django: its function, its context and its signals.

Tested by test_tasks_backend.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.tasks.base import TaskContext as DjangoContext
from django.tasks.signals import task_finished, task_started
from django.utils.json import normalize_json

from blimp.errors import LinkError, ResultError
from blimp.queue.extras.django.ticket import Ticket, now
from blimp.queue.protocol.record import Record, State, fault_of, trace_of

if TYPE_CHECKING:
    from django.tasks import Task, TaskResult

    from blimp.queue.app import TaskApp
    from blimp.queue.context import TaskContext
    from blimp.queue.interface import App

declared: dict[str, Task] = {}  # what backends of ours have seen, by the path of the function


def find_task(name: str) -> Task | None:
    """Return the task whose function has this path, None for what no backend of ours has seen.

    Its module is imported if it is one of an installed app.
    """
    module = name.rpartition(".")[0]
    if name not in declared and apps.ready and apps.get_containing_app_config(module):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    return declared.get(name)


def register(app: TaskApp, name: str) -> None:
    """Have `app` run the task whose function has this path, if there is one."""
    task = find_task(name)
    if task is not None and name not in app.tasks:
        app.task(name=name, bind=True)(_function(task))


def _function(task: Task) -> Callable[..., Any]:
    """Return what is called with the worker's context and the arguments of the message."""

    def run(context: TaskContext, /, *args: Any, **kwargs: Any) -> Any:
        app, ticket = context.task.app, _begun(context, task)
        _kept(ticket, app)
        result = _running(ticket, task)
        task_started.send_robust(sender, task_result=result)
        try:
            value = normalize_json(task.func(*_before(task, result), *args, **kwargs))
        except _NOT_ITS_END:
            raise
        except BaseException as error:
            task_finished.send_robust(sender, task_result=_failed(ticket, task, app, error))
            raise
        task_finished.send_robust(
            sender, task_result=_ended(ticket, task, app, state=State.SUCCESS, result=value)
        )
        return value

    async def run_async(context: TaskContext, /, *args: Any, **kwargs: Any) -> Any:
        app = context.task.app
        ticket = await app.awaiting.call(partial(_begun, context, task))
        await app.awaiting.call(partial(_kept, ticket, app))
        result = _running(ticket, task)
        await task_started.asend_robust(sender, task_result=result)
        try:
            value = normalize_json(await task.func(*_before(task, result), *args, **kwargs))
        except _NOT_ITS_END:
            raise
        except BaseException as error:
            await task_finished.asend_robust(sender, task_result=_failed(ticket, task, app, error))
            raise
        await task_finished.asend_robust(
            sender, task_result=_ended(ticket, task, app, state=State.SUCCESS, result=value)
        )
        return value

    sender = type(task.get_backend())
    function: Any = run_async if iscoroutinefunction(task.func) else run
    function.__signature__ = _signature(task)
    return function  # type: ignore[no-any-return]


def _signature(task: Task) -> inspect.Signature:
    """Return which arguments a message may have: a worker checks them, and a deploy compares them.

    Without annotations: what Django sends is JSON, of which nothing is made.
    """
    own = [*inspect.signature(task.func).parameters.values()][task.takes_context :]
    context = inspect.Parameter("blimp_context", inspect.Parameter.POSITIONAL_ONLY)
    return inspect.Signature([context, *(one.replace(annotation=one.empty) for one in own)])


_NOT_ITS_END = (asyncio.CancelledError, KeyboardInterrupt)  # the worker ends, or is asked to


def _begun(context: TaskContext, task: Task) -> Ticket:
    """Return the ticket with this attempt, and with those of earlier deliveries."""
    app, ticket = context.task.app, Ticket.carried(context.message, task)
    if context.message.delivery > 1 and app.results is not None:
        with contextlib.suppress(LinkError, ResultError):
            ticket = Ticket.kept(app, context.id) or ticket
    return ticket.begun(context.worker, at=now(app))


def _kept(ticket: Ticket, app: App) -> None:
    """Keep it. Nothing relies on it: an unreachable server must not keep a task from running."""
    with contextlib.suppress(LinkError, ResultError):
        ticket.keep(app)


def _before(task: Task, result: TaskResult) -> tuple[DjangoContext, ...]:
    return (DjangoContext(task_result=result),) if task.takes_context else ()


def _running(ticket: Ticket, task: Task) -> TaskResult:
    return ticket.result(task, Record(id=ticket.id, state=State.STARTED))


def _failed(ticket: Ticket, task: Task, app: App, error: BaseException) -> TaskResult:
    trace = trace_of(error)
    return _ended(ticket, task, app, state=State.FAILURE, fault=fault_of(error), traceback=trace)


def _ended(ticket: Ticket, task: Task, app: App, **fields: Any) -> TaskResult:
    done = now(app).isoformat()
    return ticket.result(task, Record(id=ticket.id, date_done=done, **fields))
