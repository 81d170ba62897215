"""The page's emergency stops: each ship has threads of its own for them, made before the press.

A stop waits for its ship's confirmation. So that it never waits for another ship's, nor for a
command, a viewer or a question to the broker, no thread is shared.
"""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from blimp.closing import Closing
from blimp.errors import BlimpError

# Two operators who press again while an attempt goes on; further presses wait for one of these,
# which repeats its stop all the time.
PRESSES = 4
MAX_SHIPS = 64


class Stops(Closing):
    """Stops of every ship. Used from the server's loop alone, and never waits.

    ready: connects what a ship's stop uses. stop: sends it and returns how it ended. Both are
    called in the ship's own threads.
    """

    def __init__(
        self, *, ready: Callable[[str], None], stop: Callable[[str], dict[str, Any]]
    ) -> None:
        self._ready, self._stop = ready, stop
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._others = ThreadPoolExecutor(PRESSES, thread_name_prefix="estop")

    @property
    def vehicles(self) -> tuple[str, ...]:
        """The ships that were prepared."""
        return tuple(self._threads)

    def prepare(self, vehicle: str) -> None:
        """Have a ship's threads and connection ready before they are needed."""
        if vehicle not in self._threads and len(self._threads) < MAX_SHIPS:
            threads = ThreadPoolExecutor(PRESSES, thread_name_prefix=f"estop {vehicle}")
            self._threads[vehicle] = threads
            threads.submit(self._prepared, vehicle)

    def press(self, vehicle: str) -> "Future[dict[str, Any]]":
        """Stop a ship. Those beyond MAX_SHIPS share their threads."""
        self.prepare(vehicle)
        return self._threads.get(vehicle, self._others).submit(self._stop, vehicle)

    def _prepared(self, vehicle: str) -> None:
        with contextlib.suppress(BlimpError):  # without a broker the press connects
            self._ready(vehicle)

    def close(self) -> None:
        for threads in (self._others, *self._threads.values()):
            threads.shutdown(cancel_futures=True)
        self._threads.clear()
