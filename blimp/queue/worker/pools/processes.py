"""A pool of processes for cpu_bound functions, which would block every thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError, ResultError, WorkerLost
from blimp.queue.protocol.embed import called_task
from blimp.queue.retry import Backoff
from blimp.queue.worker.pools.child import (
    Begin,
    ChildProcess,
    Interrupt,
    Progress,
    Setup,
    Stopping,
    without_arguments,
)
from blimp.queue.worker.pools.threads import JobThreads, drive

if TYPE_CHECKING:
    from blimp.queue.context import TaskContext
    from blimp.queue.protocol.record import Outcome
    from blimp.queue.worker.job import Job, Run

START_S = 30.0  # a Pi takes seconds to import an application
WAITS = Backoff(first_s=0.2, cap_s=30.0, full_jitter=False)  # after a child that did not start
CLOSE_S = 1.0


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
        origins: Mapping[str, str],
        max_tasks: int | None = None,
        max_memory_mb: float | None = None,
        start_s: float = START_S,
        log: Any,
    ) -> None:
        super().__init__(work=self._serve, name="child")
        self._run = run
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
        with self._guard:
            return [child.pid for child in self._children]

    def tell_stopping(self) -> None:
        """Inform the tasks that the worker is about to stop."""
        with self._guard:
            self._stopping = True
            children = list(self._children)
        for child in children:
            child.send_control(Stopping(child=child.number))

    def close(self) -> None:
        self._closing.set()
        super().close()
        with self._guard:
            children = list(self._children)
        for child in children:
            child.kill_unless_idle()
        self.join(CLOSE_S)

    # --- one thread and its child ------------------------------------------------------------

    def _serve(self) -> None:
        child: ChildProcess | None = None
        try:
            while (job := self.next()) is not None:
                child = self._ready(child)
                if child is None:
                    return
                origin = self._origins.get(called_task(job.task.name, job.message.kwargs), "")
                call = ChildCall(job=job, child=child, origin=origin)
                job.call = call
                drive(self._run(job))
                if call.worn:
                    self._log.info("child replaced", child=child.number, reason=call.worn)
                    self._end(child)
                    child = self._ready(None)
        finally:
            if child is not None:
                self._end(child)

    def _ready(self, child: ChildProcess | None) -> ChildProcess | None:
        """Return a child that can run a job, `child` if it still can; None after `close`."""
        failures = 0
        while not self._closing.is_set():
            if child is not None:
                if child.running():
                    return child
                self._end(child)
                child = None
            try:
                child = self._begin()
                child.wait_ready(self._start_s)
                return child
            except (WorkerLost, OSError) as error:  # no descriptor or process is left at the moment
                if child is not None:
                    self._end(child, kill=True)
                    child = None
                if not self._closing.is_set():
                    wait_s = WAITS.delay_s(failures, chance=self._chance)
                    failures += 1
                    self._log.error(
                        "child does not start", reason=str(error), again_in_s=round(wait_s, 3)
                    )
                    self._closing.wait(wait_s)
        if child is not None:
            self._end(child)
        return None

    def _begin(self) -> ChildProcess:
        with self._guard:
            self._begun += 1
            number = self._begun
        child = ChildProcess(
            Setup(
                child=number,
                origins=tuple(dict.fromkeys(self._origins.values())),
                max_tasks=self._max_tasks,
                max_memory_mb=self._max_memory_mb,
            )
        )
        with self._guard:
            self._children.add(child)
            stopping = self._stopping
        if stopping:
            child.send_control(Stopping(child=child.number))
        if self._closing.is_set():
            child.kill()
        return child

    def _end(self, child: ChildProcess, *, kill: bool = False) -> None:
        if kill:
            child.kill()
        child.end()
        with self._guard:
            self._children.discard(child)


class ChildCall:
    """A function that runs in a child. To end it is to kill the child."""

    def __init__(self, *, job: Job, child: ChildProcess, origin: str) -> None:
        self._job = job
        self._child = child
        self._origin = origin
        self._number: int | None = None
        self._cancelled = False
        self.worn = ""

    async def run(
        self,
        arguments: Sequence[Any],
        *,
        interruptible: bool,  # noqa: ARG002 - a child always is
    ) -> Outcome:
        context: TaskContext | None = arguments[0] if self._job.task.options.bind else None
        app = self._job.task.app
        self._number = self._child.next_job()
        if self._cancelled:
            raise WorkerLost("it was cancelled before it began")
        message, sent_arguments = without_arguments(self._job.message)
        done = self._child.call(
            Begin(
                child=self._child.number,
                job=self._number,
                origin=self._origin,
                message=message,
                arguments=sent_arguments,
                limit_bytes=app.limit_bytes,
                worker=context.worker if context is not None else "",
                previous=self._job.previous,
                broker_now_s=self._broker_now_s() if context is not None else None,
                extension=app.child_extension,
                grant=self._job.grant.as_dict() if self._job.grant is not None else None,
            ),
            on_progress=lambda progress: self._tell_progress(context, progress),
        )
        self.worn = done.worn
        return done.outcome

    @property
    def pid(self) -> int:
        return self._child.pid

    def interrupt(self) -> None:
        if self._number is not None:
            self._child.send_control(Interrupt(child=self._child.number, job=self._number))

    def cancel(self) -> bool:
        self._cancelled = True
        if self._number is not None:
            self._child.kill(job=self._number)
        return True

    def _tell_progress(self, context: TaskContext | None, progress: Progress) -> None:
        if context is not None:
            try:
                context.progress(progress.fraction, **progress.details)
            except ResultError:
                return  # too long to be written; the task goes on

    def _broker_now_s(self) -> float | None:
        try:
            return self._job.task.app.broker_clock.now_s()
        except LinkError:
            return None
