"""Durable steps of a task: what one returned is stored, and it is not run again.

Tested by test_steps.py.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from blimp.errors import ConfigError, MessageError, ResultError
from blimp.queue.protocol.kombu_body import from_json
from blimp.queue.protocol.message import check_name, to_json

MOST_STEPS = 1000  # of one task; chosen: all are read at once, and a server holds them in one hash
KEEP_S = 86_400  # at least, after the last step; chosen: a day, as the mark that a task has begun

# Called without a step, it returns the results that are stored, JSON by name; with one, it stores
# that. Raises LeaseLost if another worker has the message.
Ask = Callable[..., dict[str, bytes]]


async def here(function: Callable[..., Any], *args: Any) -> Any:
    """Call directly: a thread that may wait."""
    return function(*args)


class Steps:
    """The steps of one run of `task`, a Task. Any thread of it.

    ask: None for a direct call, which stores nothing. in_thread: runs a call that may wait.
    """

    def __init__(
        self, *, task: Any, ask: Ask | None, in_thread: Callable[..., Awaitable[Any]] = here
    ) -> None:
        self.ask = ask
        self._task: str = task.name
        self._awaits: bool = task.is_async
        self._limit_bytes = task.app.result_limit_bytes
        self._in_thread = in_thread
        self._stored: dict[str, bytes] | None = None if ask is not None else {}
        self._names: set[str] = set()  # of those that were asked for in this run
        self._lock = threading.Lock()

    async def run(self, name: str, function: Callable[[], Any]) -> Any:
        """Return what the step returned, in this run or before. See `TaskContext.step`."""
        check_name(name, f"{self._task}: the name of a step")
        with self._lock:
            if name in self._names:
                raise MessageError(f"{self._task}: a second step {name!r} in one run")
            self._names.add(name)
        try:
            return from_json(await self._result(name, function))
        except BaseException:
            self._names.discard(name)  # it has not ended: the task may try it again
            raise

    async def _result(self, name: str, function: Callable[[], Any]) -> bytes:
        if self._stored is None:
            assert self.ask is not None
            stored = await self._in_thread(self.ask)
            self._stored = stored if self._stored is None else self._stored  # of a step beside it
        if name in self._stored:
            return self._stored[name]
        if len(self._stored.keys() | self._names) > MOST_STEPS:
            raise ResultError(f"{self._task}: step {name!r} is one more than {MOST_STEPS}")
        result = function()
        if inspect.isawaitable(result):
            if not self._awaits:
                if inspect.iscoroutine(result):
                    result.close()  # it has not begun
                raise ConfigError(
                    f"{self._task}: step {name!r} is a coroutine, and the task is not"
                )
            result = await result
        data = as_json(result, f"{self._task}: step {name!r} returned", self._limit_bytes)
        if self.ask is not None:
            await self._in_thread(self.ask, name, data)
        self._stored[name] = data
        return data


def as_json(value: Any, what: str, limit_bytes: int) -> bytes:
    """Return `value` as JSON. Raises ResultError if JSON cannot hold it, or it is too long."""
    try:
        data = to_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError(f"{what} what JSON cannot hold: {error}") from error
    if len(data) > limit_bytes:
        raise ResultError(f"{what} {len(data)} bytes as JSON: the limit is {limit_bytes}")
    return data
