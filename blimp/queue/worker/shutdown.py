"""How a worker stops: requests and signals, then the drain of what is in flight."""

from __future__ import annotations

import queue
import signal
import threading
from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError
from blimp.queue.worker.middleware.once import clear_begun, is_marked
from blimp.queue.worker.restart import let_stop_signals_in

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.worker.consumer_loop import ConsumerLoop
    from blimp.queue.worker.in_flight import InFlight
    from blimp.queue.worker.job import Job


class _Request(Enum):
    WARM = auto()
    COLD = auto()
    END = auto()


class Stops:
    """Handles requests in a thread of its own: a signal may interrupt a thread that has a lock.

    stopping: take no more; what runs may end. abandoned: wait for nothing any more.
    asked: the worker was asked to stop; if not, it stops to restart.
    on_request: called after each request.
    """

    def __init__(self, *, on_request: Callable[[], None]) -> None:
        self.stopping = threading.Event()
        self.abandoned = threading.Event()
        self.asked = threading.Event()
        self._on_request = on_request
        self._was_asked = False  # known at once, even if the thread has ended
        self._restart_reason: str | None = None
        self._requests: queue.SimpleQueue[_Request | str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="stops", daemon=True)

    @property
    def restart_reason(self) -> str | None:
        """Why the worker stops in order to restart; None if it does not."""
        return None if self._was_asked else self._restart_reason

    def warm(self) -> None:
        """Ask for a warm stop; a second time, for a cold one. Any thread or signal handler."""
        self._was_asked = True
        self._requests.put(_Request.WARM)

    def cold(self) -> None:
        self._was_asked = True
        self._requests.put(_Request.COLD)

    def restart(self, reason: str) -> None:
        """Ask for a warm stop and a fresh process; a request to stop overrides it."""
        self._requests.put(reason)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Handle what was asked so far, and end the thread. Both events are set from now on."""
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
            self._on_request()


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
        """Restore the earlier handlers. Idempotent."""
        while self._before:
            signal.signal(*self._before.popitem())


class Drain:
    """Ends what is in flight in a worker that consumes no more.

    grace_s: how long running jobs may go on if the worker was asked to stop.
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
        self.has_stuck = False  # a function that cannot be ended: do not wait for it

    def run(self) -> None:
        """Requeue what waits, wait for what runs, and requeue what may run again."""
        is_restart = self._stops.restart_reason is not None
        if is_restart:
            self._log.info("restarts", reason=self._stops.restart_reason)
        try:
            self._consumer_loop.requeue_waiting()
        except LinkError as error:
            self._log.warning("not requeued", reason=str(error))
        if is_restart and not self.has_stuck:
            # A restart is not urgent: it cuts no task off.
            self._in_flight.wait_empty(
                None, unless=lambda: self.has_stuck or self._stops.asked.is_set()
            )
        self._in_flight.wait_empty(self._grace_s, unless=self._stops.abandoned.is_set)
        self._stops.abandoned.set()
        for job in self._in_flight.jobs():
            self._cut_off(job)
        # Completions of what has ended are written just now, once: wait for them.
        self._in_flight.wait_empty(2.0 * self._app.timeout_s, unless=lambda: False)

    def _cut_off(self, job: Job) -> None:
        """End a job that did not end: its message is delivered again, now or at the next start.

        One that was acknowledged before it ran is not: it has begun, once.
        """
        if job.withdraw():  # it could not be requeued: no broker
            self._in_flight.release(job)
        if not job.finish():
            return  # its completion is being written
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
