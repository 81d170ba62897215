"""Where jobs run: threads for plain functions, loops for `async def`, processes for cpu_bound.

A pool takes a job and never waits. Threads are daemons: a task that hangs cannot keep a worker
from ending, and its message is delivered again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blimp.queue.worker.job import Job

Run = Callable[["Job"], Coroutine[Any, Any, None]]
