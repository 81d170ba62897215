"""How many of a pool's threads are to leave, without anybody being cut off.

A pool of threads for plain functions.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import SoftTimeLimitExceeded
from blimp.queue.worker.pools.call import here

if TYPE_CHECKING:
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.pools import Run


class Leaving:
    """Asked by each thread between two jobs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def add(self, threads: int) -> None:
        """So many more are to leave."""
        with self._lock:
            self.count += threads

    def stay(self, threads: int) -> int:
        """So many are needed again: return how many that is more than those about to leave."""
        with self._lock:
            kept = min(threads, self.count)
            self.count -= kept
            return threads - kept

    def may_leave(self) -> bool:
        """Say whether the thread that asks is one of them."""
        if not self.count:
            return False
        with self._lock:
            if not self.count:
                return False
            self.count -= 1
            return True


_STOP = None
_MOST_YIELDS = 100  # one is enough; a function that swallowed it unseen must not hold us


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
        """Have `size` threads; who runs a job leaves after it. One thread's at a time."""
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

    An interruption is an exception that CPython raises in the thread between two of its
    bytecodes: a call into C that blocks is not cut short. It must strike inside the function
    or not at all, so telling and leaving exclude each other, and what was told too late is
    met here. The lock may be taken twice: the exception may strike where it is held. It is
    raised once, however often it is asked for: a second could strike where the first is met.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lock = threading.RLock()
        self._thread_id: int | None = None
        self._told = False
        self._raised = False
        self._struck = False

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
            self._leave()  # it may have struck in the first one; a second never comes
            if not has_ended:
                raise
        return result

    def interrupt(self) -> None:
        with self._lock:
            was_told, self._told = self._told, True
            if self._thread_id is not None and not was_told:
                self._raised = True
                _raise_in(self._thread_id, _notified(self._strike))

    def cancel(self) -> bool:
        return False

    def _enter(self) -> None:
        with self._lock:
            if self._told:
                raise SoftTimeLimitExceeded
            self._thread_id = threading.get_ident()

    def _leave(self) -> None:
        with self._lock:
            self._thread_id = None
        if self._raised:
            self._meet()

    def _meet(self) -> None:
        """Have what was raised strike here, where it does no harm, if it has not struck yet.

        CPython can take it back, too, but then believes for ever that something is pending:
        3.11 never leaves the next call that is traced, by a debugger or for coverage.
        """
        with contextlib.suppress(SoftTimeLimitExceeded):
            for _ in range(_MOST_YIELDS):
                if self._struck:
                    return
                time.sleep(0)  # it strikes when this thread has the interpreter again

    def _strike(self) -> None:
        self._struck = True


def drive(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never really waits to its end in this thread.

    A middleware that does wait is told where it stands; its job then ends as a failure.
    """
    try:
        coroutine.send(None)
        coroutine.throw(RuntimeError("a middleware awaited something in a plain task's thread"))
    except StopIteration:
        return
    coroutine.close()


def _notified(struck: Callable[[], None]) -> type[SoftTimeLimitExceeded]:
    """Return an exception that tells when it is made, which is where it strikes."""

    class Notified(SoftTimeLimitExceeded):
        def __init__(self) -> None:
            super().__init__()
            struck()

    Notified.__name__ = Notified.__qualname__ = SoftTimeLimitExceeded.__name__
    Notified.__module__ = SoftTimeLimitExceeded.__module__
    return Notified


def _raise_in(thread_id: int, error: type[BaseException]) -> None:
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))
