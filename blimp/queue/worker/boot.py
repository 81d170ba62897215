"""Boot steps: what a worker's tasks need, started before it consumes and stopped after."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

from blimp.errors import StepFailed
from blimp.queue.extensions import BootStep


class Boot:
    """Starts steps in order, and stops in reverse order those that were started.

    call: runs a coroutine in the first loop. stop_s: how long all the stopping may take.
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
        """Start every step. Raises StepFailed once the earlier ones are stopped again."""
        if self._steps:
            failure = self._call(self._start()).result()
            if failure is not None:
                raise failure

    def cancel(self) -> None:
        """Give up a start that is under way, or is yet to come. Any thread."""
        self._is_cancelled = True
        task = self._starting
        if task is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                task.get_loop().call_soon_threadsafe(task.cancel)

    def stop(self) -> None:
        """Stop what was started; a step that fails is told, and keeps no other."""
        if self._started:
            future = self._call(self._stop())
            try:
                future.result(timeout=self._stop_s)
            except TimeoutError:
                self._log.error("boot steps do not stop", after_s=self._stop_s)

    async def _start(self) -> StepFailed | None:
        self._starting = asyncio.current_task()
        try:
            if self._is_cancelled:  # looked at once it can be cancelled: none falls between
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
