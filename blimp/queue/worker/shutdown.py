"""How a worker stops, drains what is in flight, and restarts as a fresh process."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from blimp.errors import LinkError
from blimp.queue.worker.job import Place
from blimp.queue.worker.middleware import clear_begun

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
    has_stuck: a function runs that cannot be ended: nobody waits for it.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.abandoned = threading.Event()
        self.asked = threading.Event()
        self.has_stuck = False
        self._was_asked = False  # known at once, even if the thread has ended
        self._restart_reason: str | None = None
        self._requests: queue.SimpleQueue[_Request | str] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

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

    def start(self, *, on_request: Callable[[], None]) -> None:
        """Handle requests from now on, those made before too. on_request: called after each."""
        self._thread = threading.Thread(
            target=self._serve, args=(on_request,), name="stops", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Handle what was asked so far, and end the thread. Both events are set from now on."""
        self.abandoned.set()
        self.stopping.set()
        self._requests.put(_Request.END)
        if self._thread is not None:
            self._thread.join()

    def _serve(self, on_request: Callable[[], None]) -> None:
        while (request := self._requests.get()) is not _Request.END:
            if isinstance(request, str):
                self._restart_reason = self._restart_reason or request
            else:
                if request is _Request.COLD or self.asked.is_set():
                    self.abandoned.set()
                self.asked.set()
            self.stopping.set()
            on_request()


class StopSignals:
    """SIGTERM and SIGINT ask for a warm stop, SIGQUIT for a cold one."""

    def __init__(self, stops: Stops) -> None:
        self._stops = stops
        self._before: dict[signal.Signals, Any] = {}

    def take(self) -> bool:
        """Receive the signals; return False in a thread that cannot."""
        if threading.current_thread() is not threading.main_thread():
            return False
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, lambda *_: self._stops.warm())
        self._before[signal.SIGQUIT] = signal.signal(signal.SIGQUIT, lambda *_: self._stops.cold())
        let_stop_signals_in()
        return True

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

    def run(self) -> None:
        """Requeue what waits, wait for what runs, and requeue what may run again."""
        is_restart = self._stops.restart_reason is not None
        if is_restart:
            self._log.info("restarts", reason=self._stops.restart_reason)
        try:
            self._consumer_loop.requeue_waiting()
        except LinkError as error:
            self._log.warning("not requeued", reason=str(error))
        if is_restart and not self._stops.has_stuck:
            # A restart is not urgent: it cuts no task off.
            self._in_flight.wait_empty(
                None, unless=lambda: self._stops.has_stuck or self._stops.asked.is_set()
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
                if job.task.options.begins_once:
                    clear_begun(self._app, job.message)
                job.delivery.requeue()
        except LinkError:
            return  # it stays unacknowledged, and is restored when this name starts again
        finally:
            self._in_flight.release(job)


MEGABYTE = 1_000_000
NOTED = "BLIMP_STOPS_NOTED"  # the descriptor that a restarted process reads stop signals from
STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT})

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How this process was started: `again` starts the same in its place."""

    command: tuple[str, ...]
    directory: str

    @classmethod
    def of_this_process(cls) -> Self:
        return cls(command=(sys.executable, *sys.orig_argv[1:]), directory=os.getcwd())

    def again(self, *, unless: Callable[[], bool]) -> None:
        """Become a fresh process of the same command line, with the same pid.

        unless: asked when no handler receives a stop signal any more; True has it return
        instead. A later stop signal waits until it is unblocked; if another thread still gets
        it, it is noted for the new process. Nothing may be under way: every thread ends here,
        and every descriptor that is not inherited is closed. Main thread only.
        """
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        noted, note = os.pipe()
        os.set_inheritable(noted, True)
        for end in (noted, note):
            os.set_blocking(end, False)
        # Written to by the thread that gets the signal; a handler would run too late.
        number_before = signal.set_wakeup_fd(note, warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, lambda *_: None) for number in STOP_SIGNALS}
        try:
            if not unless():
                sys.stdout.flush()
                sys.stderr.flush()
                os.chdir(self.directory)
                os.execve(self.command[0], self.command, {**os.environ, NOTED: str(noted)})
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(number_before)
            for end in (noted, note):
                os.close(end)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Wear:
    """Counts the tasks of one process; says when it has run too many, or grown too large.

    max_tasks, max_memory_mb: None for no limit; memory is what is resident, in 10^6 bytes.
    """

    def __init__(self, *, max_tasks: int | None, max_memory_mb: float | None) -> None:
        self._max_tasks = max_tasks
        self._max_memory_mb = max_memory_mb
        self._lock = threading.Lock()
        self._tasks = 0

    def count(self, tasks: int = 1, *, pid: int | None = None) -> str | None:
        """Count tasks that have ended; return why the process should be replaced, or None.

        pid: the process; None is this one.
        """
        with self._lock:
            self._tasks += tasks
            tasks = self._tasks
        if self._max_tasks is not None and tasks >= self._max_tasks:
            return f"{tasks} tasks were run, the limit is {self._max_tasks}"
        if self._max_memory_mb is not None:
            memory_mb = resident_bytes(pid) / MEGABYTE
            if memory_mb > self._max_memory_mb:
                return f"{memory_mb:.0f} MB are in use, the limit is {self._max_memory_mb:g}"
        return None


class Ended:
    """Lets go of jobs that are no longer in flight; a process that is worn restarts then."""

    def __init__(
        self,
        *,
        in_flight: InFlight,
        stops: Stops,
        wear: Wear,
        counts: Counter[str],
        ended: Counter[tuple[str, str]],
    ) -> None:
        self._in_flight = in_flight
        self._stops = stops
        self._wear = wear
        self._counts = counts
        self._ended = ended
        self._counting = threading.Lock()

    def __call__(self, *jobs: Job) -> None:
        """Any thread."""
        with self._counting:
            self._counts["done"] += len(jobs)
            for job in jobs:
                if job.outcome is not None:  # else it is delivered again
                    self._ended[job.message.task, job.outcome.state.value] += 1
        self._in_flight.release(*jobs)
        own = sum(job.place is not Place.PROCESS for job in jobs)
        reason = self._wear.count(own) if own else None
        if reason is not None and not self._stops.stopping.is_set():
            self._stops.restart(reason)


def let_stop_signals_in() -> None:
    """Receive the stop signals that waited, or were noted, while this process restarted."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    noted = os.environ.pop(NOTED, None)
    if noted is None:
        return
    numbers = b""
    with contextlib.suppress(OSError, ValueError):
        numbers = os.read(int(noted), 4096)
        os.close(int(noted))
    for number in set(numbers) & STOP_SIGNALS:
        signal.raise_signal(number)


def resident_bytes(pid: int | None = None) -> int:
    """Return the resident memory of a process (proc(5), statm), by default this one's.

    It is 0 if the process has ended.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return int(Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0
