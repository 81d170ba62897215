"""The sender's handles on tasks that were sent: AsyncResult for one, GroupResult for several."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, cast

from blimp.errors import (
    Expired,
    Interrupted,
    Refused,
    ResultError,
    Revoked,
    Superseded,
    TaskError,
    TaskFailed,
)
from blimp.queue.neighbours import load
from blimp.queue.protocol.annotated import R
from blimp.queue.protocol.message import new_id
from blimp.queue.protocol.record import FINAL, Record, State, running_task
from blimp.queue.results.backend import warn_of_waiting

if TYPE_CHECKING:
    from blimp.queue.interface import App
    from blimp.queue.results.backend import ResultBackend

SILENCE = "blimp.queue.silence:explain"  # loaded when a caller has waited in vain
FAILED = FINAL - {State.SUCCESS}

OnProgress = Callable[[dict[str, Any]], None]


class AsyncResult(Generic[R]):
    """One task that was sent, by its id: `AsyncResult(id, app=app)`. R: what the task returns.

    Every property and method asks the result backend. Raises TaskError if the app has none,
    LinkError if it does not answer.

    parent: of a link of a chain, the one before; of a chord's body, its header.
    task: its name, for a result that is made by annotation, if no name is stored with it.
    ignored: it was sent so that no result of it is stored, as far as its sender knows.
    """

    kind = "task"
    ignored = False

    def __init__(
        self,
        id: str,
        *,
        app: App,
        parent: AsyncResult | None = None,
        task: str | None = None,
        ignored: bool = False,
    ) -> None:
        self.id = id
        self.app = app
        self.task = task
        self.parent = parent
        if ignored:
            self.ignored = True

    @property
    def record(self) -> Record:
        """The record that is stored now; a PENDING one if there is none."""
        return self._backend().get(self.id)

    @property
    def state(self) -> State:
        """Finer than Celery's states; PENDING if nothing is known."""
        return self.record.state

    @property
    def status(self) -> State:
        """The same as `state`: Celery has both names."""
        return self.state

    @property
    def result(self) -> Any:
        """What the task returned, the exception that it ended with, or None before its end."""
        record = self.record
        return self._value_of(record) if record.final else None

    @property
    def progress(self) -> dict[str, Any] | None:
        """What the task last reported, None if its state is not PROGRESS."""
        record = self.record
        return record.result if record.state is State.PROGRESS else None

    @property
    def children(self) -> list[AsyncResult]:
        """What its end has started: callbacks, and the next link of its chain."""
        return [from_tuple(one, app=self.app) for one in self.record.children]

    def ready(self) -> bool:
        """Return whether it has ended, in whatever way."""
        return self.state in FINAL

    def successful(self) -> bool:
        """Return whether it has ended in a success."""
        return self.state is State.SUCCESS

    def failed(self) -> bool:
        """Return whether it has ended, and not in a success."""
        return self.state in FAILED

    def wait(
        self, timeout: float | None = None, *, on_progress: OnProgress | None = None
    ) -> Record:
        """Return the final record. Raises TimeoutError after `timeout` seconds, LinkError.

        timeout: None waits until there is one. on_progress: called with each report of the task.
        Raises TaskError in a task, as `get` does. If it is `ignored`, there is nothing to wait
        for: returns a PENDING record.
        """
        if self.ignored:
            return Record(id=self.id, state=State.PENDING)
        self._check_outside()
        warn_of_waiting(self.app, "get() or wait()", "aget()")
        for record in self._records_of([self.id], timeout):
            if on_progress and record.state is State.PROGRESS:
                on_progress(record.result)
        return record

    def _check_outside(self) -> None:
        """Raise TaskError in a task, whose worker may have no other place to run this one."""
        if running := running_task.get():
            raise TaskError(
                f"task {running!r} waits for {self.kind} {self.id}, and its worker may have no "
                "other place to run it: have it follow (`link`, chain, chord) or replace the task "
                "(`context.replace`); get(disable_sync_subtasks=False) waits all the same"
            )

    def _records_of(self, ids: list[str], timeout: float | None) -> Iterator[Record]:
        """Yield the records of `ids` as they come, until each has ended. Raises TimeoutError."""
        self._backend()
        left = set(ids)
        try:
            for record in self.app.awaiting.wait(ids, timeout):
                if record.final:
                    left.discard(record.id)
                yield record
        except TimeoutError:
            if timeout is None:
                raise
            raise self._timed_out(ids, timeout, left) from None

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.5,  # noqa: ARG002
        *,
        on_progress: OnProgress | None = None,
        disable_sync_subtasks: bool = True,
    ) -> R:
        """Return what the task returned, once it has ended; None at once if it is `ignored`.

        timeout: in seconds; None, as with Celery, waits as long as the task takes.
        propagate: raise what it ended with otherwise (Refused, Expired, Revoked, Superseded,
            Interrupted or TaskFailed); False returns that exception instead.
        interval: for programs written for Celery; nothing is polled that could use it.
        on_progress: called with each report of the task; of a group, at the end of each, with
            {"id", "done", "of"}.
        disable_sync_subtasks: raise TaskError in a task: the two could wait for each other.
        A group returns a list, in its order, and raises the first failure as soon as it is known.
        Raises TimeoutError, and LinkError if the connection is lost.
        """
        found: dict[str, Record] = {}
        ids = self._stored_ids()
        if ids and disable_sync_subtasks:
            self._check_outside()
        if ids:
            warn_of_waiting(self.app, "get()", "aget()")
        for record in self._records_of(ids, timeout) if ids else ():
            self._note(record, found, len(ids), propagate, on_progress)
        return cast("R", self._value(found, propagate))

    async def aget(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        *,
        on_progress: OnProgress | None = None,
        disable_sync_subtasks: bool = True,
    ) -> R:
        """Return what `get` does, for a coroutine: other coroutines go on meanwhile."""
        found: dict[str, Record] = {}
        if ids := self._stored_ids():
            async for record in self._arecords(ids, timeout, outside=disable_sync_subtasks):
                self._note(record, found, len(ids), propagate, on_progress)
        return cast("R", self._value(found, propagate))

    def _stored_ids(self) -> list[str]:
        """Return the ids of which something is stored in the end."""
        return [] if self.ignored else [self.id]

    def _note(
        self,
        record: Record,
        found: dict[str, Record],
        of: int,  # noqa: ARG002
        propagate: bool,  # noqa: ARG002
        on_progress: OnProgress | None,
    ) -> None:
        """Take a record that came. Raises what is to be raised before the others have come."""
        if record.final:
            found[record.id] = record
        elif on_progress is not None and record.state is State.PROGRESS:
            on_progress(record.result)

    def _returned(self, record: Record, propagate: bool) -> R:
        value = self._value_of(record)
        if propagate and (record.state is not State.SUCCESS or isinstance(value, ResultError)):
            raise value
        return cast("R", value)

    async def aprogress(self, timeout: float | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yield each report of the task until it has ended; `aget` then returns at once.

        Raises TimeoutError after `timeout` seconds, LinkError.
        """
        if not self.ignored:
            async for record in self._arecords([self.id], timeout):
                if record.state is State.PROGRESS:
                    yield record.result

    async def _arecords(
        self, ids: list[str], timeout: float | None, *, outside: bool = True
    ) -> AsyncIterator[Record]:
        """Yield what `_records_of` does. outside: raise TaskError in a task."""
        if outside:
            self._check_outside()
        self._backend()
        ended = set[str]()
        try:
            async for record in self.app.awaiting.records(ids, timeout):
                if record.final:
                    ended.add(record.id)
                yield record
        except TimeoutError:
            if timeout is None:
                raise
            left = {*ids} - ended
            call = partial(self._timed_out, ids, timeout, left)
            raise await self.app.awaiting.call(call) from None

    def _timed_out(
        self, ids: Sequence[str], timeout: float | None, left: Collection[str]
    ) -> TimeoutError:
        """Return the error of a caller that has waited in vain, and what is known of why."""
        text = f"{self.kind} {self.id} has not ended after {timeout:g} s"
        with suppress(Exception):  # whatever fails now, the caller gets a TimeoutError
            first = self._first_open(next(id for id in ids if id in left))
            text = f"{self.kind} {self.id} is {self.state} after {timeout:g} s: "
            text += f"{len(left)} of {len(ids)} have not ended"
            if reason := load(SILENCE)(self.app, first):
                text += f"; {reason}" if first == self.id else f"; task {first}: {reason}"
        return TimeoutError(text)

    def _first_open(self, id: str) -> str:
        """Return the id of the task that `id` waits for: before it in its chain or chord."""
        parent = self.parent
        while parent is not None:
            for one in parent._stored_ids():
                if not self._backend().get(one).final:
                    return parent._first_open(one)
            parent = parent.parent
        return id

    def revoke(self, *, terminate: bool = False) -> Any:
        """Revoke the task, sent or not; see `TaskApp.revoke`."""
        return self.app.revoke(self.id, terminate=terminate)

    def forget(self) -> None:
        """Delete its record, and those of the links of its chain before it."""
        if self.parent is not None:
            self.parent.forget()
        self._backend().forget(self.id)

    def as_tuple(self) -> list[Any]:
        """Return it as Celery writes a result into another's record."""
        return [[self.id, self.parent and self.parent.as_tuple()], None]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.id}>"

    def _value(self, found: dict[str, Record], propagate: bool) -> Any:
        return None if self.ignored else self._returned(found[self.id], propagate)

    def _value_of(self, record: Record) -> Any:
        """Return the result of a final record, or the exception that it stands for.

        A ResultError for one that is not what its task says.
        """
        if record.state is not State.SUCCESS:
            return error_of(record)
        name = record.name or self.task or ""
        task = self.app.tasks.get(name)
        if task is None:
            return record.result
        try:
            return task.annotations.result(record.result, where=f"result of {name}")
        except ResultError as error:
            # No name is stored: the task may have been replaced by another.
            return record.result if record.name is None else error

    def _backend(self) -> ResultBackend:
        return backend_of(self.app)


