"""The worker: consumes messages, runs them in its pools, and stops in order.

The main thread owns the consumer. Pools run the jobs; the acker's thread stores results and
acknowledges, on a connection of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import socket
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import msgspec
from kombu.clocks import LamportClock

from blimp.queue.extensions import EVENTS, Extension, Observers, load, observes
from blimp.queue.worker.acker import Acker
from blimp.queue.worker.boot import Boot, check_tasks, locate_all, missing_guarantees
from blimp.queue.worker.completions import Completions, timed_out
from blimp.queue.worker.consumer_loop import ConsumerLoop
from blimp.queue.worker.heartbeat import PERIOD_S, QUIET_PERIOD_S, Heartbeat, NameLock
from blimp.queue.worker.in_flight import LEAST, MOST, InFlight
from blimp.queue.worker.job import Job, Place, Stage
from blimp.queue.worker.pools import Sizes, WorkerPools
from blimp.queue.worker.runner import Runner
from blimp.queue.worker.shutdown import Drain, Launch, Stops, StopSignals, Wear
from blimp.queue.worker.time_limits import Alarms, Limits

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.extensions import ExtensionFactory

E = TypeVar("E", bound=Extension)


class WorkerKeywords(TypedDict, total=False):
    """The keywords of `Worker`; see WorkerSettings."""

    name: str | None
    queues: Sequence[str]
    loop_workers: int
    loop_concurrency: int
    sync_workers: int
    process_workers: int | None
    prefetch: int | None
    max_tasks: int | None
    max_memory_mb: float | None
    grace_s: float
    app_path: str | None


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much a worker runs, and what of.

    name: unique among the app's live workers. A worker that restarts under the name of a killed
        one gets back what that had not acknowledged. queues: by default the app's own.
    sync_workers: threads for plain tasks. loop_workers: threads with an asyncio loop each,
        running `loop_concurrency` `async def` tasks at once.
    process_workers: child processes for cpu_bound tasks; by default the cores but one. They
        start with the first such task.
    app_path: where a child finds the app, "module:attribute"; by default where its tasks are.
    prefetch: messages in flight at once for each kind of pool that its tasks need; the rest
        stay with the broker, for other workers. None: as many as run at once, or what
        AdaptivePrefetch says, if that is more.
    max_tasks, max_memory_mb: after so many tasks, or above so much memory, it stops as in a
        warm stop, waits for what runs, and restarts. A child is replaced at the same limits,
        and its tasks do not count for the worker.
    grace_s: how long a warm stop waits for what runs.
    """

    name: str | None = None
    queues: Sequence[str] = ()
    loop_workers: int = 1
    loop_concurrency: int = 16
    sync_workers: int = 8
    process_workers: int | None = None
    prefetch: int | None = None
    max_tasks: int | None = None
    max_memory_mb: float | None = None
    grace_s: float = 10.0
    app_path: str | None = None


