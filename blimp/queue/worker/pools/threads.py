"""A pool of threads for plain functions."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import SoftTimeLimitExceeded

if TYPE_CHECKING:
    from blimp.queue.worker.job import Job, Run


class Leaving:
    """How many threads of a pool are to leave. Each asks between two jobs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def add(self, threads: int) -> None:
        """`threads` more are to leave."""
        with self._lock:
            self.count += threads

    def stay(self, threads: int) -> int:
        """`threads` are needed again: return how many must be started besides those that stay."""
        with self._lock:
            kept = min(threads, self.count)
            self.count -= kept
            return threads - kept

    def may_leave(self) -> bool:
        """Return whether the calling thread is to leave."""
        if not self.count:
            return False
        with self._lock:
            if not self.count:
                return False
            self.count -= 1
            return True


_STOP = None
_MOST_YIELDS = 100  # one is enough, unless the function caught the exception


class ThreadPool:
    """`size` threads that take jobs from one queue in order of arrival."""

    def __init__(self, *, run: Run, size: int) -> None:
        self._run = run
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._leaving = Leaving()
        self._begun = self._size = 0
        self._closed = False
        self.resize(size)

    def submit(self, job: Job) -> None:
        job.call = ThreadCall(job)
        job.in_thread = here
        self._jobs.put(job)

    def resize(self, size: int) -> None:
        """Have `size` threads; a busy one leaves after its job. By one thread at a time."""
        if size < self._size:
            self._leaving.add(self._size - size)
            for _ in range(self._size - size):
                self._jobs.put(_STOP)  # for those that wait for a job
        else:
            for _ in range(self._leaving.stay(size - self._size)):
                name = f"task-{self._begun}"
                self._begun += 1
                threading.Thread(target=self._work, name=name, daemon=True).start()
        self._size = size

    def close(self) -> None:
        self._closed = True
        for _ in range(self._begun):
            self._jobs.put(_STOP)

    def _work(self) -> None:
        while not self._leaving.may_leave():
            job = self._jobs.get()
            if job is not None:
                drive(self._run(job))
            elif self._closed:
                return


class ThreadCall:
    """A function that runs in a thread of the pool. Nothing can end it but itself.

    An interruption is an exception that CPython raises in the thread between two bytecodes: a
    call into C that blocks is not cut short. It must be raised inside the function or not at
    all, so asking for it and leaving the function exclude each other, and one that was asked
    for too late is caught here. The lock is reentrant: the exception may be raised while it is
    held. It is raised once, however often it is asked for: a second one could be raised where
    the first is caught.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lock = threading.RLock()
        self._thread_id: int | None = None
        self._asked = False
        self._raised = False
        self._was_raised = False

    async def run(self, arguments: Sequence[Any], *, interruptible: bool) -> Any:
        task, keywords = self._job.task, self._job.message.kwargs
        function = task.function
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
