"""What the code of a worker cannot run, and that of another may: it is set aside for that one.

In a rolling deploy an old worker takes messages of new tasks, and of tasks whose arguments have
changed. Tested by test_aside.py.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from blimp.queue.brokers.base import Aside
from blimp.queue.log import Throttle
from blimp.queue.protocol.embed import MAP, STARMAP
from blimp.queue.protocol.signing import SEAL

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.worker.job import Job

MISFITS = ("TypeError", "MessageError")  # raised instead of the call, for arguments of another one


class AsideRule:
    """Says what a worker sets aside, and until when. Any thread; methods raise LinkError.

    counts: the worker's, of what it has set aside.
    """

    def __init__(self, *, app: TaskApp, counts: Counter[str], log: Any) -> None:
        self._app = app
        self._counts = counts
        self._counting = threading.Lock()  # the thread that receives, and those that run
        self._log = log
        self._throttle = Throttle(clock=app.clock)

    def unknown(self, message: TaskMessage, delivered: Any, task: str) -> Aside | None:
        """Return how `message` waits for a worker that knows `task`; None if it has waited enough.

        It waits as long as such a one lives, else for `unknown_task_wait_s`.
        """
        if not self._app.capabilities.sets_aside or task in (MAP, STARMAP):  # no map of maps
            return None
        if not task.isprintable():  # of a map; no task has such a name, nor can a place
            return None
        wait_s, now_s = self._longest_s(message), self._app.broker_clock.recent_s()
        was = delivered.claim.aside
        if was is not None and now_s < was.until_s:
            wait_s = min(wait_s, was.until_s - now_s)
        elif was is not None and not self._app.fleet.can_run(task, queue=message.queue):
            return None
        return self._aside(message, task, (), wait_s)

    def misfit(self, job: Job) -> Aside | None:
        """Return how the message of `job` waits for a worker whose function takes its arguments.

        None if this one's does, or if no such worker lives.
        """
        message, task = job.message, job.task
        if not self._app.capabilities.sets_aside or not task.options.acks_late:
            return None
        if task.name not in self._app.tasks or task.can_take(message.args, message.kwargs):
            return None
        was = job.delivery.claim.aside  # type: ignore[attr-defined]
        tried = tuple(sorted({task.version, *(was.versions if was is not None else ())}))
        if not self._app.fleet.can_run(task.name, queue=message.queue, versions=tried):
            return None
        return self._aside(message, task.name, tried, self._longest_s(message))

    def _longest_s(self, message: TaskMessage) -> float:
        """Return how long it may wait: no longer than it may begin."""
        now_s = self._app.broker_clock.recent_s()
        limits_s = [self._app.settings.unknown_task_wait_s]
        if message.expires_s is not None:
            limits_s.append(message.expires_s - now_s)
        if message.ttl_s is not None and message.issued_ms is not None:
            limits_s.append(message.issued_ms / 1e3 + message.ttl_s - now_s)
        return min(limits_s)

    def _aside(
        self, message: TaskMessage, task: str, versions: tuple[str, ...], wait_s: float
    ) -> Aside | None:
        if wait_s <= 0.0:
            return None
        with self._counting:
            self._counts["set_aside"] += 1
        if (more := self._throttle.admit("set aside")) is not None:
            fields = {"task": task, "queue": message.queue, "id": message.id}
            self._log.warning("set aside", **fields, wait_s=round(wait_s, 1), **more)
        if self._app.signer is not None:  # it comes again in another entry
            self._app.signer.window.forget(message.headers.get(SEAL))
        return Aside(task, versions, wait_s)
