"""What a test does again and again beside itself."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
