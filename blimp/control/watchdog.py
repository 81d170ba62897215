"""An independent thread that puts the outputs safe when the loop stalls."""

import threading
from collections.abc import Callable, Sequence
from typing import Self

from blimp.clock import Clock
from blimp.closing import Closing

STALL_S = 0.25  # 25 cycles at 100 Hz: long past any overrun, short against a drifting ship


class Watchdog(Closing):
    """Calls `safe` in a stall until it succeeds; `pet` after a completed cycle restarts it.

    safe: returns what could not be reached, one text each. It must be callable from another
    thread while the loop hangs inside a driver. The first pet arms the watchdog, so that a slow
    start-up is no stall. The thread looks ten times per `stall_s`; `check` holds the whole
    decision, so that tests need no thread.
    """

    def __init__(
        self, *, clock: Clock, safe: Callable[[], Sequence[str]], stall_s: float = STALL_S
    ) -> None:
        self._clock = clock
        self._safe = safe
        self._stall_s = stall_s
        self._petted_s: float | None = None
        self._is_safe = False  # in this stall, once `safe` has reached everything
        self._is_stalled = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.trips = 0
        self.error = ""

    def pet(self) -> None:
        """The loop has completed a cycle."""
        self._petted_s = self._clock.now_s()
        self._is_safe = self._is_stalled = False

    def check(self, now_s: float) -> bool:
        """Put the outputs safe if the loop is overdue; return whether that was done now."""
        petted_s = self._petted_s
        if petted_s is None or self._is_safe or now_s - petted_s <= self._stall_s:
            return False
        self.trips += not self._is_stalled
        self._is_safe = self._is_stalled = True
        try:
            unreached = "; ".join(self._safe())
        except Exception as error:  # the watchdog must outlive any fault of the outputs
            unreached = str(error)
        self.error = unreached and f"watchdog: outputs could not be put safe: {unreached}"
        if unreached:
            self._is_safe = False  # the bus may come back: try again
        return not unreached

    def start(self) -> None:
        """Start the thread. A second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the thread and wait for it. Leaves the outputs alone."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2.0 * self._stall_s + 1.0)

    def __enter__(self) -> Self:
        self.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(self._stall_s / 10.0):
            self.check(self._clock.now_s())
