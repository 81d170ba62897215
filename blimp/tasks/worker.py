"""The worker: takes messages, hands them to executors, and ends in good order.

The main thread owns the consumer. Executors store results and acknowledge from their own
threads, on connections of their own.
"""

from __future__ import annotations

import queue
import random
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError
from blimp.tasks.broadcast import BroadcastListener
from blimp.tasks.carrier import check_tasks, is_on_redis, missing_guarantees
from blimp.tasks.consumer import Consumer
from blimp.tasks.executors import LoopExecutor, ThreadExecutor
from blimp.tasks.hand import Hand
from blimp.tasks.job import Job
from blimp.tasks.log import stderr_logger
from blimp.tasks.name_lock import LEASE_MS, NameInUse, NameLock
from blimp.tasks.pulse import Pulse
from blimp.tasks.retry import ReconnectDelay
from blimp.tasks.runner import Runner
from blimp.tasks.settler import Settler

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp


class Worker:
    """Runs the tasks of one app until stopped.

    name: unique among the app's live workers; the same name, restarted, takes back what a
        killed one had not acknowledged. queues: by default the app's own.
    sync_workers: threads for plain tasks. loop_concurrency: `async def` tasks at once.
    prefetch: messages in hand at once; the rest stay with the broker, for others.
    grace_s: how long a warm stop waits for what runs.
    on_ready: called once, when it consumes for the first time.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        name: str | None = None,
        queues: Sequence[str] = (),
        sync_workers: int = 8,
        loop_concurrency: int = 16,
        prefetch: int = 16,
        grace_s: float = 10.0,
        on_ready: Callable[[], None] = lambda: None,
        log: Any = None,
    ) -> None:
        self.app = app
        self.name = name or f"{app.name}@{socket.gethostname()}"
        self.queues = tuple(dict.fromkeys(queues)) or (app.queue,)
        self.counts: Counter[str] = Counter()
        self.ready = threading.Event()
        self._grace_s = grace_s
        self._on_ready = on_ready
        self._log = log or stderr_logger(level=app.log_level, worker=self.name)
        self._exit_status = 0
        self._stopping = threading.Event()
        self._abandoned = threading.Event()
        self._stops: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._lock: NameLock | None = None  # else the name is not the key to its messages
        if is_on_redis(app.transport):
            self._lock = NameLock(link=app.broker_link, app=app.name, worker=self.name)
        self._hand = Hand(clock=app.clock, prefetch=prefetch, stopping=self._stopping)
        self._listener = BroadcastListener(app=app, worker=self.name, log=self._log)
        self._consumer = Consumer(
            app=app,
            worker=self.name,
            queues=self.queues,
            hand=self._hand,
            submit=self._submit,
            on_consuming=self._consuming,
            stopping=self._stopping,
            counts=self.counts,
            log=self._log,
        )
        settler = Settler(
            app=app,
            line=self._consumer.line,
            abandoned=self._abandoned,
            on_done=self._done,
            log=self._log,
        )
        runner = Runner(
            app=app,
            worker=self.name,
            stopping=self._stopping,
            abandoned=self._abandoned,
            on_done=self._done,
            settler=settler,
            log=self._log,
        )
        self._threads = ThreadExecutor(run=runner.run, size=sync_workers)
        self._loop = LoopExecutor(run=runner.run, concurrency=loop_concurrency)

    def run(self) -> int:
        """Consume until stopped; return the exit status. Takes SIGTERM and SIGINT.

        The first asks for a warm stop: what waits goes back to its queue at once, what runs
        ends. A second one cuts that short. Call it once.
        """
        check_tasks(self.app)
        missing = missing_guarantees(self.app)
        if missing is not None:
            self._log.warning(missing)
        signals = self._take_signals()
        stopper = threading.Thread(target=self._heed_stops, name="stops", daemon=True)
        pulse = Pulse(
            beat=self._consumer.probe if self._lock is None else self._lock.take,
            watchers=self.app.link_watchers,
            on_lost_name=self._lose_name,
            stopping=self._stopping,
            wake=self._consumer.wake,
            log=self._log,
        )
        try:
            stopper.start()
            self._take_name()
            pulse.start()
            if self.app.broadcasts:
                self._listener.start()
            self._consumer.run()
            self._finish()
        finally:
            self._abandoned.set()
            self._stopping.set()
            pulse.close()
            self._listener.close()
            self._threads.close()
            self._loop.close()
            self._consumer.close()
            self._leave_name()
            self._stops.put(False)
            stopper.join()
            for number, handler in signals.items():
                signal.signal(number, handler)
        self._log.info("stopped", **self.counts)
        return self._exit_status

    def stop(self) -> None:
        """Ask for a warm stop; a second call cuts it short. Safe from any thread or signal.

        A signal may find this thread holding an event's lock, so none is touched here.
        """
        self._stops.put(True)

    # --- one job ---------------------------------------------------------------------------

    def _submit(self, job: Job) -> None:
        (self._loop if job.task.is_async else self._threads).submit(job)

    def _done(self, job: Job) -> None:
        """Called by executors: the job has left the worker's hands."""
        self.counts["done"] += 1
        self._hand.let_go(job)

    # --- beginning -------------------------------------------------------------------------

    def _take_signals(self) -> dict[signal.Signals, Any]:
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {
            number: signal.signal(number, lambda *_: self.stop())
            for number in (signal.SIGTERM, signal.SIGINT)
        }

    def _take_name(self) -> None:
        """Wait for the broker, and for the lease of a namesake that may be dead to lapse."""
        if self._lock is None:
            return
        delay = ReconnectDelay(chance=random.Random())
        first_refused_s: float | None = None
        while not self._stopping.is_set():
            try:
                self._lock.take()
                return
            except LinkError as error:
                self._log.warning("no broker", reason=str(error))
            except NameInUse as error:
                now_s = self.app.clock.now_s()
                first_refused_s = first_refused_s or now_s
                # One that is just being killed lives on for a moment.
                patience_s = 1.0 if error.certain else LEASE_MS / 1000.0 + 1.0
                if now_s - first_refused_s > patience_s:
                    raise
            self._stopping.wait(delay.next_s())

    def _consuming(self) -> None:
        if self.app.broadcasts and not self._listener.listening.wait(timeout=self.app.timeout_s):
            # Commands are taken all the same: a ship that can be flown can also be landed.
            self._log.error("emergency lane not open yet")
        self._log.info("consuming", queues=",".join(self.queues), tasks=len(self.app.tasks))
        if not self.ready.is_set():
            self.ready.set()
            self._on_ready()

    # --- ending ----------------------------------------------------------------------------

    def _heed_stops(self) -> None:
        while self._stops.get():
            if self._stopping.is_set():
                self._abandoned.set()
            self._stopping.set()
            self._hand.nudge()

    def _finish(self) -> None:
        """Wait for what runs; then give back what may run again."""
        try:
            self._consumer.give_back_waiting()
        except LinkError as error:
            self._log.warning("not given back", reason=str(error))
        self._hand.wait_empty(self._grace_s, unless=self._abandoned)
        self._abandoned.set()
        for job in self._hand.jobs():
            self._cut_off(job)

    def _cut_off(self, job: Job) -> None:
        """End a job that would not: its message comes again, now or at the next start."""
        self._log.warning("cut off", task=job.task.name, id=job.message.id)
        self.counts["cut_off"] += 1
        try:
            if job.task.options.idempotent and job.finish():
                job.delivery.give_back()
        except LinkError:
            return  # it stays unacknowledged, and is restored when this name starts again

    def _lose_name(self, reason: str) -> None:
        self._log.error("name lost", reason=reason)
        self._exit_status = 1
        self.stop()

    def _leave_name(self) -> None:
        if self._lock is None:
            return
        try:
            self._lock.leave()
        except LinkError:
            return  # its lease lapses by itself
