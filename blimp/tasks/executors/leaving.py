"""How many of a pool's threads are to leave, without anybody being cut off."""

from __future__ import annotations

import threading


class Leaving:
    """Asked by each thread between two jobs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def add(self, threads: int) -> None:
        """So many more are to leave."""
        with self._lock:
            self.count += threads

    def stay(self, threads: int) -> int:
        """So many are needed again: return how many that is more than those about to leave."""
        with self._lock:
            kept = min(threads, self.count)
            self.count -= kept
            return threads - kept

    def may_leave(self) -> bool:
        """Say whether the thread that asks is one of them."""
        if not self.count:
            return False
        with self._lock:
            if not self.count:
                return False
            self.count -= 1
            return True