class Worker:
    """Runs the tasks of one app until stopped.

    keywords: see WorkerSettings.
    launch: how this process restarts. Without it `run` returns, with `restart_reason` set.
    on_ready: called once, when it consumes for the first time.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        launch: Launch | None = None,
        on_ready: Callable[[], None] = lambda: None,
        log: Any = None,
        **keywords: Unpack[WorkerKeywords],
    ) -> None:
        self.app = app
        self.settings = settings = WorkerSettings(**keywords)
        self._launch = launch
        self.name = settings.name or f"{app.name}@{socket.gethostname()}"
        self.counts: Counter[str] = Counter()
        self.ready = threading.Event()
        self._on_ready = on_ready
        self.log = log or app.make_log(level=app.log_level, worker=self.name)
        self._exit_status = 0
        self._counting = threading.Lock()
        self._owns_process = False
        self._wear = Wear(max_tasks=settings.max_tasks, max_memory_mb=settings.max_memory_mb)
        self._stops = Stops(on_request=self._stop_requested)
        self._own_name: NameLock | None = None  # None: no message depends on the name
        if app.capabilities.exclusive_names:
            self._own_name = NameLock(link=app.broker_link, app=app.name, worker=self.name)
        self.in_flight = InFlight(
            clock=app.clock,
            prefetch=settings.prefetch,
            stopping=self._stops.stopping,
            slots=lambda place: self.pools.sizes.slots(place),
            most=MOST if app.capabilities.local_prefetch else LEAST,  # a change costs a round trip
        )
        self._alarms = Alarms(clock=app.clock, log=self.log)
        self.observers = Observers(log=self.log)
        self.logical_clock = LamportClock()  # of all that the worker says
        self.beat_s = PERIOD_S if app.link_watchers else QUIET_PERIOD_S
        self.consumer_loop = ConsumerLoop(
            app=app,
            worker=self.name,
            queues=tuple(dict.fromkeys(settings.queues)) or (app.queue,),
            in_flight=self.in_flight,
            submit=lambda job: self.pools.submit(job),
            on_consuming=self._consuming,
            stopping=self._stops.stopping,
            counts=self.counts,
            observers=self.observers,
            log=self.log,
        )
        self._acker = Acker(
            app=app,
            consumer=self.consumer_loop.consumer,
            abandoned=self._stops.abandoned,
            on_done=self._done,
            on_ran=self.in_flight.ran,
            observers=self.observers,
            log=self.log,
        )
        self.runner = Runner(
            completions=Completions(app=app, worker=self.name, log=self.log),
            app=app,
            worker=self.name,
            stopping=self._stops.stopping,
            abandoned=self._stops.abandoned,
            on_done=self._done,
            acker=self._acker,
            limits=Limits(alarms=self._alarms, on_stuck=self._give_up),
            observers=self.observers,
            log=self.log,
        )
        self._drain = Drain(
            app=app,
            consumer_loop=self.consumer_loop,
            in_flight=self.in_flight,
            stops=self._stops,
            counts=self.counts,
            grace_s=settings.grace_s,
            log=self.log,
        )
        self.pools = WorkerPools(
            run=self.runner.run,
            sizes=Sizes(
                loop_workers=settings.loop_workers,
                loop_concurrency=settings.loop_concurrency,
                sync_workers=settings.sync_workers,
                process_workers=settings.process_workers or max(1, (os.cpu_count() or 1) - 1),
            ),
            origins=locate_all(app, app_path=settings.app_path),
            max_tasks=settings.max_tasks,
            max_memory_mb=settings.max_memory_mb,
            log=self.log,
        )
        self._boot = Boot(
            steps=app.boot_steps,
            worker=self,
            call=self.pools.call,
            stop_s=settings.grace_s,
            log=self.log,
        )
        self.extensions: list[Extension] = []
        self._plugging = threading.Lock()
        self._idle = () if app.events else (EVENTS,)
        for factory in (*app.extensions, *((EVENTS,) if app.events else ())):
            self._plug_in(factory)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that the worker consumes now; remote control may change them."""
        return self.consumer_loop.queues

    @property
    def restart_reason(self) -> str | None:
        """Why a fresh process should replace this one; None if it should not."""
        return self._stops.restart_reason

    @property
    def sizes(self) -> Sizes:
        """How many tasks run at once, by pool."""
        return self.pools.sizes

    def _plug_in(self, factory: ExtensionFactory | str) -> None:
        extension = load(factory)(self)
        self.extensions.append(extension)
        if observes(extension):
            self.observers.add(extension)

    def load_idle(self) -> None:
        """Load the extensions that nothing has used yet: most workers need none. Any thread."""
        with self._plugging:
            while self._idle:
                self._plug_in(self._idle[0])
                self._idle = self._idle[1:]

    def extension(self, kind: type[E]) -> E:
        """Return the worker's extension of type `kind`. Raises LookupError if it has none."""
        self.load_idle()
        for extension in self.extensions:
            if isinstance(extension, kind):
                return extension
        raise LookupError(f"worker {self.name!r} has no {kind.__name__}")

    def jobs(self) -> list[Job]:
        """Return what is in flight now. Any thread."""
        return self.in_flight.jobs()

    def run(self) -> int:
        """Consume until stopped; return the exit status. Takes SIGTERM, SIGINT and SIGQUIT.

        The first asks for a warm stop: what waits is requeued at once, what runs may end. A
        second one, or SIGQUIT, asks for a cold stop. Call `run` once.
        Raises StepFailed if a boot step does not start.
        """
        check_tasks(self.app)
        missing = missing_guarantees(self.app)
        if missing is not None:
            self.log.warning(missing)
        if sysconfig.get_config_var("Py_GIL_DISABLED"):  # any other build has its lock
            from blimp.queue.worker import interpreter

            interpreter.warn(self.log)
        upkeep = () if self.app.results is None else self.app.results.start(log=self.log)
        self.in_flight.expect(self.app.tasks.values())
        signals = StopSignals(self._stops)
        with contextlib.ExitStack() as ends:
            ends.callback(signals.put_back)
            self._owns_process = signals.take()
            if self._owns_process:
                ends.enter_context(lean_memory())
            self._serve(upkeep)
            self.log.info("stopped", **self.counts)
            # Checked last, with the signal handlers in place: a stop overrides a restart.
            if self._launch is not None and self.restart_reason is not None:
                self._launch.again(unless=lambda: self.restart_reason is None)
        return self._exit_status

    def _serve(self, upkeep: Sequence[Callable[[bool], None]]) -> None:
        """Consume until stopped, and drain."""
        self.pools.start()  # after the signals are unblocked: threads inherit the mask
        heartbeat = Heartbeat(
            beat=self.consumer_loop.probe if self._own_name is None else self._own_name.take,
            watchers=(
                *self.app.link_watchers,
                *(extension.beat for extension in self.extensions),
                *upkeep,
            ),
            on_lost_name=self._lose_name,
            stopping=self._stops.stopping,
            wake=self.consumer_loop.wake,
            log=self.log,
            period_s=self.beat_s,
        )
        try:
            self._stops.start()
            if self._own_name is not None:
                self._own_name.wait(
                    clock=self.app.clock,
                    outage=self.app.outage("no broker", log=self.log, ends=True),
                    stopping=self._stops.stopping,
                )
            heartbeat.start()
            for extension in self.extensions:
                extension.starting()
            self._boot.start()
            self.consumer_loop.run()
            self._drain.run()
        finally:
            self._stops.close()
            heartbeat.close()
            self._each("stopping")
            self._alarms.close()
            self._boot.stop()
            self.pools.close()
            self._acker.close()
            self._each("stopped")
            self.consumer_loop.close()
            if self._own_name is not None:
                self._own_name.leave()

    def stop(self) -> None:
        """Ask for a warm stop; a second call for a cold one. Any thread or signal handler."""
        self._stops.warm()

    def stop_cold(self) -> None:
        """Ask for a cold stop: what runs is cut off, and delivered again."""
        self._stops.cold()

    # --- one job ---------------------------------------------------------------------------

    def _done(self, *jobs: Job) -> None:
        """Called in any thread: the jobs are no longer in flight."""
        with self._counting:
            self.counts["done"] += len(jobs)
        self.in_flight.release(*jobs)
        own = sum(job.place is not Place.PROCESS for job in jobs)
        reason = self._wear.count(own) if own else None
        if reason is not None and not self._stops.stopping.is_set():
            self._stops.restart(reason)

    def _give_up(self, job: Job) -> None:
        """End a job whose function cannot be ended, and restart the process."""
        # Not in the alarms' thread: the broker may be slow.
        threading.Thread(target=self._end_stuck, args=(job,), name="give-up", daemon=True).start()

    def _end_stuck(self, job: Job) -> None:
        if job.stage is Stage.DONE:
            return  # its function has ended by itself
        assert job.timed_out_s is not None
        self.log.error("stuck", task=job.task.name, id=job.message.id, limit_s=job.timed_out_s)
        self._drain.has_stuck = True
        self.runner.conclude(job, timed_out(job.timed_out_s, task=job.task))
        self._stops.restart(
            f"{job.task.name} is stuck past its time limit of {job.timed_out_s:g} s"
        )

    # --- start -----------------------------------------------------------------------------

    def _consuming(self) -> None:
        for extension in self.extensions:
            extension.consuming()
        self.log.info("consuming", queues=",".join(self.queues), tasks=len(self.app.tasks))
        if not self.ready.is_set():
            if self._owns_process:
                freeze_memory()
            self.ready.set()
            self._on_ready()

    def _each(self, hook: str) -> None:
        """Call a closing hook of every extension: one that fails keeps no other from closing."""
        for extension in self.extensions:
            try:
                getattr(extension, hook)()
            except Exception:
                self.log.exception("extension", hook=hook, of=type(extension).__name__)

    # --- end -------------------------------------------------------------------------------

    def _stop_requested(self) -> None:
        self._boot.cancel()
        self.pools.tell_stopping()
        self.in_flight.nudge()

    def _lose_name(self, reason: str) -> None:
        self.log.error("name lost", reason=reason)
        self._exit_status = 1
        self.stop()


# --- memory of the process -----------------------------------------------------------------------

# A backlog's messages are alive for milliseconds. Python's default of 700 objects walks through
# all of them each time: a fifth of a short task's cost.
GC_THRESHOLD = 50_000
_M_ARENA_MAX = -8  # malloc.h


@contextlib.contextmanager
def lean_memory() -> Iterator[None]:
    """Set up Python's collector for the block, and one heap for all threads, as one lock has them.

    Without the interpreter lock threads would wait for each other at one heap. Python cannot set
    the number of heaps back.
    """
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, 10, 10)
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        with contextlib.suppress(AttributeError, OSError):  # of glibc only
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def freeze_memory() -> None:
    """Never look again through modules and app, which live as long as the process."""
    gc.collect()
    gc.freeze()
    with contextlib.suppress(AttributeError, OSError):  # of glibc only
        ctypes.CDLL(None).malloc_trim(0)  # what importing needed
