"""Those who watch a worker's jobs, and change nothing: events, metrics, traces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from blimp.queue.worker.job import Job, Outcome


class Observer(Protocol):
    """Told of each job, in the thread where it happens: it must neither wait nor raise.

    The times of a job, `received_s`, `started_s` and `ended_s`, are on the app's clock.
    """

    def received(self, job: Job) -> None:
        """It is in hand, and may have to wait: for its time, or for an executor."""
        ...

    def started(self, job: Job) -> None:
        """Its function is called now."""
        ...

    def settled(self, job: Job, outcome: Outcome) -> None:
        """What became of it is written: its end, its next try, or that it was given back.

        Whatever follows from that may be under way already, here or elsewhere.
        """
        ...

    def lost(self, job: Job) -> None:
        """Somebody else has its message: what it ends with here counts no more."""
        ...


class Observers:
    """Several as one. What one raises is logged, and stops neither the job nor the others."""

    def __init__(self, observers: Iterable[Observer], *, log: Any) -> None:
        self._observers = tuple(observers)
        self._log = log

    def __bool__(self) -> bool:
        return bool(self._observers)

    def add(self, observer: Observer) -> None:
        """Have `observer` told from now on, of jobs that are under way too. Any thread."""
        self._observers = (*self._observers, observer)

    def remove(self, observer: Observer) -> None:
        """Have `observer` told no more. Any thread."""
        self._observers = tuple(one for one in self._observers if one is not observer)

    def received(self, job: Job) -> None:
        self._tell("received", job)

    def started(self, job: Job) -> None:
        self._tell("started", job)

    def settled(self, job: Job, outcome: Outcome) -> None:
        self._tell("settled", job, outcome)

    def lost(self, job: Job) -> None:
        self._tell("lost", job)

    def _tell(self, what: str, job: Job, *more: Outcome) -> None:
        for observer in self._observers:
            try:
                getattr(observer, what)(job, *more)
            except Exception:
                self._log.exception("observer", what=what, id=job.message.id)
