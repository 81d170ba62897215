"""A pool of processes for cpu_bound functions, which would block every thread."""

from __future__ import annotations

import contextlib
import json
import random
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError, ResultError, WorkerLost
from blimp.processes import Child
from blimp.queue.extras.processes.child import (
    INTERRUPT,
    STEP_ERRORS,
    STOPPING,
    AskSteps,
    Begin,
    Channel,
    Done,
    Frame,
    FromChild,
    Progress,
    Ready,
    Stored,
    without_arguments,
)
from blimp.queue.protocol.embed import called_task
from blimp.queue.retry import Backoff
from blimp.queue.worker.pools import JobThreads
from blimp.queue.worker.shutdown import Wear

if TYPE_CHECKING:
    from blimp.queue.context import TaskContext
    from blimp.queue.interface import App
    from blimp.queue.protocol.record import Outcome
    from blimp.queue.worker.job import Job, Run

START_S = 30.0  # a Pi takes seconds to import an application
WAITS = Backoff(first_s=0.2, cap_s=30.0, full_jitter=False)  # after a child that did not start
CLOSE_S = 1.0
END_S = 1.0  # how long a child may take to end when its channel is closed

# A fresh interpreter that looks for modules where this one does.
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from blimp.queue.extras.processes.child import main
main(int(sys.argv[2]), sys.argv[3:])
"""


class ChildProcess:
    """A fresh interpreter that runs one job at a time. Never a fork: the worker has threads.

    origins: the "module:attribute" of each app whose tasks it may get.
    worn: why another should replace it now, "" if none should.
    Raises OSError if the system has no process or descriptor left for it.

    One thread starts it, waits, calls and ends it: the kernel kills the child when that
    thread ends, kill -9 of the worker included. Any thread may signal it.
    """

    def __init__(self, number: int, origins: Sequence[str], *, wear: Wear) -> None:
        self.number = number
        self.worn = ""
        self._wear = wear
        command = (sys.executable, "-c", _PROGRAM, json.dumps(sys.path))
        ours, theirs = socket.socketpair()
        try:
            self._process = Child(
                name=f"child {number}",
                arguments=[*command, str(number), *origins],
                death_signal=signal.SIGKILL,
                stdin=theirs.fileno(),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._channel = Channel(ours, receives=FromChild)
        self._events = select.poll()  # select takes no descriptor above 1023
        self._events.register(self._channel.fileno(), select.POLLIN)
        self._events.register(self._process.fileno(), select.POLLIN)
        self._lock = threading.Lock()
        self._is_open = True
        self._jobs = 0
        self._job: int | None = 0  # while it starts; None: it waits for work

    def running(self) -> bool:
        return self._is_open and self._process.running()

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until it can run jobs. Raises WorkerLost saying why it cannot."""
        frame = self._receive(until_s=time.monotonic() + timeout_s)
        if not isinstance(frame, Ready):
            raise WorkerLost(f"child {self.number} sent {type(frame).__name__}, not Ready")
        if frame.problem:
            raise WorkerLost(f"child {self.number} cannot start: {frame.problem}")
        with self._lock:
            self._job = None

    def next_job(self) -> int:
        with self._lock:
            self._jobs += 1
            self._job = self._jobs
        return self._jobs

    def call(
        self, begin: Begin, *, on_report: Callable[[Progress | AskSteps], Stored | None]
    ) -> Done:
        """Run a job and return its end. Raises WorkerLost if the child ends before.

        on_report: returns the answer, if the child waits for one.
        """
        try:
            self._send(begin)
            while True:
                frame: FromChild = self._receive(until_s=None)
                if isinstance(frame, Progress | AskSteps):
                    # Else of a thread that an earlier job left behind.
                    if frame.job == begin.job and (answer := on_report(frame)) is not None:
                        self._send(answer)
                    continue
                if isinstance(frame, Ready) or frame.job != begin.job:
                    raise WorkerLost(f"child {self.number} sent {frame!r:.200} in job {begin.job}")
                self.worn = self._wear.count(pid=self.pid) or ""
                return frame
        except WorkerLost:
            self.signal(signal.SIGKILL)  # whatever its state, it gets no further job
            raise
        finally:
            with self._lock:
                self._job = None

    def _send(self, frame: Frame) -> None:
        try:
            self._channel.send(frame)
        except OSError:
            raise WorkerLost(self._last_words()) from None

    def signal(self, number: signal.Signals, *, job: int | None = None) -> None:
        """Send it a signal; if `job` is given, only while it runs that one."""
        with self._lock:
            if self._is_open and job in (None, self._job):
                if number == signal.SIGKILL:
                    self._process.kill_all()
                else:
                    self._process.send(number)

    def tell_stopping(self) -> None:
        """Inform it, if it is ready, that the worker is about to stop."""
        with self._lock:
            if self._is_open and self._job != 0:
                self._process.send(STOPPING)

    def kill_unless_idle(self) -> None:
        """Kill it while it starts or runs a job; one that waits for work ends by itself."""
        with self._lock:
            if self._is_open and self._job is not None:
                self._process.kill_all()

    def end(self) -> None:
        """End it and wait until it has ended. Idempotent."""
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
            self._channel.close()  # the child reads that, and ends
        # Descriptors are closed only here, so that no old number is used for another's.
        self._wait_ended()
        self._process.send(signal.SIGKILL)
        self._process.end(within_s=END_S)

    def _receive(self, *, until_s: float | None) -> Any:
        """Return the next frame. Raises WorkerLost if none comes: it ended, or is too late."""
        left_ms = None if until_s is None else max(0.0, until_s - time.monotonic()) * 1000.0
        ready = {number for number, _ in self._events.poll(left_ms)}
        if not ready:
            raise WorkerLost(f"child {self.number}, process {self.pid}, does not start in time")
        # A process that it forked may keep the channel open: its own end decides.
        if self._channel.fileno() not in ready:
            raise WorkerLost(self._last_words())
        try:
            frame = self._channel.receive()
        except ValueError as error:
            raise WorkerLost(f"child {self.number} sent an unreadable frame: {error}") from error
        except (EOFError, TimeoutError):
            raise WorkerLost(self._last_words()) from None
        if frame.child != self.number:
            raise WorkerLost(f"child {self.number} has the number {frame.child}")
        return frame

    def _last_words(self) -> str:
        self._wait_ended()
        self._process.kill_all()  # what it has started, while its number is its own
        status = self._process.exit_status()
        how = "closed its channel"
        if status is not None:
            how = f"ended with status {status}"
            if status < 0:
                how = f"was killed by {signal.Signals(-status).name}"
        return f"its process {self.pid} {how}"

    def _wait_ended(self) -> None:
        """Wait a moment for a process that is about to end."""
        end = select.poll()
        end.register(self._process.fileno(), select.POLLIN)
        end.poll(END_S * 1000.0)


