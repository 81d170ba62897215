"""Before a worker consumes: its tasks are checked, its memory set up, its boot steps started."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError, StepFailed
from blimp.queue.extensions import BootStep
from blimp.queue.located import path_of

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.options import TaskOptions
    from blimp.queue.task import Task

# What a task may ask for, and whether it does. All of it is noted on a Redis server.
NEEDS_STORE: dict[str, Callable[[TaskOptions], bool]] = {
    "idempotent=False": lambda options: not options.idempotent,
    "reject_on_worker_lost=True": lambda options: options.reject_on_worker_lost,
    "coalesce": lambda options: options.coalesce is not False,
    "requires": lambda options: options.requires is not None,
    "concurrency_key": lambda options: options.concurrency_key is not None,
}


def missing_guarantees(app: TaskApp) -> str | None:
    """Return the line that a worker logs at its start; None if nothing is missing."""
    missing = app.capabilities.missing(has_store=app.has_store)
    if not missing:
        return None
    return f'transport "{app.transport}" ({app.capabilities.title}): ' + "; ".join(missing)


def check_tasks(app: TaskApp) -> None:
    """Raise ConfigError for a task that asks for what its broker cannot do.

    Reads annotations, too, so that no first message waits for it.
    """
    for task in app.tasks.values():
        _ = task.run
    if app.has_store:
        return
    refused = [
        f"{task.name!r} for {option}"
        for task in app.tasks.values()
        for option, needs in NEEDS_STORE.items()
        if needs(task.options)
    ]
    if refused:
        raise ConfigError(
            f"app {app.name!r} needs a Redis server beside transport {app.transport!r}: "
            f"{', '.join(refused)}; give it a result_backend"
        )


class Boot:
    """Starts steps in order, and stops in reverse order those that were started.

    call: runs a coroutine in the first loop. stop_s: how long all steps may take to stop.
    """

    def __init__(
        self,
        *,
        steps: Sequence[BootStep],
        worker: Any,
        call: Callable[[Coroutine[Any, Any, Any]], Future[Any]],
        stop_s: float,
        log: Any,
    ) -> None:
        self._steps = steps
        self._worker = worker
        self._call = call
        self._stop_s = stop_s
        self._log = log
        self._started: list[BootStep] = []
        self._starting: asyncio.Task[Any] | None = None
        self._is_cancelled = False

    def start(self) -> None:
        """Start every step. Raises StepFailed when the earlier ones have been stopped again."""
        if self._steps:
            failure = self._call(self._start()).result()
            if failure is not None:
                raise failure

    def cancel(self) -> None:
        """Cancel a start that is under way, or is yet to come. Any thread."""
        self._is_cancelled = True
        task = self._starting
        if task is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                task.get_loop().call_soon_threadsafe(task.cancel)

    def stop(self) -> None:
        """Stop what was started; a step that fails is logged, and the others stop."""
        if self._started:
            future = self._call(self._stop())
            try:
                future.result(timeout=self._stop_s)
            except TimeoutError:
                self._log.error("boot steps do not stop", after_s=self._stop_s)

    async def _start(self) -> StepFailed | None:
        self._starting = asyncio.current_task()
        try:
            if self._is_cancelled:  # checked last: no cancellation is missed
                return None
            for step in self._steps:
                await step.start(self._worker)
                self._started.append(step)
        except asyncio.CancelledError:
            await self._stop()
        except Exception as error:
            await self._stop()
            failure = StepFailed(
                f"boot step {_name(step)} did not start: {type(error).__name__}: {error}"
            )
            failure.__cause__ = error
            return failure
        finally:
            self._starting = None
        return None

    async def _stop(self) -> None:
        while self._started:
            step = self._started.pop()
            try:
                await step.stop(self._worker)
            except Exception:
                self._log.exception("boot step does not stop", step=_name(step))


def _name(step: BootStep) -> str:
    return type(step).__qualname__


def locate_all(app: TaskApp, *, app_path: str | None) -> dict[str, str]:
    """Return, by task name, where to find each cpu_bound task of `app`.

    app_path: where the app itself is, if that is known. Raises ConfigError naming a task that
    no other process can find.
    """
    return {
        task.name: app_path or _locate(task)
        for task in app.tasks.values()
        if task.options.cpu_bound
    }


def _locate(task: Task) -> str:
    module = task.function.__module__
    if (path := path_of(task, task.app, modules=[module])) is not None:
        return path
    raise ConfigError(
        f"task {task.name!r} is cpu_bound, and a process of its own cannot find it in module "
        f"{module!r}: have it or its app an attribute of a module that can be imported, "
        "or give Worker(app_path='module:attribute')"
    )


# --- memory of the process -----------------------------------------------------------------------

# A backlog's messages are alive for milliseconds. Python's default of 700 objects walks through
# all of them each time: a fifth of a short task's cost.
GC_THRESHOLD = 50_000
_M_ARENA_MAX = -8  # malloc.h


@contextlib.contextmanager
def lean_memory() -> Iterator[None]:
    """Set up Python's collector for the block, and one heap for all threads, as one lock has them.

    Without the interpreter lock threads would wait for each other at one heap. Python cannot set
    the number of heaps back.
    """
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, 10, 10)
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        with contextlib.suppress(AttributeError, OSError):  # of glibc only
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def freeze_memory() -> None:
    """Never look again through modules and app, which live as long as the process."""
    gc.collect()
    gc.freeze()
    with contextlib.suppress(AttributeError, OSError):  # of glibc only
        ctypes.CDLL(None).malloc_trim(0)  # what importing needed
