"""All pools of a worker, behind one `submit`.

Threads for plain functions, loops for `async def`, processes for cpu_bound. A pool takes a job
and never waits. Threads are daemons: a task that hangs cannot keep a worker from ending, and its
message is delivered again.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextvars import Context, copy_context
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from blimp.errors import SoftTimeLimitExceeded
from blimp.queue.neighbours import neighbour
from blimp.queue.steps import here
from blimp.queue.worker.job import Place
from blimp.queue.worker.loops import LoopEnd, LoopThread

if TYPE_CHECKING:
    from blimp.queue.settings import WorkerSettings
    from blimp.queue.worker.job import Alarms, Job, Run


class Sizes(msgspec.Struct, kw_only=True):
    """How many there are now of each: loops and what each runs at once, threads, processes."""

    loop_workers: int
    loop_concurrency: int
    sync_workers: int
    process_workers: int

    @classmethod
    def of(cls, settings: WorkerSettings) -> Self:
        return cls(
            loop_workers=settings.loop_workers,
            loop_concurrency=settings.loop_concurrency,
            sync_workers=settings.sync_workers,
            process_workers=settings.process_workers or max(1, (os.cpu_count() or 1) - 1),
        )

    def slots(self, place: Place) -> int:
        """Return how many jobs run at once there."""
        if place is Place.THREAD:
            return self.sync_workers
        if place is Place.LOOP:
            return self.loop_workers * self.loop_concurrency
        return self.process_workers


class ProcessPools(Protocol):
    """Child processes for cpu_bound tasks: a neighbour."""

    def submit(self, job: Job) -> None: ...

    def resize(self, size: int) -> None: ...

    def pids(self) -> list[int]: ...

    def tell_stopping(self) -> None: ...

    def close(self) -> None: ...


class WorkerPools:
    """Gives each job to the pool that its task needs. The consumer's thread submits.

    `start` is called before all else. Each job runs in a copy of one context, in which boot steps
    run: what a step sets reaches every task, and what a task sets none.
    """

    def __init__(
        self,
        *,
        run: Run,
        sizes: Sizes,
        origins: Mapping[str, str],
        max_tasks: int | None,
        max_memory_mb: float | None,
        alarms: Alarms,
        log: Any,
    ) -> None:
        self._alarms = alarms
        self._run = run
        self.sizes = sizes
        self._origins = origins
        self.max_tasks = max_tasks
        self._max_memory_mb = max_memory_mb
        self._log = log
        self._loops: list[LoopThread] = []
        self.loop_ends: list[LoopEnd] = []  # of each loop, once its jobs have ended
        self._threads: ThreadPool
        self._processes: ProcessPools | None = None
        self._lock = threading.Lock()
        self._is_stopping = False
        self._context = Context()

    def start(self) -> None:
        """Start the threads. They block the signals that the calling thread blocks."""
        sizes, self._context = self.sizes, copy_context()
        for number in range(sizes.loop_workers):
            self._loops.append(
                LoopThread(
                    run=self._run,
                    concurrency=sizes.loop_concurrency,
                    number=number,
                    context=self._context,
                    ends=self.loop_ends,
                    alarms=self._alarms,
                    log=self._log,
                )
            )
        self._threads = ThreadPool(run=self._run, size=sizes.sync_workers, context=self._context)

    def submit(self, job: Job) -> None:
        place = job.place
        if place is Place.LOOP:
            min(self._loops, key=attrgetter("load")).submit(job)
        elif place is Place.THREAD:
            self._threads.submit(job)
        else:
            self._begin_processes().submit(job)

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run `coroutine` in the first loop."""
        return self._loops[0].call(coroutine)

    def resize_threads(self, size: int) -> None:
        """Have `size` threads for plain tasks. One thread's at a time."""
        self._threads.resize(size)
        self.sizes.sync_workers = size

    def resize_processes(self, size: int) -> None:
        """Have up to `size` processes. One thread's at a time."""
        with self._lock:
            self.sizes.process_workers = size
            if self._processes is not None:
                self._processes.resize(size)

    def child_pids(self) -> list[int]:
        return [] if self._processes is None else self._processes.pids()

    def tell_stopping(self) -> None:
        """Inform tasks in child processes that the worker is about to stop. Any thread."""
        with self._lock:
            self._is_stopping = True
            if self._processes is not None:
                self._processes.tell_stopping()

    def close(self) -> None:
        for loop in self._loops:
            loop.close()
        self._threads.close()
        if self._processes is not None:
            self._processes.close()

    def _begin_processes(self) -> ProcessPools:
        """Return the pool, made with the first job for it: most workers need none."""
        with self._lock:
            if self._processes is None:
                self._processes = neighbour("processes")(
                    run=self._run,
                    size=self.sizes.process_workers,
                    context=self._context,
                    origins=self._origins,
                    max_tasks=self.max_tasks,
                    max_memory_mb=self._max_memory_mb,
                    log=self._log,
                )
                if self._is_stopping:
                    self._processes.tell_stopping()
            return self._processes


# --- threads for plain functions -----------------------------------------------------------------

_MOST_YIELDS = 100  # one is enough, unless the function caught the exception


