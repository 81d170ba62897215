"""Raising an exception of one's choice in a coroutine that waits."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from blimp import errors


class SoftTimeLimitExceeded(errors.SoftTimeLimitExceeded, asyncio.CancelledError):
    """As raised in a coroutine: a cancellation too, so that task groups end what they began."""

    __module__ = errors.__name__


@types.coroutine
def interruptible(
    coroutine: Coroutine[Any, Any, Any], *, instead: Callable[[], BaseException | None]
) -> Generator[Any, Any, Any]:
    """Await `coroutine`; where the task is cancelled, raise what `instead` returns in it.

    None leaves the cancellation as it is.
    """
    step: Callable[[Any], Any] = coroutine.send
    argument: Any = None
    while True:
        try:
            waits_for = step(argument)
        except StopIteration as end:
            return end.value
        try:
            argument = yield waits_for
            step = coroutine.send
        except asyncio.CancelledError as error:
            argument, step = instead() or error, coroutine.throw
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            argument, step = error, coroutine.throw
