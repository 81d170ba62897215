"""What Django wants to know of a task and its record does not say.

It travels in a header of the task's message, so that the worker has it, and it is kept in the
app's result backend under an id of its own, so that who asks has it, whatever the task's record
says by then. Tested by test_tasks_backend.py.
"""

from __future__ import annotations

from copy import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from django.conf import settings
from django.tasks import TaskResult, TaskResultStatus
from django.tasks.base import TaskError
from django.utils import timezone

from blimp.errors import ResultError
from blimp.queue.extras.django import HEADER
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import Record, State
from blimp.reading import ready

if TYPE_CHECKING:
    from django.tasks import Task

    from blimp.queue.interface import App


KEPT_AS = "{}.django"  # the id of a ticket


@ready
class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """One task that was sent. name: the path of its function. attempts: workers, and when."""

    id: str
    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    priority: int
    queue_name: str
    enqueued_at: datetime
    run_after: datetime | None = None
    attempts: tuple[tuple[str, datetime], ...] = ()

    @classmethod
    def of(cls, task: Task, *, id: str, args: Any, kwargs: Any, at: datetime) -> Ticket:
        return cls(
            id=id,
            name=task.module_path,
            args=list(args),
            kwargs=dict(kwargs),
            backend=task.backend,
            priority=task.priority,
            queue_name=task.queue_name,
            enqueued_at=at,
            run_after=task.run_after,
        )

    @classmethod
    def carried(cls, message: TaskMessage, task: Task) -> Ticket:
        """Return the one in a message; of one that Django did not send, what the task says."""
        issued_s = (message.issued_ms or 0) / 1e3
        at = datetime.fromtimestamp(issued_s, UTC)
        args, kwargs = message.args, message.kwargs
        plain = cls.of(task, id=message.id, args=args, kwargs=kwargs, at=at)
        try:
            return _read(plain, message.headers.get(HEADER))
        except msgspec.ValidationError:
            return plain

    @classmethod
    def sent(cls, name: str, args: Any, kwargs: Any, options: Any) -> Ticket:
        """Return the one of a task that is sent, or is to be sent, with these options."""
        given = {"id": options["task_id"], "name": name, "args": args, "kwargs": kwargs}
        return msgspec.convert({**options["headers"][HEADER], **given}, cls)

    @classmethod
    def kept(cls, app: App, id: str) -> Ticket | None:
        """Return the one that is kept of task `id`. Raises LinkError, ResultError."""
        assert app.results is not None
        record = app.results.get(KEPT_AS.format(id))
        if record.result is None:
            return None
        try:
            return msgspec.convert(record.result, cls)
        except msgspec.ValidationError as error:
            raise ResultError(f"{record.id} is no ticket of Django's: {error}") from None

    def document(self) -> dict[str, Any]:
        """Return it as JSON, but for what its message says."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        for name in ("id", "name", "args", "kwargs"):
            del document[name]
        return document

    def keep(self, app: App) -> None:
        """Keep it as long as a result. Raises LinkError, ResultError."""
        if app.results is not None:
            record = Record(
                id=KEPT_AS.format(self.id),
                state=State.PENDING,
                result=msgspec.to_builtins(self),  # no column of a database needs to have it
                date_done=now(app).isoformat(),  # from when on a database keeps it
                name=self.name,
            )
            app.results.store(record)

    def begun(self, worker: str, *, at: datetime) -> Ticket:
        """Return it with one more attempt."""
        return msgspec.structs.replace(self, attempts=(*self.attempts, (worker, at)))

    def result(self, task: Task, record: Record) -> TaskResult:
        """Return what Django wants to know. task: the one that was declared."""
        times = [at for _, at in self.attempts]
        result = TaskResult(
            task=self._as_sent(task),
            id=self.id,
            status=self._status(record),
            enqueued_at=_shown(self.enqueued_at),
            started_at=_shown(times[0] if times else None),
            last_attempted_at=_shown(times[-1] if times else None),
            finished_at=_shown(_done_at(record)),
            args=self.args,
            kwargs=self.kwargs,
            backend=self.backend,
            errors=_errors(record),
            worker_ids=[worker for worker, _ in self.attempts],
        )
        object.__setattr__(result, "_return_value", record.result if record.final else None)
        return result

    def _status(self, record: Record) -> TaskResultStatus:
        if record.final:
            is_success = record.state is State.SUCCESS
            return TaskResultStatus.SUCCESSFUL if is_success else TaskResultStatus.FAILED
        begun = self.attempts and record.state is not State.RETRY
        return TaskResultStatus.RUNNING if begun else TaskResultStatus.READY

    def _as_sent(self, task: Task) -> Task:
        """Return the task with the options of this call. `using` would check them by the
        settings of now, and it was sent under those of before.
        """
        sent = copy(task)
        for name in ("priority", "queue_name", "run_after", "backend"):
            object.__setattr__(sent, name, getattr(self, name))
        return sent


def now(app: App) -> datetime:
    """Return the time of the clock that a record has its own from."""
    return datetime.fromtimestamp(app.clock.wall_s(), UTC)


def _read(plain: Ticket, carried: Any) -> Ticket:
    if not isinstance(carried, dict):
        return plain
    return msgspec.convert({**msgspec.to_builtins(plain), **carried, "id": plain.id}, Ticket)


def _shown(moment: datetime | None) -> datetime | None:
    """Return it as the project's settings have times."""
    return moment if moment is None or settings.USE_TZ else timezone.make_naive(moment)


def _done_at(record: Record) -> datetime | None:
    if not record.final or record.date_done is None:
        return None
    found = datetime.fromisoformat(record.date_done)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _errors(record: Record) -> list[TaskError]:
    fault = record.fault
    if fault is None:
        return []
    path = f"{fault.exc_module}.{fault.exc_type}"
    trace = record.traceback or f"{path}: {fault.text}\n"
    return [TaskError(exception_class_path=path, traceback=trace)]