class ProcessPool(JobThreads):
    """Up to `size` children, each with a thread of its own, started when there is work.

    A thread waits for its child alone, so a child that dies, hangs or does not start costs only
    its own job. Middleware, results and acknowledgements stay in the worker.

    origins: where a child finds each task, by its name.
    max_tasks, max_memory_mb: of one child, which is replaced between two jobs.
    start_s: how long a child may take to be ready; then it is killed and another started.
    """

    def __init__(
        self,
        *,
        run: Run,
        size: int,
        context: Context,
        origins: Mapping[str, str],
        max_tasks: int | None = None,
        max_memory_mb: float | None = None,
        start_s: float = START_S,
        log: Any,
    ) -> None:
        super().__init__(run=run, work=self._serve, name="child", context=context)
        self._origins = origins
        self._max_tasks = max_tasks
        self._max_memory_mb = max_memory_mb
        self._start_s = start_s
        self._log = log
        self._chance = random.Random()
        self._begun = 0
        self._guard = threading.Lock()  # of the children
        self._children: set[ChildProcess] = set()
        self._stopping = False
        self._closing = threading.Event()
        self.resize(size)

    def pids(self) -> list[int]:
        """Return the pids of its processes."""
        return [child.pid for child in self._all()]

    def tell_stopping(self) -> None:
        """Inform the tasks that the worker is about to stop."""
        self._stopping = True
        for child in self._all():
            child.tell_stopping()

    def close(self) -> None:
        self._closing.set()
        super().close()
        for child in self._all():
            child.kill_unless_idle()
        self.join(CLOSE_S)

    def _all(self) -> list[ChildProcess]:
        with self._guard:
            return list(self._children)

    # --- one thread and its child ------------------------------------------------------------

    def _serve(self) -> None:
        child: ChildProcess | None = None
        try:
            for job in self.jobs():
                child = self._ready(child)
                if child is None:
                    return
                origin = self._origins.get(called_task(job.task.name, job.message.kwargs), "")
                job.call = ChildCall(child=child, origin=origin)
                self.drive(job)
                if child.worn:
                    self._log.info("child replaced", child=child.number, reason=child.worn)
                    self._end(child)
                    child = self._ready(None)
        finally:
            self._end(child)

    def _ready(self, child: ChildProcess | None) -> ChildProcess | None:
        """Return a child that can run a job, `child` if it still can; None after `close`."""
        if child is not None and child.running():
            return child
        failures = 0
        while not self._closing.is_set():
            self._end(child)
            child = None
            try:
                child = self._begin()
                child.wait_ready(self._start_s)
            except (WorkerLost, OSError) as error:  # no descriptor or process is left at the moment
                if child is not None:
                    child.signal(signal.SIGKILL)
                if not self._closing.is_set():
                    wait_s = WAITS.delay_s(failures, chance=self._chance)
                    failures += 1
                    self._log.error(
                        "child does not start", reason=str(error), again_in_s=round(wait_s, 3)
                    )
                    self._closing.wait(wait_s)
            else:
                if self._stopping:
                    child.tell_stopping()
                return child
        self._end(child)
        return None

    def _begin(self) -> ChildProcess:
        with self._guard:
            self._begun += 1
            number = self._begun
        child = ChildProcess(
            number,
            tuple(dict.fromkeys(self._origins.values())),
            wear=Wear(max_tasks=self._max_tasks, max_memory_mb=self._max_memory_mb),
        )
        with self._guard:
            self._children.add(child)
        if self._closing.is_set():
            child.signal(signal.SIGKILL)
        return child

    def _end(self, child: ChildProcess | None) -> None:
        if child is not None:
            child.end()
            with self._guard:
                self._children.discard(child)


