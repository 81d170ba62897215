"""Deleting old results every now and then, beside what a worker does."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

from blimp.errors import BlimpError

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.results.base import ResultBackend

LONGEST_PAUSE_S = 3600.0
SHORTEST_PAUSE_S = 10.0


class Cleaning:
    """Called with every beat of a worker's pulse; cleans up a few times in `keep_s`.

    In a thread of its own, which lives no longer: a database may be slow, and the pulse is
    not. Other workers may do the same at the same time, and rarely do: the pauses are drawn.
    """

    def __init__(
        self,
        *,
        results: ResultBackend,
        clock: Clock,
        log: Any,
        chance: random.Random | None = None,
    ) -> None:
        self._results = results
        self._clock = clock
        self._log = log
        self._chance = chance or random.Random()
        self._longest_s = min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, results.keep_s / 4.0))
        self._next_s = clock.now_s() + self._pause_s()
        self._thread: threading.Thread | None = None

    def __call__(self, _: bool) -> None:
        """Whether the broker is there is no matter here."""
        if self._clock.now_s() < self._next_s or self.is_busy:
            return
        self._next_s = self._clock.now_s() + self._pause_s()
        self._thread = threading.Thread(target=self._clean, name="results-cleanup", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def wait(self, timeout_s: float) -> bool:
        """Wait for what is being cleaned up; say whether it came to its end."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.is_busy

    def _pause_s(self) -> float:
        return self._longest_s * self._chance.uniform(0.5, 1.0)

    def _clean(self) -> None:
        try:
            count = self._results.cleanup()
        except BlimpError as error:
            self._log.warning("results not cleaned up", reason=str(error))
        except Exception:
            self._log.exception("results not cleaned up")
        else:
            if count:
                self._log.info("results cleaned up", rows=count)
