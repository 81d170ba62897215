"""One run of a task's function, as its executor makes it and can interrupt it.

Raising an exception of one's choice in a coroutine that waits.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from blimp import errors

if TYPE_CHECKING:
    from blimp.queue.protocol.outcome import Outcome


class Call(Protocol):
    """`run` is awaited by the job's runner; the other two are any thread's, at any time."""

    async def run(self, arguments: Sequence[Any], *, interruptible: bool) -> Any | Outcome:
        """Call the function with the message's keyword arguments; raise what it raises.

        A child process judges for itself, and returns a Verdict.
        interruptible: whether `interrupt` may come; being ready for it costs a little.
        """
        ...

    def interrupt(self) -> None:
        """Have SoftTimeLimitExceeded raised in the function, where it still runs."""
        ...

    def cancel(self) -> bool:
        """Have the function end, or not begin; False where that cannot be done."""
        ...


async def here(function: Callable[..., Any], *args: Any) -> Any:
    """Call directly: this thread may wait."""
    return function(*args)


InThread = Callable[..., Awaitable[Any]]


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
