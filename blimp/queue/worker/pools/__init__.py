"""Where jobs run: threads for plain functions, loops for `async def`, processes for cpu_bound.

All take a job and never wait. Threads are daemons: a task that hangs cannot keep a worker
from ending, and its message comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from blimp.queue.worker.job import Job

Run = Callable[["Job"], Coroutine[Any, Any, None]]


class Executor(Protocol):
    """Fed by one thread, the consumer's."""

    def submit(self, job: Job) -> None:
        """Have `job` run when there is room; sets its `call` and `in_thread`."""
        ...

    def close(self) -> None:
        """Take no more, and do not wait for what runs. Idempotent."""
        ...