class GroupResult(AsyncResult[list[Any]]):
    """Several tasks that were sent together. `id` is the group's; it has no record of its own."""

    kind = "group"

    def __init__(
        self,
        id: str,
        results: Sequence[AsyncResult] = (),
        *,
        app: App,
        parent: AsyncResult | None = None,
    ) -> None:
        super().__init__(id, app=app, parent=parent)
        self.results = list(results)

    @property
    def children(self) -> list[AsyncResult]:
        """The tasks and groups in it, in the order in which they were given."""
        return self.results

    @property
    def completed_count(self) -> int:
        """How many have ended in a success."""
        return sum(record.state is State.SUCCESS for record in self._records())

    @property
    def state(self) -> State:
        """SUCCESS if all have it, the first other final state there is, or PENDING."""
        records = self._records()
        if failed := [one.state for one in records if one.state in FAILED]:
            return failed[0]
        return State.SUCCESS if all(one.final for one in records) else State.PENDING

    def ready(self) -> bool:
        """Return whether all have ended, in whatever way."""
        return all(record.final for record in self._records())

    join = AsyncResult.get

    def wait(self, *_: object, **__: object) -> Record:
        """Raises TaskError: a group has no record. Use `get`."""
        raise TaskError(f"group {self.id} has no record of its own: use get()")

    def ids(self) -> list[str]:
        """Return the ids of all tasks in it, those of groups within it included."""
        ids: dict[str, None] = {}
        for one in self.results:
            ids |= dict.fromkeys(one.ids() if isinstance(one, GroupResult) else [one.id])
        return list(ids)

    def _stored_ids(self) -> list[str]:
        ids: dict[str, None] = {}
        for one in self.results:
            if not one.ignored:
                ids |= dict.fromkeys(
                    one._stored_ids() if isinstance(one, GroupResult) else [one.id]
                )
        return list(ids)

    def revoke(self, *, terminate: bool = False) -> Any:
        """Revoke all; see `TaskApp.revoke`."""
        return [one.revoke(terminate=terminate) for one in self.results]

    def forget(self) -> None:
        """Delete the records of all, and what `save` stored."""
        for one in self.results:
            one.forget()
        self._backend().forget_group(self.id)

    def save(self) -> None:
        """Store what it consists of, for `restore` and for Celery's GroupResult.restore."""
        self._backend().save_group(self.id, {"result": self.as_tuple()})

    @classmethod
    def restore(cls, id: str, *, app: App) -> GroupResult | None:
        """Return the group that was saved, None if there is none. Raises ResultError."""
        document = backend_of(app).group(id)
        if document is None:
            return None
        found = from_tuple(document.get("result"), app=app)
        if not isinstance(found, GroupResult):
            raise ResultError(f"group {id}: what is stored is not a group")
        return found

    def as_tuple(self) -> list[Any]:
        parent = self.parent and self.parent.as_tuple()
        return [[self.id, parent], [one.as_tuple() for one in self.results]]

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[AsyncResult]:
        return iter(self.results)

    def __getitem__(self, number: int) -> AsyncResult:
        return self.results[number]

    def __bool__(self) -> bool:
        return True

    def _note(
        self,
        record: Record,
        found: dict[str, Record],
        of: int,
        propagate: bool,
        on_progress: OnProgress | None,
    ) -> None:
        if not record.final:
            return
        if propagate and record.state is not State.SUCCESS:
            raise error_of(record)
        found[record.id] = record
        if on_progress is not None:
            on_progress({"id": record.id, "done": len(found), "of": of})

    def _value(self, found: dict[str, Record], propagate: bool) -> list[Any]:
        return [one._value(found, propagate) for one in self.results]

    def _records(self) -> list[Record]:
        return [self._backend().get(id) for id in self._stored_ids()]


