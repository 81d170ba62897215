"""A delivered message on its way through the worker. Tested by test_in_flight.py."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import Record
from blimp.queue.task import Task

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Delivery
    from blimp.queue.protocol.record import Outcome
    from blimp.queue.resources.grant import Grant


CallNext = Callable[["Job"], Awaitable["Outcome"]]  # the rest of a chain of middleware
Run = Callable[["Job"], Coroutine[Any, Any, None]]  # of a pool: runs a job to its end
InThread = Callable[..., Awaitable[Any]]  # runs a call that may wait for the broker


class Place(Enum):
    LOOP = auto()
    THREAD = auto()
    PROCESS = auto()

    __hash__ = object.__hash__  # Enum's is Python code, and every job is counted by its place


def place_of(task: Task) -> Place:
    """Return where the function of `task` is to run."""
    if task.is_async:
        return Place.LOOP
    return Place.PROCESS if task.options.cpu_bound else Place.THREAD


class Call(Protocol):
    """One run of a job's function. `run` is awaited by the runner; the others are any thread's."""

    async def run(
        self, job: Job, arguments: Sequence[Any], *, interruptible: bool
    ) -> Any | Outcome:
        """Call the function with the message's keyword arguments; raise what it raises.

        A child process returns an Outcome instead.
        interruptible: whether `interrupt` may be called; being ready for it costs a little.
        """
        ...

    def interrupt(self) -> None:
        """Raise SoftTimeLimitExceeded in the function, if it still runs."""
        ...

    def cancel(self) -> bool:
        """End the function, or keep it from beginning; return False if that cannot be done."""
        ...


class Stage(Enum):
    WAITING = auto()
    RUNNING = auto()
    DONE = auto()


class Phase(Enum):
    """What a job in flight waits for, or that it counts against the prefetch."""

    SCHEDULED = auto()
    SLOWED = auto()  # by its task's rate limit
    COUNTED = auto()
    WRITING = auto()  # it ran, and waits for a commit

    __hash__ = object.__hash__  # as Place's


class Job:
    """One message in flight. `begin` and `withdraw` race; one of them wins.

    lost: set when another worker has the message: what this job ends with is refused.
    in_thread: runs a call that may wait for the broker, without blocking the caller's loop.
    call: the run of its function; the pool that takes the job sets both. It does not refer to
        the job: only the garbage collector would find such a pair.
    revoked: set when it must end because it was revoked.
    timed_out_s: the hard time limit after which it was ended.
    grant: the resource that it holds while it runs.
    mark: identifies this delivery, if the task may not begin twice.
    is_called: its function was called: the chain does not start over after that.
    received_s, started_s, ended_s: on the app's clock; when it was received, and when its
        function was called and returned. outcome: what is written of it.
    """

    # Defaults of the class: most jobs never change them, and each assignment would cost.
    previous: Record | None = None
    in_thread: InThread | None = None
    phase: Phase | None = None  # of InFlight
    _stage = Stage.WAITING
    _lost: threading.Event | None = None  # made on first use
    _revoked: threading.Event | None = None
    is_lost = False
    is_revoked = False
    call: Call | None = None
    timed_out_s: float | None = None
    mark = b""
    grant: Grant | None = None
    is_called = False
    received_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    outcome: Outcome | None = None

    def __init__(self, *, message: TaskMessage, task: Task, delivery: Delivery) -> None:
        self.message = message
        self.task = task
        self.delivery = delivery
        self.place = place_of(task)
        self._lock = threading.Lock()

    @property
    def stage(self) -> Stage:
        return self._stage

    @property
    def lost(self) -> threading.Event:
        with self._lock:
            if self._lost is None:
                self._lost = threading.Event()
                if self.is_lost:
                    self._lost.set()
            return self._lost

    @property
    def revoked(self) -> threading.Event:
        with self._lock:
            if self._revoked is None:
                self._revoked = threading.Event()
                if self.is_revoked:
                    self._revoked.set()
            return self._revoked

    def revoke(self) -> None:
        """End the task as REVOKED: cancel, kill, or else interrupt it."""
        with self._lock:
            self.is_revoked = True
            if self._revoked is not None:
                self._revoked.set()
        if not self.cancel() and self.call is not None:
            self.call.interrupt()

    def lose(self) -> None:
        """Another worker has the message: end the task, and refuse its result."""
        with self._lock:
            self.is_lost = True
            if self._lost is not None:
                self._lost.set()
        self.cancel()

    def lose_grant(self) -> None:
        """Its resource may be another's now: end the task. Its message is still its own."""
        self.lost.set()
        self.cancel()

    def cancel(self) -> bool:
        """End the function; return False if that cannot be done."""
        return self.call is not None and self.call.cancel()

    def begin(self) -> bool:
        """Claim the job for running; return False if it was withdrawn."""
        return self._move(Stage.WAITING, Stage.RUNNING)

    def withdraw(self) -> bool:
        """Claim the job for a requeue; return False if it runs already."""
        return self._move(Stage.WAITING, Stage.DONE)

    def finish(self) -> bool:
        return self._move(Stage.RUNNING, Stage.DONE)

    def _move(self, old: Stage, new: Stage) -> bool:
        with self._lock:
            if self._stage is not old:
                return False
            self._stage = new
            return True