class JobThreads:
    """Threads that take jobs from one queue in order of arrival; their number may change.

    A job wakes the thread that went to sleep last, whose stack is still in the caches. A
    SimpleQueue wakes the one that has slept longest, and then for nothing the next.
    work: what each of them runs, to the end of its `jobs`. context: each job runs in a copy of it,
    so that no task sees what an earlier one set.
    """

    def __init__(self, *, run: Run, work: Callable[[], None], name: str, context: Context) -> None:
        self._run = run
        self._context = context
        self._work = work
        self._name = name
        self._jobs: deque[Job | None] = deque()
        self._asleep: list[threading.Lock] = []  # the alarms of those that are, or are about to be
        self._threads: list[threading.Thread] = []
        self._size = 0

    def submit(self, job: Job | None) -> None:
        """Have one thread run `job`; None: have it leave."""
        self._jobs.append(job)
        self._wake()

    def _wake(self) -> None:
        try:
            self._asleep.pop().release()
        except IndexError:
            return  # all are awake: each looks for a job before it sleeps

    def jobs(self) -> Iterator[Job]:
        """Yield jobs, waiting for each, until the calling thread is to leave."""
        alarm = threading.Lock()
        alarm.acquire()
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:
                self._asleep.append(alarm)
                if self._jobs:  # one came before `_wake` could find this thread
                    self._wake()
                alarm.acquire()
                continue
            if job is None:
                return
            job.in_thread = here
            yield job

    def drive(self, job: Job) -> None:
        """Run `job` to its end, in this thread."""
        self._context.copy().run(drive, self._run(job))

    def resize(self, size: int) -> None:
        """Have `size` threads. Those too many leave after what is queued now. One thread's."""
        for _ in range(size, self._size):
            self.submit(None)
        for _ in range(self._size, size):
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._size = size

    def close(self) -> None:
        self.resize(0)

    def join(self, timeout_s: float) -> None:
        for thread in self._threads:
            thread.join(timeout_s)


class ThreadPool(JobThreads):
    """`size` threads, each of which runs one job after the other."""

    def __init__(self, *, run: Run, size: int, context: Context) -> None:
        super().__init__(run=run, work=self._serve, name="task", context=context)
        self.resize(size)

    def submit(self, job: Job | None) -> None:
        if job is not None:
            job.call = ThreadCall()
        super().submit(job)

    def _serve(self) -> None:
        for job in self.jobs():
            self.drive(job)


class ThreadCall:
    """A function that runs in a thread of the pool. Nothing can end it but itself.

    An interruption is an exception that CPython raises in the thread between two bytecodes: a
    call into C that blocks is not cut short. It must be raised inside the function or not at
    all, so asking for it and leaving the function exclude each other, and one that was asked
    for too late is caught here. The lock is reentrant: the exception may be raised while it is
    held. It is raised once, however often it is asked for: a second one could be raised where
    the first is caught.
    """

    _thread_id: int | None = None
    _asked = False
    _raised = False
    _was_raised = False

    def __init__(self) -> None:
        self._lock = threading.RLock()

    async def run(self, job: Job, arguments: Sequence[Any], *, interruptible: bool) -> Any:
        task, keywords = job.task, job.message.kwargs
        function = task.run
        if not interruptible or not task.options.interruptible:
            return function(*arguments, **keywords)
        has_ended = False
        try:
            try:
                self._enter()
                result = function(*arguments, **keywords)
                has_ended = True
            finally:
                self._leave()
        except SoftTimeLimitExceeded:
            self._leave()  # it may have interrupted the first call; there is no second one
            if not has_ended:
                raise
        return result

    def interrupt(self) -> None:
        with self._lock:
            was_asked, self._asked = self._asked, True
            if self._thread_id is not None and not was_asked:
                self._raised = True
                _raise_in(self._thread_id, _notifying(self._note_raised))

    def cancel(self) -> bool:
        return False

    def _enter(self) -> None:
        with self._lock:
            if self._asked:
                raise SoftTimeLimitExceeded
            self._thread_id = threading.get_ident()

    def _leave(self) -> None:
        with self._lock:
            self._thread_id = None
        if self._raised:
            self._catch()

    def _catch(self) -> None:
        """Wait for the exception here, where it does no harm, if it was not raised yet.

        CPython can withdraw it, too, but then takes something for pending for ever: 3.11 never
        leaves the next call that is traced, by a debugger or for coverage.
        """
        with contextlib.suppress(SoftTimeLimitExceeded):
            for _ in range(_MOST_YIELDS):
                if self._was_raised:
                    return
                time.sleep(0)  # it is raised when this thread has the interpreter lock again

    def _note_raised(self) -> None:
        self._was_raised = True


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits, in this thread, to its end; return what it returns.

    If a middleware does wait, a RuntimeError is raised in it, and its job ends as a failure.
    """
    try:
        coroutine.send(None)
        coroutine.throw(RuntimeError("a middleware awaited something in a plain task's thread"))
    except StopIteration as end:
        return end.value
    coroutine.close()
    return None


def _notifying(on_raised: Callable[[], None]) -> type[SoftTimeLimitExceeded]:
    """Return an exception that calls `on_raised` when CPython makes it, to raise it."""

    class Notified(SoftTimeLimitExceeded):
        def __init__(self) -> None:
            super().__init__()
            on_raised()

    Notified.__name__ = Notified.__qualname__ = SoftTimeLimitExceeded.__name__
    Notified.__module__ = SoftTimeLimitExceeded.__module__
    return Notified


def _raise_in(thread_id: int, error: type[BaseException]) -> None:
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))