def empty_group() -> GroupResult:
    """Return a group of no tasks, and of no app: all of it have ended."""
    nowhere: Any = SimpleNamespace(name="", tasks={}, results=None)
    return GroupResult(new_id(), app=nowhere)


def from_tuple(written: Any, *, app: App) -> AsyncResult:
    """Return the handle that `as_tuple`, or Celery, wrote. Raises ResultError."""
    try:
        own, children = written
        id, parent = own if isinstance(own, list | tuple) else (own, None)
        if not isinstance(id, str):
            raise TypeError(f"its id is {type(id).__name__}")
        before = from_tuple(parent, app=app) if parent else None
        if children is None:
            return AsyncResult(id, app=app, parent=before)
        return GroupResult(
            id, [from_tuple(one, app=app) for one in children], app=app, parent=before
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError(f"{written!r:.200} is no result: {error}") from None


def backend_of(app: App) -> ResultBackend:
    """Return the result backend of `app`. Raises TaskError if it has none."""
    results: ResultBackend | None = app.results
    if results is None:
        raise TaskError(f"app {app.name!r} keeps no results: give it a result_backend")
    return results


_ERRORS: dict[State, type[TaskError]] = {
    State.REFUSED: Refused,
    State.EXPIRED: Expired,
    State.INTERRUPTED: Interrupted,
    State.REVOKED: Revoked,
    State.SUPERSEDED: Superseded,
}


def error_of(record: Record) -> TaskError:
    """Return the exception for a final record that is not a success."""
    if record.state in _ERRORS:
        return _ERRORS[record.state](record.reason)
    kind = record.fault.exc_type if record.fault else record.state.value
    return TaskFailed(record.reason, kind=kind, trace=record.traceback)
