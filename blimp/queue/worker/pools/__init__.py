"""All pools of a worker, behind one `submit`.

Threads for plain functions, loops for `async def`, processes for cpu_bound. A pool takes a job
and never waits. Threads are daemons: a task that hangs cannot keep a worker from ending, and its
message is delivered again. Tested by test_threads.py.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.queue.worker.job import Place
from blimp.queue.worker.pools.loops import LoopEnd, LoopThread
from blimp.queue.worker.pools.threads import ThreadPool

if TYPE_CHECKING:
    from blimp.queue.worker.job import Job, Run
    from blimp.queue.worker.pools.processes import ProcessPool


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each: loops and what each runs at once, threads, processes."""

    loop_workers: int
    loop_concurrency: int
    sync_workers: int
    process_workers: int

    def slots(self, place: Place) -> int:
        """Return how many jobs run at once there."""
        if place is Place.THREAD:
            return self.sync_workers
        if place is Place.LOOP:
            return self.loop_workers * self.loop_concurrency
        return self.process_workers


class WorkerPools:
    """Gives each job to the pool that its task needs. The consumer's thread submits.

    `start` is called before all else.
    """

    def __init__(
        self,
        *,
        run: Run,
        sizes: Sizes,
        origins: Mapping[str, str],
        max_tasks: int | None,
        max_memory_mb: float | None,
        log: Any,
    ) -> None:
        self._run = run
        self.sizes = sizes
        self._origins = origins
        self.max_tasks = max_tasks
        self._max_memory_mb = max_memory_mb
        self._log = log
        self._loops: list[LoopThread] = []
        self.loop_ends: list[LoopEnd] = []  # of each loop, once its jobs have ended
        self._threads: ThreadPool
        self._processes: ProcessPool | None = None
        self._lock = threading.Lock()
        self._is_stopping = False

    def start(self) -> None:
        """Start the threads. They block the signals that the calling thread blocks."""
        sizes = self.sizes
        for number in range(sizes.loop_workers):
            self._loops.append(
                LoopThread(
                    run=self._run,
                    concurrency=sizes.loop_concurrency,
                    number=number,
                    ends=self.loop_ends,
                    log=self._log,
                )
            )
        self._threads = ThreadPool(run=self._run, size=sizes.sync_workers)

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
        self.sizes = msgspec.structs.replace(self.sizes, sync_workers=size)

    def resize_processes(self, size: int) -> None:
        """Have up to `size` processes. One thread's at a time."""
        with self._lock:
            self.sizes = msgspec.structs.replace(self.sizes, process_workers=size)
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

    def _begin_processes(self) -> ProcessPool:
        """Return the pool, made with the first job for it: most workers need none."""
        with self._lock:
            if self._processes is None:
                from blimp.queue.worker.pools.processes import ProcessPool

                self._processes = ProcessPool(
                    run=self._run,
                    size=self.sizes.process_workers,
                    origins=self._origins,
                    max_tasks=self.max_tasks,
                    max_memory_mb=self._max_memory_mb,
                    log=self._log,
                )
                if self._is_stopping:
                    self._processes.tell_stopping()
            return self._processes
