"""Where jobs run: a pool of threads for plain functions, a loop for `async def`.

Both take a job and never wait. Threads are daemons: a task that hangs cannot keep a worker
from ending, and its message comes again.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from blimp.tasks.job import Job

Run = Callable[[Job], Coroutine[Any, Any, None]]

_STOP = None


class Executor(Protocol):
    def submit(self, job: Job) -> None: ...

    def close(self) -> None:
        """Take no more. Jobs that run go on. Idempotent."""
        ...


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
        job.in_thread = _here
        self._jobs.put(job)

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(_STOP)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            _drive(self._run(job))


class LoopExecutor:
    """One thread with an asyncio loop, running up to `concurrency` jobs at once."""

    def __init__(self, *, run: Run, concurrency: int) -> None:
        self._run = run
        self._loop = asyncio.new_event_loop()
        self._slots = asyncio.Semaphore(concurrency)
        self._waiters = ThreadPoolExecutor(max_workers=4, thread_name_prefix="loop-io")
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="loop", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        job.in_thread = self._aside
        self._loop.call_soon_threadsafe(self._begin, job)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=1.0)
            self._waiters.shutdown(wait=False, cancel_futures=True)

    def _begin(self, job: Job) -> None:
        task = self._loop.create_task(self._limited(job))
        job.cancel = lambda: self._loop.call_soon_threadsafe(
            lambda: task.cancel() if job.is_cancellable else None
        )
        self._tasks.add(task)  # the loop keeps only weak references
        task.add_done_callback(self._tasks.discard)

    async def _limited(self, job: Job) -> None:
        async with self._slots:
            await self._run(job)

    def _aside(self, function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
        return self._loop.run_in_executor(self._waiters, lambda: function(*args))

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
            self._loop.close()


async def _here(function: Callable[..., Any], *args: Any) -> Any:
    """Call directly: this thread may wait."""
    return function(*args)


def _drive(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never really waits to its end in this thread.

    A middleware that does wait is told where it stands; its job then ends as a failure.
    """
    try:
        coroutine.send(None)
        coroutine.throw(RuntimeError("a middleware awaited something in a plain task's thread"))
    except StopIteration:
        return
    coroutine.close()
