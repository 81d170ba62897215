"""What a test does again and again: until something is so, or beside itself."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

PATIENCE_S = 60.0  # for what must happen; nothing waits this long when it works
SHORTEST_S, LONGEST_S = 0.002, 0.1  # between two questions
SHARE = 0.02  # of what was waited so far, is the next pause: a `ground status` costs 40 ms

T = TypeVar("T")


def until(
    ask: Callable[[], T | None],
    what: str = "it did not come to pass",
    *,
    within_s: float = PATIENCE_S,
) -> T:
    """Ask until the answer is true. Raises TimeoutError saying `what` did not come about."""
    began_s, pause = time.monotonic(), threading.Event()
    while not (answer := ask()):
        waited_s = time.monotonic() - began_s
        if waited_s > within_s:
            raise TimeoutError(f"{what} within {within_s:g} s")
        pause.wait(min(LONGEST_S, max(SHORTEST_S, SHARE * waited_s)))
    return answer


@contextmanager
def repeating(call: Callable[[], object], *, period_s: float) -> Iterator[None]:
    """Call it in a thread, with a pause of `period_s` before each time, during the block."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(period_s):
            call()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
