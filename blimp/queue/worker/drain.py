"""The end of a worker's work: what runs may end, and what may run again is given back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError
from blimp.queue.worker.middleware.once import clear_begun, is_marked

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.worker.consumer_loop import ConsumerLoop
    from blimp.queue.worker.in_flight import InFlight
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.shutdown import Stops


class Finish:
    """Empties the hand of a worker that consumes no more.

    grace_s: how long what runs may go on, where somebody wants the worker gone.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        consumer_loop: ConsumerLoop,
        in_flight: InFlight,
        stops: Stops,
        counts: Counter[str],
        grace_s: float,
        log: Any,
    ) -> None:
        self._app = app
        self._consumer_loop = consumer_loop
        self._in_flight = in_flight
        self._stops = stops
        self._counts = counts
        self._grace_s = grace_s
        self._log = log
        self.has_stuck = False  # a function that cannot be ended: nothing waits for it

    def see_out(self) -> None:
        """Wait for what runs; then give back what may run again."""
        is_restart = self._stops.restart_reason is not None
        if is_restart:
            self._log.info("restarts", reason=self._stops.restart_reason)
        try:
            self._consumer_loop.requeue_waiting()
        except LinkError as error:
            self._log.warning("not given back", reason=str(error))
        if is_restart and not self.has_stuck:
            # Nobody is in a hurry: no task is cut off for a process that is merely old.
            self._in_flight.wait_empty(
                None, unless=lambda: self.has_stuck or self._stops.asked.is_set()
            )
        self._in_flight.wait_empty(self._grace_s, unless=self._stops.abandoned.is_set)
        self._stops.abandoned.set()
        for job in self._in_flight.jobs():
            self._cut_off(job)
        # What has ended is being written down just now, once: see it through.
        self._in_flight.wait_empty(2.0 * self._app.timeout_s, unless=lambda: False)

    def _cut_off(self, job: Job) -> None:
        """End a job that would not: its message comes again, now or at the next start.

        One that was acknowledged before it ran does not: it has begun, once.
        """
        if job.withdraw():  # it could not be given back: the broker is away
            self._in_flight.release(job)
        if not job.finish():
            return  # its end is being written
        self._log.warning("cut off", task=job.task.name, id=job.message.id)
        self._counts["cut_off"] += 1
        job.cancel()
        try:
            if job.task.options.idempotent and job.task.options.acks_late:
                if is_marked(job.task.options):
                    clear_begun(self._app, job.message)
                job.delivery.requeue()
        except LinkError:
            return  # it stays unacknowledged, and is restored when this name starts again
        finally:
            self._in_flight.release(job)
