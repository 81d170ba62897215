"""A delivered message on its way through the worker, and the time limits of its function."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import Record
from blimp.queue.task import Task

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.brokers.base import Aside, Delivery
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
    aside: how its message waits for a worker whose code can run it, instead of being requeued.
    mark: identifies this delivery, if the task may not begin twice.
    has_steps: what its steps returned may be stored.
    is_called: its function was called: the chain does not start over after that.
    received_s, started_s, ended_s: on the app's clock; when it was received, and when its
        function was called and returned. outcome: what is written of it.
    """

    # Defaults of the class: most jobs never change them, and each assignment would cost.
    previous: Record | None = None
    aside: Aside | None = None
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
    has_steps = False
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


# --- time limits: a soft one raises in the task, a hard one ends it ------------------------------

LONGEST_S = 3600.0  # of one sleep: the system refuses centuries
MANY = 64  # cancelled alarms that may stay before they are removed


Alarm = list[Any]  # [when it is due, its number, its action], the action None once cancelled


class Alarms:
    """Runs actions in one thread, in order of time: they must be short, and must not raise.

    The thread starts with the first alarm, and sleeps while there is none.
    """

    def __init__(self, *, clock: Clock, log: Any) -> None:
        self.clock = clock
        self._log = log
        self._changed = threading.Condition()
        self._heap: list[Alarm] = []
        self._order = itertools.count()
        self._cancelled = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def set(self, after_s: float, action: Callable[[], object]) -> Alarm:
        alarm = [self.clock.now_s() + after_s, next(self._order), action]
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._serve, name="alarms", daemon=True)
                self._thread.start()
            heapq.heappush(self._heap, alarm)
            if self._heap[0] is alarm:
                self._changed.notify()
        return alarm

    def cancel(self, alarm: Alarm) -> None:
        """Drop its action, which may be under way just now. Idempotent; any thread."""
        with self._changed:
            if alarm[2] is None:
                return
            alarm[2] = None
            self._cancelled += 1
            if self._cancelled > max(MANY, len(self._heap) // 2):
                self._heap = [one for one in self._heap if one[2] is not None]
                heapq.heapify(self._heap)
                self._cancelled = 0

    def close(self) -> None:
        """Run no further action. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)

    def _serve(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except BaseException:  # of any kind: without this thread no limit holds
                self._log.exception("alarm")

    def _next(self) -> Callable[[], object] | None:
        """Wait for the next action to be due; None once closed."""
        with self._changed:
            while not self._closed:
                left_s = self._heap[0][0] - self.clock.now_s() if self._heap else None
                if left_s is None or left_s > 0.0:
                    self._changed.wait(timeout=left_s and min(left_s, LONGEST_S))
                    continue
                alarm = heapq.heappop(self._heap)
                action: Callable[[], object] | None = alarm[2]
                alarm[2] = None  # too late to cancel it
                if action is not None:
                    return action
                self._cancelled -= 1
        return None


TO_END_S = 1.0  # a cancelled or killed function that still runs then is stuck


def limits_of(job: Job) -> tuple[float | None, float | None]:
    """Return the hard and the soft limit of `job`, s, None for none. The message's come first."""
    hard_s, soft_s = job.message.timelimit
    return hard_s or job.task.options.time_limit, soft_s or job.task.options.soft_time_limit


class Limits:
    """Watches the functions that have limits."""

    def __init__(self, *, alarms: Alarms) -> None:
        self._alarms = alarms

    @contextlib.contextmanager
    def watch(
        self,
        job: Job,
        *,
        hard_s: float | None,
        soft_s: float | None,
        on_stuck: Callable[[Job], None],
    ) -> Iterator[None]:
        """Watch the call of `job` for the block.

        on_stuck: called if it is past its hard limit and cannot be ended: a plain function in
            a thread, or a coroutine that ignores its cancellation.
        """
        watched = _Watched(self._alarms)
        assert job.call is not None
        if soft_s:
            watched.add(soft_s, job.call.interrupt)
        if hard_s:
            watched.add(hard_s, partial(self._end, job, hard_s, watched, on_stuck))
        try:
            yield
        finally:
            watched.leave()

    def _end(
        self, job: Job, hard_s: float, watched: _Watched, on_stuck: Callable[[Job], None]
    ) -> None:
        assert job.call is not None
        job.timed_out_s = hard_s
        if job.call.cancel():
            watched.add(TO_END_S, partial(on_stuck, job))
        else:
            on_stuck(job)


class _Watched:
    """The alarms of one call. After `leave` no more are set."""

    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms
        self._lock = threading.Lock()
        self._set: list[Alarm] | None = []

    def add(self, after_s: float, action: Callable[[], object]) -> None:
        with self._lock:
            if self._set is not None:
                self._set.append(self._alarms.set(after_s, action))

    def leave(self) -> None:
        with self._lock:
            alarms, self._set = self._set, None
        for alarm in alarms or ():
            self._alarms.cancel(alarm)
