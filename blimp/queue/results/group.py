"""The sender's end of several tasks that belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import ResultError, TaskError
from blimp.queue.protocol.record import Record, State
from blimp.queue.results.handle import AsyncResult, OnProgress, backend_of, error_of
from blimp.queue.results.watch import watch_all

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp


class GroupResult(AsyncResult):
    """Several tasks that were sent together. `id` is the group's; it has no record of its own."""

    def __init__(
        self,
        id: str,
        results: Sequence[AsyncResult] = (),
        *,
        app: TaskApp,
        parent: AsyncResult | None = None,
    ) -> None:
        super().__init__(id, app=app, parent=parent)
        self.results = list(results)

    @property
    def children(self) -> list[AsyncResult]:
        """The tasks and groups in it, as they were given."""
        return self.results

    @property
    def completed_count(self) -> int:
        """How many have ended in a success."""
        return sum(record.state is State.SUCCESS for record in self._records().values())

    @property
    def state(self) -> State:
        """SUCCESS where all have, the first other end there is, or PENDING."""
        records = list(self._records().values())
        ended = [one for one in records if one.final and one.state is not State.SUCCESS]
        if ended:
            return ended[0].state
        done = all(record.state is State.SUCCESS for record in records)
        return State.SUCCESS if done else State.PENDING

    def ready(self) -> bool:
        """Say whether all have ended, however."""
        return all(record.final for record in self._records().values())

    def successful(self) -> bool:
        """Say whether all have ended in a success."""
        return all(record.state is State.SUCCESS for record in self._records().values())

    def failed(self) -> bool:
        """Say whether one has ended, and not in a success."""
        records = self._records().values()
        return any(record.final and record.state is not State.SUCCESS for record in records)

    def get(
        self, timeout: float, *, on_progress: OnProgress | None = None, propagate: bool = True
    ) -> list[Any]:
        """Return what each returned, in order, once all have: by one subscription for all.

        on_progress: called with the record of each that ends, as {"id", "done", "of"}.
        propagate: raise the first failure as soon as it is known; False returns the exceptions
        instead. Raises TimeoutError, LinkError.
        """
        found: dict[str, Record] = {}
        ids = self.ids()
        for record in self._ended(ids, timeout):
            if propagate and record.state is not State.SUCCESS:
                raise error_of(record)
            found[record.id] = record
            if on_progress is not None:
                on_progress({"id": record.id, "done": len(found), "of": len(ids)})
        return self._values(found)

    join = get

    def wait(self, timeout: float, *, on_progress: OnProgress | None = None) -> Record:  # noqa: ARG002
        """A group has no record: raises TaskError. Use `get`."""
        raise TaskError(f"group {self.id} has no record of its own: use get()")

    def ids(self) -> list[str]:
        """Return the ids of all tasks in it, those of groups within it included."""
        return list(
            dict.fromkeys(
                id
                for one in self.results
                for id in (one.ids() if isinstance(one, GroupResult) else [one.id])
            )
        )

    def revoke(self, *, terminate: bool = False) -> None:
        """Call all back; see `TaskApp.revoke`."""
        for one in self.results:
            one.revoke(terminate=terminate)

    def forget(self) -> None:
        """Have the records of all, and what `save` kept, deleted."""
        for one in self.results:
            one.forget()
        self._store().forget_group(self.id)

    def save(self) -> None:
        """Have `restore` find it again; Celery's GroupResult.restore as well."""
        self._store().save_group(self.id, {"result": self.as_tuple()})

    @classmethod
    def restore(cls, id: str, *, app: TaskApp) -> GroupResult | None:
        """Return the group that was saved, None where there is none. Raises ResultError."""
        document = backend_of(app).group(id)
        if document is None:
            return None
        found = from_tuple(document.get("result"), app=app)
        if not isinstance(found, GroupResult):
            raise ResultError(f"group {id}: what is kept is no group")
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

    def _ended(self, ids: list[str], timeout: float) -> Iterator[Record]:
        """Yield the final record of each, in the order they end. Raises TimeoutError."""
        clock = self.app.clock
        deadline_s = clock.now_s() + timeout
        with watch_all(self._store(), ids) as watch:
            left = set(ids)
            while left:
                record = watch.next(timeout_s=max(0.0, deadline_s - clock.now_s()))
                if record is not None and record.final and record.id in left:
                    left.discard(record.id)
                    yield record
                elif record is None and clock.now_s() >= deadline_s:
                    raise TimeoutError(
                        f"group {self.id}: {len(left)} of {len(ids)} have not ended "
                        f"after {timeout:g} s"
                    )

    def _values(self, found: dict[str, Record]) -> list[Any]:
        return [
            one._values(found) if isinstance(one, GroupResult) else _value(found[one.id])
            for one in self.results
        ]

    def _records(self) -> dict[str, Record]:
        store = self._store()
        return {id: store.get(id) for id in self.ids()}


def from_tuple(written: Any, *, app: TaskApp) -> AsyncResult:
    """Return the result that `as_tuple`, or Celery, wrote. Raises ResultError."""
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


def _value(record: Record) -> Any:
    return record.result if record.state is State.SUCCESS else error_of(record)
