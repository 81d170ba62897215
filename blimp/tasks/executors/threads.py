"""A pool of threads for plain functions."""

from __future__ import annotations

import queue
import threading
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import SoftTimeLimitExceeded
from blimp.tasks.executors.call import here

if TYPE_CHECKING:
    from blimp.tasks.executors import Run
    from blimp.tasks.job import Job

_STOP = None


class ThreadExecutor:
    """`size` threads that take jobs from one queue in order of arrival."""

    def __init__(self, *, run: Run, size: int) -> None:
        self._run = run
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"task-{number}", daemon=True)
            for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        job.call = ThreadCall(job)
        job.in_thread = here
        self._jobs.put(job)

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(_STOP)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            drive(self._run(job))


class ThreadCall:
    """A function that runs in a thread of the pool. Nothing can end it but itself.

    An interruption is an exception that CPython raises in the thread between two of its
    bytecodes: a call into C that blocks is not cut short. It must strike inside the function
    or not at all, so telling and leaving exclude each other, and what was told too late is
    taken back. The lock may be taken twice: the exception may strike where it is held. It is
    raised once, however often it is asked for: a second could strike where the first is met.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lock = threading.RLock()
        self._thread_id: int | None = None
        self._told = False

    async def run(self, arguments: Sequence[Any], *, interruptible: bool) -> Any:
        function, keywords = self._job.task.function, self._job.message.kwargs
        if not interruptible:
            return function(*arguments, **keywords)
        try:
            try:
                self._enter()
                return function(*arguments, **keywords)
            finally:
                self._leave()
        except SoftTimeLimitExceeded:
            self._leave()  # it may have struck in the first one; a second never comes
            raise

    def interrupt(self) -> None:
        with self._lock:
            was_told, self._told = self._told, True
            if self._thread_id is not None and not was_told:
                _raise_in(self._thread_id, SoftTimeLimitExceeded)

    def cancel(self) -> bool:
        return False

    def _enter(self) -> None:
        with self._lock:
            if self._told:
                raise SoftTimeLimitExceeded
            self._thread_id = threading.get_ident()

    def _leave(self) -> None:
        with self._lock:
            thread_id, self._thread_id = self._thread_id, None
            if thread_id is not None and self._told:
                _raise_in(thread_id, None)


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


def _raise_in(thread_id: int, error: type[BaseException] | None) -> None:
    """Have `error` raised in a thread; None takes back what was not raised yet."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), None if error is None else ctypes.py_object(error)
    )
