"""A pool of threads for plain functions."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import SoftTimeLimitExceeded

if TYPE_CHECKING:
    from blimp.queue.worker.job import Job, Run


_MOST_YIELDS = 100  # one is enough, unless the function caught the exception


class JobThreads:
    """Threads that take jobs from one queue in order of arrival; their number may change.

    A job wakes the thread that went to sleep last, whose stack is still in the caches. A
    SimpleQueue wakes the one that has slept longest, and then for nothing the next.
    work: what each of them runs, to the end of its `jobs`.
    """

    def __init__(self, *, work: Callable[[], None], name: str) -> None:
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

    def __init__(self, *, run: Run, size: int) -> None:
        super().__init__(work=self._serve, name="task")
        self._run = run
        self.resize(size)

    def submit(self, job: Job | None) -> None:
        if job is not None:
            job.call = ThreadCall()
        super().submit(job)

    def _serve(self) -> None:
        for job in self.jobs():
            drive(self._run(job))


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


async def here(function: Callable[..., Any], *args: Any) -> Any:
    """Call directly: a thread that may wait."""
    return function(*args)


def drive(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits, in this thread, to its end.

    If a middleware does wait, a RuntimeError is raised in it, and its job ends as a failure.
    """
    try:
        coroutine.send(None)
        coroutine.throw(RuntimeError("a middleware awaited something in a plain task's thread"))
    except StopIteration:
        return
    coroutine.close()


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
