"""The worker. Read this file first: it names every part, in the order in which it is made.

A message's way through it, and the file that has each step:

    receive      consumer_loop.py   the main thread takes it from the broker, as far as in_flight.py
                                    has room
    check        decode.py          it is genuine, readable, and of a task that is known here
    run          pools.py           a thread, loop (loops.py) or child process takes it
                 runner.py          and passes it through middleware.py into the function
    complete     completions.py     the outcome becomes a result, and the messages that follow it
    acknowledge  acker.py           the broker writes all of it and drops the message, in one step

job.py is the message on its way, and what ends one that takes too long. Beside it: boot.py, what
comes before the first message; shutdown.py, how it stops; heartbeat.py, that it lives.
"""

from __future__ import annotations

import contextlib
import socket
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from kombu.clocks import LamportClock

from blimp.queue.extensions import Extension, Observers, Plugged
from blimp.queue.neighbours import neighbour
from blimp.queue.settings import WorkerKeywords, WorkerSettings
from blimp.queue.worker.acker import Acker
from blimp.queue.worker.aside import AsideRule
from blimp.queue.worker.boot import (
    Boot,
    check_tasks,
    freeze_memory,
    lean_memory,
    locate_all,
    missing_guarantees,
)
from blimp.queue.worker.completions import Completions
from blimp.queue.worker.consumer_loop import ConsumerLoop
from blimp.queue.worker.heartbeat import PERIOD_S, QUIET_PERIOD_S, Heartbeat, NameLock
from blimp.queue.worker.in_flight import LEAST, MOST, InFlight
from blimp.queue.worker.job import Alarms, Limits
from blimp.queue.worker.pools import Sizes, WorkerPools
from blimp.queue.worker.runner import Runner
from blimp.queue.worker.shutdown import Drain, Ended, Launch, Stops, StopSignals, Wear

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.worker.job import Job

