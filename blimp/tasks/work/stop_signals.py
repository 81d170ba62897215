"""The signals that stop a worker: taken while it runs, where it runs in the main thread."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

from blimp.tasks.work.restart import let_stop_signals_in

if TYPE_CHECKING:
    from blimp.tasks.work.stops import Stops


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
