"""One run of a task's function, as its executor makes it and can interrupt it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from blimp.tasks.work.job import Verdict


class Call(Protocol):
    """`run` is awaited by the job's runner; the other two are any thread's, at any time."""

    async def run(self, arguments: Sequence[Any], *, interruptible: bool) -> Any | Verdict:
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
