"""What `delay` returns: the sender's end of a task."""

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
from blimp.tasks.results.record import Record, State

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.tasks.results.backend import ResultBackend


class ResultHandle:
    """One task that was sent. Asking it raises TaskError where the app keeps no results."""

    def __init__(
        self,
        *,
        id: str,
        results: ResultBackend | None,
        clock: Clock,
        revoke: Callable[..., None] | None = None,
    ) -> None:
        self.id = id
        self._results = results
        self._clock = clock
        self._revoke = revoke

    @property
    def record(self) -> Record:
        return self._store().get(self.id)

    @property
    def state(self) -> State:
        return self.record.state

    @property
    def progress(self) -> dict[str, Any] | None:
        """What the task last told of itself, None where it is not in PROGRESS."""
        record = self.record
        return record.result if record.state is State.PROGRESS else None

    def ready(self) -> bool:
        return self.record.final

    def wait(self, timeout: float) -> Record:
        """Return the final record. Raises TimeoutError after `timeout` seconds, LinkError."""
        deadline_s = self._clock.now_s() + timeout
        with self._store().watch(self.id) as watch:
            while True:
                record = watch.next(timeout_s=max(0.0, deadline_s - self._clock.now_s()))
                if record is not None and record.final:
                    return record
                if self._clock.now_s() >= deadline_s:
                    state = record.state if record else self.state
                    raise TimeoutError(f"task {self.id} is {state} after {timeout:g} s")

    def get(self, timeout: float) -> Any:
        """Return what the task returned, once it has.

        Raises what became of it otherwise: Refused, Expired, Revoked, Superseded, Interrupted
        or TaskFailed;
        TimeoutError after `timeout` seconds, and LinkError where the broker is lost.
        """
        record = self.wait(timeout)
        if record.state is State.SUCCESS:
            return record.result
        raise error_of(record)

    def revoke(self, *, terminate: bool = False) -> None:
        """Call the task back; see `TaskApp.revoke`."""
        if self._revoke is None:
            raise TaskError("this handle cannot revoke: take one of a TaskApp")
        self._revoke(self.id, terminate=terminate)

    def forget(self) -> None:
        self._store().forget(self.id)

    def _store(self) -> ResultBackend:
        if self._results is None:
            raise TaskError("this app keeps no results: give it a result_backend")
        return self._results


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
