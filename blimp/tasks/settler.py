"""Ending jobs with the broker: in one step where the line can, else in the order that is safe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp
    from blimp.tasks.job import Ending, Job
    from blimp.tasks.line import Line


class Settler:
    """Writes endings, each until the broker took it or the worker is abandoned.

    The order where it takes several steps: the result is stored and what follows is queued
    before the message is acknowledged. A worker killed in between leaves a message that comes
    again, finds its result, and is only acknowledged.

    on_done: called with each job that has left the worker's hands.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        line: Line,
        abandoned: threading.Event,
        on_done: Callable[[Job], None],
        log: Any,
    ) -> None:
        self._app = app
        self._line = line
        self._abandoned = abandoned
        self._on_done = on_done
        self._log = log
        self._outage = app.outage("broker away", log=log)

    def settle(self, ending: Ending) -> None:
        """Write `ending`, and let its job go. Raises nothing."""
        try:
            for step in self._steps(ending):
                self.until_done(step)
        except Exception:
            self._log.exception("settle", **_about(ending.job))
        finally:
            self._on_done(ending.job)

    def until_done(self, function: Callable[..., Any], *args: Any) -> None:
        """Call until the broker takes it, or the worker is abandoned and it comes again."""
        while not self._abandoned.is_set():
            try:
                function(*args)
                self._outage.over()
                return
            except LinkError as error:
                self._abandoned.wait(self._outage.failed(error))

    def _steps(self, ending: Ending) -> Iterator[Callable[[], Any]]:
        """Yield what is to be done, in order; each is repeated alone until the broker took it."""
        delivery = ending.job.delivery
        if ending.give_back:
            yield delivery.give_back
            return
        at_once = self._line.ends_at_once
        if ending.record and not (at_once and self._app.completes_at_once):
            yield partial(self._store, ending)
        if at_once:
            yield partial(self._end, ending)
            return
        for message in ending.next:
            yield partial(self._app.publisher.publish, message)
        if ending.dead and ending.acks:
            yield partial(delivery.reject, ending.dead)
        elif ending.acks:
            yield delivery.ack

    def _end(self, ending: Ending) -> None:
        (refused,) = self._line.end([ending])
        if refused:
            self._log.warning("result refused", **_about(ending.job), reason=refused)

    def _store(self, ending: Ending) -> None:
        assert self._app.results is not None
        if not self._app.results.write(ending.job.message.id, ending.record):
            self._log.warning("result stands", **_about(ending.job))


def _about(job: Job) -> dict[str, str]:
    return {"task": job.task.name, "id": job.message.id}