class ChildCall:
    """A function that runs in a child. To end it is to kill the child."""

    def __init__(self, *, child: ChildProcess, origin: str) -> None:
        self._child = child
        self._origin = origin
        self._number: int | None = None
        self._is_cancelled = False

    async def run(
        self,
        job: Job,
        arguments: Sequence[Any],
        *,
        interruptible: bool,  # noqa: ARG002 - a child always is
    ) -> Outcome:
        app = job.task.app
        context: TaskContext | None = arguments[0] if job.task.options.bind else None
        self._number = self._child.next_job()
        if self._is_cancelled:
            raise WorkerLost("it was cancelled before it began")
        message, sent_arguments = without_arguments(job.message)
        begin = Begin(
            child=self._child.number,
            job=self._number,
            origin=self._origin,
            message=message,
            arguments=sent_arguments,
            limit_bytes=app.limit_bytes,
            worker=context.worker if context is not None else "",
            previous=job.previous,
            broker_now_s=_broker_now_s(app) if context is not None else None,
            extension=app.child_extension,
            grant=job.grant.as_dict() if job.grant is not None else None,
        )
        return self._child.call(begin, on_report=partial(_report, context)).outcome

    def interrupt(self) -> None:
        if self._number is not None:
            self._child.signal(INTERRUPT, job=self._number)

    def cancel(self) -> bool:
        self._is_cancelled = True
        if self._number is not None:
            self._child.signal(signal.SIGKILL, job=self._number)
        return True


def _report(context: TaskContext | None, report: Progress | AskSteps) -> Stored | None:
    if context is None:
        return None  # a task that is not bound has nothing to report by
    if isinstance(report, Progress):
        with contextlib.suppress(ResultError):  # too long to be written; the task goes on
            context.progress(report.fraction, **report.details)
        return None
    assert context._steps.ask is not None
    one = (report.name, report.result) if report.name else ()
    try:
        return Stored(child=report.child, results=context._steps.ask(*one))
    except tuple(STEP_ERRORS.values()) as error:
        kind = next(name for name, one in STEP_ERRORS.items() if isinstance(error, one))
        return Stored(child=report.child, error=(kind, str(error)))


def _broker_now_s(app: App) -> float | None:
    try:
        return app.broker_clock.now_s()
    except LinkError:
        return None
