"""A worker's own name: waited for at its start, held while it runs, left at its end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError
from blimp.tasks.work.name_lock import LEASE_MS, NameInUse, NameLock

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp

AGAIN_S = 0.2


class OwnName:
    """The lease of `worker`'s name. Raises NameInUse where another worker keeps it."""

    def __init__(self, *, app: TaskApp, worker: str, stopping: threading.Event, log: Any) -> None:
        self._app = app
        self._stopping = stopping
        self._log = log
        self._lock = NameLock(link=app.broker_link, app=app.name, worker=worker)

    def renew(self) -> None:
        """Raises LinkError, NameInUse."""
        self._lock.take()

    def wait(self) -> None:
        """Wait for the broker, and for the lease of a namesake that may be dead to lapse."""
        outage = self._app.outage("no broker", log=self._log, ends=True)
        first_refused_s: float | None = None
        while not self._stopping.is_set():
            try:
                self._lock.take()
                outage.over()
                return
            except LinkError as error:
                self._stopping.wait(outage.failed(error))
            except NameInUse as error:
                now_s = self._app.clock.now_s()
                first_refused_s = first_refused_s or now_s
                # One that is just being killed lives on for a moment.
                patience_s = 1.0 if error.certain else LEASE_MS / 1000.0 + 1.0
                if now_s - first_refused_s > patience_s:
                    raise
                self._stopping.wait(AGAIN_S)

    def leave(self) -> None:
        try:
            self._lock.leave()
        except LinkError:
            return  # the lease lapses by itself
