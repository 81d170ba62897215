"""What one thread hears and another waits for."""

import threading
from collections.abc import Callable
from typing import IO, Generic, TypeVar

from tests.repeating import PATIENCE_S

T = TypeVar("T")
Found = TypeVar("Found")


class Inbox(Generic[T]):
    """items: so far, in the order in which they came."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._came = threading.Condition()

    def add(self, item: T) -> None:
        with self._came:
            self.items.append(item)
            self._came.notify_all()

    def wait_for(self, ask: Callable[[], Found], *, within_s: float = PATIENCE_S) -> Found:
        """Ask after each item until the answer is true; return the last answer."""
        with self._came:
            return self._came.wait_for(ask, within_s)


class Printed(Inbox[str]):
    """The lines of a program, which a thread reads until their end."""

    def __init__(self, stream: IO[str] | None) -> None:
        super().__init__()
        assert stream is not None
        self._stream = stream
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._stream as lines:
            for line in lines:
                self.add(line)

    def join(self) -> None:
        """Wait for the end, which comes when the last process that may write has ended."""
        self._reader.join(PATIENCE_S)
