"""Being asked to stop: warm, cold, or to make way for a fresh process.

The signals that stop a worker: taken while it runs, where it runs in the main thread.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from blimp.queue.worker.restart import let_stop_signals_in


class _Request(Enum):
    WARM = auto()
    COLD = auto()
    END = auto()


class Stops:
    """Heeds requests in a thread of its own, since a signal may find its thread in a lock.

    stopping: take no more; what runs may end. abandoned: nothing is waited for any more.
    asked: somebody wants the worker gone; otherwise it stops to begin anew.
    on_heeded: called after each request.
    """

    def __init__(self, *, on_heeded: Callable[[], None]) -> None:
        self.stopping = threading.Event()
        self.abandoned = threading.Event()
        self.asked = threading.Event()
        self._on_heeded = on_heeded
        self._was_asked = False  # known at once, also when the thread has ended
        self._restart_reason: str | None = None
        self._requests: queue.SimpleQueue[_Request | str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="stops", daemon=True)

    @property
    def restart_reason(self) -> str | None:
        """Why the worker stops in order to begin anew; None where it does not."""
        return None if self._was_asked else self._restart_reason

    def warm(self) -> None:
        """Ask for a warm stop; a second time, for a cold one. Any thread, any signal."""
        self._was_asked = True
        self._requests.put(_Request.WARM)

    def cold(self) -> None:
        self._was_asked = True
        self._requests.put(_Request.COLD)

    def restart(self, reason: str) -> None:
        """Ask for a warm stop and a fresh process; whoever asks for a stop has the last word."""
        self._requests.put(reason)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Heed what was asked so far, and end the thread. Both events are set from now on."""
        self.abandoned.set()
        self.stopping.set()
        self._requests.put(_Request.END)
        if self._thread.is_alive():
            self._thread.join()

    def _serve(self) -> None:
        while (request := self._requests.get()) is not _Request.END:
            if isinstance(request, str):
                self._restart_reason = self._restart_reason or request
            else:
                if request is _Request.COLD or self.asked.is_set():
                    self.abandoned.set()
                self.asked.set()
            self.stopping.set()
            self._on_heeded()


class StopSignals:
    """SIGTERM and SIGINT ask for a warm stop, SIGQUIT for a cold one."""

    def __init__(self, stops: Stops) -> None:
        self._stops = stops
        self._before: dict[signal.Signals, Any] = {}

    def take(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, lambda *_: self._stops.warm())
        self._before[signal.SIGQUIT] = signal.signal(signal.SIGQUIT, lambda *_: self._stops.cold())
        let_stop_signals_in()

    def put_back(self) -> None:
        """Have the handlers from before again. Idempotent."""
        while self._before:
            signal.signal(*self._before.popitem())
