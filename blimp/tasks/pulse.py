"""The worker's pulse: renews its name, and tells whether the broker answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError, TaskError

if TYPE_CHECKING:
    from blimp.tasks.name_lock import NameLock

PERIOD_S = 1.0


class Pulse:
    """A thread of its own: the consumer may be waiting for a broker that is away.

    on_lost_name: called once when another live worker has taken the name.
    """

    def __init__(
        self,
        *,
        lock: NameLock,
        watchers: Iterable[Callable[[bool], None]],
        on_lost_name: Callable[[str], None],
        log: Any,
    ) -> None:
        self._lock = lock
        self._watchers = tuple(watchers)
        self._on_lost_name = on_lost_name
        self._log = log
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=PERIOD_S)

    def _serve(self) -> None:
        while True:
            alive = self._beat()
            for watcher in self._watchers:
                try:
                    watcher(alive)
                except Exception:
                    self._log.exception("link watcher")
            if self._closed.wait(PERIOD_S):
                return

    def _beat(self) -> bool:
        try:
            self._lock.take()
        except LinkError:
            return False
        except TaskError as error:
            self._on_lost_name(str(error))
        return True
