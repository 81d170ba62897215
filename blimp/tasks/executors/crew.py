"""All executors of a worker, behind one `submit`."""

from __future__ import annotations

from collections.abc import Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.tasks.executors import Place, place_of
from blimp.tasks.executors.loops import LoopExecutor
from blimp.tasks.executors.threads import ThreadExecutor

if TYPE_CHECKING:
    from blimp.tasks.executors import Executor, Run
    from blimp.tasks.job import Job


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each: loops and what each runs at once, threads, processes."""

    loop_workers: int = 1
    loop_concurrency: int = 16
    sync_workers: int = 8


class Crew:
    """Gives each job to the executor its task needs. Fed by the consumer's thread."""

    def __init__(self, *, run: Run, sizes: Sizes) -> None:
        self._loops = LoopExecutor(
            run=run, workers=sizes.loop_workers, concurrency=sizes.loop_concurrency
        )
        self._executors: dict[Place, Executor] = {
            Place.LOOP: self._loops,
            Place.THREAD: ThreadExecutor(run=run, size=sizes.sync_workers),
        }

    def submit(self, job: Job) -> None:
        self._executors[place_of(job.task)].submit(job)

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run `coroutine` in the first loop."""
        return self._loops.call(coroutine)

    def close(self) -> None:
        for executor in self._executors.values():
            executor.close()
