"""The worker's heartbeat: renews its name, checks the broker, and wakes it to stop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any

from blimp.errors import LinkError
from blimp.queue.worker.name_lock import NameInUse

PERIOD_S = 1.0
QUIET_PERIOD_S = 1.5  # without link watchers; a name's lease is three times as long
WAKE_S = 0.05


class Heartbeat:
    """A thread of its own: the consumer may be waiting for an unreachable broker.

    period_s: between two beats.
    beat: asks the broker; raises LinkError if it does not answer, NameInUse.
    on_lost_name: called once, when another live worker has taken the name.
    stopping, wake: when the one is set, the other is called until the heartbeat is closed, so
        that a consumer blocked in the server sees it at once.
    """

    def __init__(
        self,
        *,
        beat: Callable[[], None],
        watchers: Iterable[Callable[[bool], None]],
        on_lost_name: Callable[[str], None],
        stopping: threading.Event,
        wake: Callable[[], None],
        log: Any,
        period_s: float = PERIOD_S,
    ) -> None:
        self._ask = beat
        self._watchers = tuple(watchers)
        self._on_lost_name = on_lost_name
        self._stopping = stopping
        self._wake = wake
        self._log = log
        self._period_s = period_s
        self._has_lost_name = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=PERIOD_S)

    def _serve(self) -> None:
        while not self._closed.is_set():
            alive = self._beat()
            for watcher in self._watchers:
                try:
                    watcher(alive)
                except Exception:
                    self._log.exception("link watcher")
            if self._stopping.wait(self._period_s):
                with contextlib.suppress(LinkError):
                    self._wake()
                self._closed.wait(WAKE_S)

    def _beat(self) -> bool:
        try:
            self._ask()
        except LinkError:
            return False
        except NameInUse as error:
            if not self._has_lost_name:  # it goes on while the worker stops
                self._has_lost_name = True
                self._on_lost_name(str(error))
        return True
