"""The sender's end of a task that was sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blimp.errors import (
    Expired,
    Interrupted,
    Refused,
    Revoked,
    Superseded,
    TaskError,
    TaskFailed,
)
from blimp.queue.protocol.record import Record, State

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.results.base import ResultBackend

OnProgress = Callable[[dict[str, Any]], None]


class AsyncResult:
    """One task that was sent, by its id: `AsyncResult(id, app=app)`.

    Every question is one to the keeper of results. Raises TaskError where the app keeps none,
    LinkError where its keeper does not answer.

    parent: of a link of a chain, the one before; of a chord's body, its header.
    """

    def __init__(self, id: str, *, app: TaskApp, parent: AsyncResult | None = None) -> None:
        self.id = id
        self.app = app
        self.parent = parent

    @property
    def record(self) -> Record:
        """What is known of it now; a PENDING record where nothing is."""
        return self._store().get(self.id)

    @property
    def state(self) -> State:
        """Ours, which is finer than Celery's; PENDING where nothing is known."""
        return self.record.state

    @property
    def status(self) -> State:
        """`state`, as Celery also calls it."""
        return self.state

    @property
    def result(self) -> Any:
        """What it returned, the exception that it ended with, or None before its end."""
        record = self.record
        if not record.final:
            return None
        return record.result if record.state is State.SUCCESS else error_of(record)

    @property
    def progress(self) -> dict[str, Any] | None:
        """What the task last told of itself, None where it is not in PROGRESS."""
        record = self.record
        return record.result if record.state is State.PROGRESS else None

    @property
    def children(self) -> list[AsyncResult]:
        """What its end has begun: callbacks, and the next link of its chain."""
        from blimp.queue.results.group import from_tuple

        return [from_tuple(one, app=self.app) for one in self.record.children]

    def ready(self) -> bool:
        """Say whether it has ended, however."""
        return self.record.final

    def successful(self) -> bool:
        """Say whether it has ended in a success."""
        return self.state is State.SUCCESS

    def failed(self) -> bool:
        """Say whether it has ended, and not in a success."""
        record = self.record
        return record.final and record.state is not State.SUCCESS

    def wait(self, timeout: float, *, on_progress: OnProgress | None = None) -> Record:
        """Return the final record. Raises TimeoutError after `timeout` seconds, LinkError.

        on_progress: called with what the task tells of itself, as it comes.
        """
        clock = self.app.clock
        deadline_s = clock.now_s() + timeout
        with self._store().watch(self.id) as watch:
            while True:
                record = watch.next(timeout_s=max(0.0, deadline_s - clock.now_s()))
                if record is not None and record.final:
                    return record
                if on_progress and record is not None and record.state is State.PROGRESS:
                    on_progress(record.result)
                if clock.now_s() >= deadline_s:
                    state = record.state if record else self.state
                    raise TimeoutError(f"task {self.id} is {state} after {timeout:g} s")

    def get(self, timeout: float, *, on_progress: OnProgress | None = None) -> Any:
        """Return what the task returned, once it has.

        Raises what became of it otherwise: Refused, Expired, Revoked, Superseded, Interrupted
        or TaskFailed;
        TimeoutError after `timeout` seconds, and LinkError where the broker is lost.
        """
        record = self.wait(timeout, on_progress=on_progress)
        if record.state is State.SUCCESS:
            return record.result
        raise error_of(record)

    def revoke(self, *, terminate: bool = False) -> None:
        """Call the task back; see `TaskApp.revoke`. A link that was not sent yet counts, too."""
        self.app.revoke(self.id, terminate=terminate)

    def forget(self) -> None:
        """Have its record deleted, and those of what came before it."""
        if self.parent is not None:
            self.parent.forget()
        self._store().forget(self.id)

    def as_tuple(self) -> list[Any]:
        """Return it as Celery writes a result into another's record."""
        return [[self.id, self.parent and self.parent.as_tuple()], None]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.id}>"

    def _store(self) -> ResultBackend:
        return backend_of(self.app)


def backend_of(app: TaskApp) -> ResultBackend:
    """Return what keeps the results of `app`. Raises TaskError where nothing does."""
    if app.results is None:
        raise TaskError(f"app {app.name!r} keeps no results: give it a result_backend")
    return app.results


def error_of(record: Record) -> TaskError:
    """Return the exception for a final record that is not a success."""
    kinds = {
        State.REFUSED: Refused,
        State.EXPIRED: Expired,
        State.INTERRUPTED: Interrupted,
        State.REVOKED: Revoked,
        State.SUPERSEDED: Superseded,
    }
    if record.state in kinds:
        return kinds[record.state](record.reason)
    kind = record.fault.exc_type if record.fault else record.state.value
    return TaskFailed(record.reason, kind=kind, trace=record.traceback)