E = TypeVar("E", bound=Extension)


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
        self.name = settings.name or f"{app.name}@{socket.gethostname()}"
        self.log = log or app.make_log(level=app.log_level, worker=self.name)
        self.counts: Counter[str] = Counter()
        self.ended: Counter[tuple[str, str]] = Counter()  # by task and state
        self.ready = threading.Event()
        self.logical_clock = LamportClock()  # of all that the worker says
        self.beat_s = PERIOD_S if app.link_watchers else QUIET_PERIOD_S
        self.observers = Observers(log=self.log)
        self._launch = launch
        self._on_ready = on_ready
        self._exit_status = 0
        self._owns_process = False
        self._own_name: NameLock | None = None  # None: no message depends on the name
        if app.capabilities.exclusive_names:
            self._own_name = NameLock(app=app, worker=self.name, queues=lambda: self.queues)
        # How it stops, and what it has in flight.
        self._stops = Stops()
        self.sizes = Sizes.of(settings)
        self.in_flight = InFlight(
            clock=app.clock,
            prefetch=settings.prefetch,
            stopping=self._stops.stopping,
            slots=self.sizes.slots,
            most=MOST if app.capabilities.local_prefetch else LEAST,  # a change costs a round trip
        )
        ended = Ended(
            in_flight=self.in_flight,
            stops=self._stops,
            wear=Wear(max_tasks=settings.max_tasks, max_memory_mb=settings.max_memory_mb),
            counts=self.counts,
            ended=self.ended,
        )
        # Receive and check.
        aside = AsideRule(app=app, counts=self.counts, log=self.log)
        self.consumer_loop = ConsumerLoop(
            app=app,
            worker=self.name,
            queues=tuple(dict.fromkeys(settings.queues)) or (app.queue,),
            in_flight=self.in_flight,
            aside=aside,
            stopping=self._stops.stopping,
            counts=self.counts,
            observers=self.observers,
            log=self.log,
        )
        # Acknowledge.
        self._acker = Acker(
            app=app,
            consumer=self.consumer_loop.consumer,
            abandoned=self._stops.abandoned,
            on_done=ended,
            on_ran=self.in_flight.ran,
            observers=self.observers,
            log=self.log,
        )
        # Run and complete.
        self._alarms = Alarms(clock=app.clock, log=self.log)
        self.runner = Runner(
            completions=Completions(app=app, worker=self.name, log=self.log),
            aside=aside,
            app=app,
            worker=self.name,
            stops=self._stops,
            on_done=ended,
            acker=self._acker,
            limits=Limits(alarms=self._alarms),
            observers=self.observers,
            log=self.log,
        )
        self.pools = WorkerPools(
            run=self.runner.run,
            sizes=self.sizes,
            origins=locate_all(app, app_path=settings.app_path),
            max_tasks=settings.max_tasks,
            max_memory_mb=settings.max_memory_mb,
            alarms=self._alarms,
            log=self.log,
        )
        # Before the first message, and after the last.
        self._boot = Boot(
            steps=app.boot_steps,
            worker=self,
            call=self.pools.call,
            stop_s=settings.grace_s,
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
        # What others add.
        self.extensions = Plugged(observers=self.observers, log=self.log)
        self.extensions.plug_in(self, app.extensions)
        self._plugging = threading.Lock()
        self._idle: tuple[str, ...] = ("events",)
        if app.events:
            self.load_idle()

    # --- start, serve, stop -------------------------------------------------------------------

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
        signals = StopSignals(self._stops)
        with contextlib.ExitStack() as ends:
            ends.callback(signals.put_back)
            self._owns_process = signals.take()
            if self._owns_process:
                ends.enter_context(lean_memory())
            self._serve()
            self.log.info("stopped", **self.counts)
            # Checked last, with the signal handlers in place: a stop overrides a restart.
            if self._launch is not None and self.restart_reason is not None:
                self._launch.again(unless=lambda: self.restart_reason is None)
        return self._exit_status

    def _serve(self) -> None:
        """Start every part, consume until stopped, and end each part in the order of the need."""
        app, results = self.app, self.app.results
        upkeep = () if results is None else results.start(log=self.log)
        self.in_flight.expect(app.tasks.values())
        self.pools.start()  # after the signals are unblocked: threads inherit the mask
        heartbeat = Heartbeat(
            beat=self.consumer_loop.probe if self._own_name is None else self._own_name.take,
            watchers=(*app.link_watchers, *self.extensions.beats(), *upkeep),
            on_lost_name=self._lose_name,
            stopping=self._stops.stopping,
            wake=self.consumer_loop.wake,
            log=self.log,
            period_s=self.beat_s,
        )
        try:
            self._stops.start(on_request=self._stop_requested)
            if self._own_name is not None:
                self._own_name.wait(
                    clock=app.clock,
                    outage=app.outage("no broker", log=self.log, ends=True),
                    stopping=self._stops.stopping,
                )
            heartbeat.start()
            self.extensions.call("starting")
            self._boot.start()
            self.consumer_loop.run(submit=self.pools.submit, on_consuming=self._consuming)
            self._drain.run()
        finally:
            self._stops.close()
            heartbeat.close()
            self.extensions.end("stopping")
            self._alarms.close()
            self._boot.stop()
            self.pools.close()
            self._acker.close()
            self.extensions.end("stopped")
            self.consumer_loop.close()
            if self._own_name is not None:
                self._own_name.leave()

    def stop(self) -> None:
        """Ask for a warm stop; a second call for a cold one. Any thread or signal handler."""
        self._stops.warm()

    def stop_cold(self) -> None:
        """Ask for a cold stop: what runs is cut off, and delivered again."""
        self._stops.cold()

    def _consuming(self) -> None:
        self.extensions.call("consuming")
        self.log.info("consuming", queues=",".join(self.queues), tasks=len(self.app.tasks))
        if not self.ready.is_set():
            if self._owns_process:
                freeze_memory()
            self.ready.set()
            self._on_ready()

    def _stop_requested(self) -> None:
        self._boot.cancel()
        self.pools.tell_stopping()
        self.in_flight.nudge()

    def _lose_name(self, reason: str) -> None:
        self.log.error("name lost", reason=reason)
        self._exit_status = 1
        self.stop()

    # --- what others ask of it ------------------------------------------------------------------

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that the worker consumes now; remote control may change them."""
        return self.consumer_loop.queues

    @property
    def restart_reason(self) -> str | None:
        """Why a fresh process should replace this one; None if it should not."""
        return self._stops.restart_reason

    def jobs(self) -> list[Job]:
        """Return what is in flight now. Any thread."""
        return self.in_flight.jobs()

    def load_idle(self) -> None:
        """Load the extensions that nothing has used yet: most workers need none. Any thread."""
        with self._plugging:
            self.extensions.plug_in(self, [neighbour(name) for name in self._idle])
            self._idle = ()

    def extension(self, kind: type[E]) -> E:
        """Return the worker's extension of type `kind`. Raises LookupError if it has none."""
        self.load_idle()
        for extension in self.extensions:
            if isinstance(extension, kind):
                return extension
        raise LookupError(f"worker {self.name!r} has no {kind.__name__}")
