"""The worker: takes messages, hands them to executors, and comes back from any outage.

The main thread owns the consumer. Executors store results and acknowledge from their own
threads, on connections of their own; kombu's virtual transports allow it, and a channel
lost with its connection could not do it anyway.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError, MessageError, ResultError, UnknownTask
from blimp.tasks.broadcast import BroadcastListener
from blimp.tasks.executors import LoopExecutor, ThreadExecutor
from blimp.tasks.job import Job, fault_of
from blimp.tasks.log import stderr_logger
from blimp.tasks.message import TaskMessage, parse_message, readable_id
from blimp.tasks.name_lock import LEASE_MS, NameInUse, NameLock
from blimp.tasks.pulse import Pulse
from blimp.tasks.results.record import Record, State
from blimp.tasks.retry import ReconnectDelay
from blimp.tasks.runner import Runner
from blimp.tasks.stock import StockTransport, UnackedKeys, UnackedStore, open_envelope
from blimp.tasks.urls import hide_password, kombu_url, transport_options

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp
    from blimp.tasks.task import Task

DRAIN_S = 1.0  # the longest block for a message; a stop wakes it before
BATCH = 64
LOG_LENGTH = 200


class StockDelivery:
    """One message taken through the stock transport."""

    def __init__(self, *, message: Any, store: UnackedStore) -> None:
        self.tag: str = message.delivery_tag
        self._channel = message.channel
        self._store = store

    def ack(self) -> None:
        self._store.ack(self.tag)
        self._channel.qos.forget(self.tag)

    def give_back(self) -> None:
        self._store.give_back(self.tag)
        self._channel.qos.forget(self.tag)


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
        self._prefetch = prefetch
        self._grace_s = grace_s
        self._on_ready = on_ready
        self._log = log or stderr_logger(worker=self.name)
        keys = UnackedKeys(app=app.name, worker=self.name)
        self._keys = keys
        self._store = UnackedStore(link=app.broker_link, keys=keys)
        self._lock = NameLock(link=app.broker_link, app=app.name, worker=self.name)
        self._stopping = threading.Event()
        self._abandoned = threading.Event()
        self._changed = threading.Condition()
        self._jobs: dict[str, Job] = {}  # by delivery tag; guarded by _changed
        self._waiting: list[tuple[float, int, Job]] = []  # not before their ETA; main thread's
        self._order = itertools.count()
        self._exit_status = 0
        self._blocked_id: int | None = None  # the server's number of the blocked connection
        runner = Runner(
            app=app,
            worker=self.name,
            stopping=self._stopping,
            abandoned=self._abandoned,
            on_done=self._let_go,
            log=self._log,
        )
        self._threads = ThreadExecutor(run=runner.run, size=sync_workers)
        self._loop = LoopExecutor(run=runner.run, concurrency=loop_concurrency)

    # --- life ------------------------------------------------------------------------------

    def run(self) -> int:
        """Consume until stopped; return the exit status. Takes SIGTERM and SIGINT.

        The first asks for a warm stop: what waits goes back to its queue at once, what runs
        ends. A second one cuts that short.
        """
        previous = self._take_signals()
        listener = BroadcastListener(app=self.app, worker=self.name, log=self._log)
        pulse = Pulse(
            lock=self._lock,
            watchers=self.app.link_watchers,
            on_lost_name=self._lose_name,
            stopping=self._stopping,
            wake=self._wake,
            log=self._log,
        )
        try:
            self._take_name()
            pulse.start()
            if self.app.broadcasts:
                listener.start()
            self._consume_until_stopped(listener)
            self._finish()
        finally:
            self._abandoned.set()
            self._stopping.set()
            pulse.close()
            listener.close()
            self._threads.close()
            self._loop.close()
            self._leave_name()
            for number, handler in previous.items():
                signal.signal(number, handler)
        self._log.info("stopped", **self.counts)
        return self._exit_status

    def stop(self) -> None:
        """Ask for a warm stop; a second call cuts it short. Safe from any thread or signal."""
        if self._stopping.is_set():
            self._abandoned.set()
        self._stopping.set()

    def _take_signals(self) -> dict[signal.Signals, Any]:
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {
            number: signal.signal(number, lambda *_: self.stop())
            for number in (signal.SIGTERM, signal.SIGINT)
        }

    def _take_name(self) -> None:
        """Wait for the broker, and for the lease of a namesake that may be dead to lapse."""
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

    def _leave_name(self) -> None:
        try:
            self._lock.leave()
        except LinkError:
            return  # its lease lapses by itself

    def _lose_name(self, reason: str) -> None:
        self._log.error("name lost", reason=reason)
        self._exit_status = 1
        self.stop()

    # --- consuming -------------------------------------------------------------------------

    def _consume_until_stopped(self, listener: BroadcastListener) -> None:
        delay = ReconnectDelay(chance=random.Random())
        while not self._stopping.is_set():
            try:
                self._consume(listener, delay)
            except Exception as error:  # any: a worker that stops consuming is worse
                wait_s = delay.next_s()
                self.counts["reconnects"] += 1
                self._log.warning(
                    "broker lost",
                    broker=hide_password(self.app.broker),
                    reason=f"{type(error).__name__}: {error}",
                    again_in_s=round(wait_s, 3),
                )
                self._stopping.wait(wait_s)

    def _consume(self, listener: BroadcastListener, delay: ReconnectDelay) -> None:
        from kombu import Connection, Consumer, Queue

        options = transport_options(timeout_s=self.app.timeout_s) | self._keys.transport_options()
        connection = Connection(kombu_url(self.app.broker), transport_options=options)
        connection.transport_cls = StockTransport
        try:
            connection.connect()
            channel = connection.channel()
            channel.on_poison = self._reject_raw
            channel.limit_bytes = self.app.limit_bytes
            channel.stopping = self._stopping.is_set
            channel.qos.room = self._has_room
            self._blocked_id = channel.identify()
            consumer = Consumer(
                channel,
                queues=[Queue(name, no_declare=True) for name in self.queues],
                on_message=self._take,
                auto_declare=False,
            )
            consumer.consume()
            self._restore()
            self._announce(listener)
            delay.reset()
            while not self._stopping.is_set():
                self._submit_due()
                if self._wait_for_room():
                    self._drain(connection)
            self._give_back_waiting()
        finally:
            self._blocked_id = None
            # Reads the answer of a pending BRPOP, which may be a message: it is given back.
            with contextlib.suppress(Exception):  # the link is lost, or the broker is
                connection.release()

    def _restore(self) -> None:
        """Take back what this name had not acknowledged and does not hold now."""
        with self._changed:
            held = list(self._jobs)
        restored, dropped = self._store.restore(except_tags=held)
        if restored:
            self.counts["restored"] += restored
            self._log.info("restored", messages=restored)
        if dropped:
            self.counts["unreadable"] += dropped
            self._log.error("unreadable", messages=dropped, key=self._keys.messages)

    def _announce(self, listener: BroadcastListener) -> None:
        if self.app.broadcasts and not listener.listening.wait(timeout=self.app.timeout_s):
            # Commands are taken all the same: a ship that can be flown can also be landed.
            self._log.error("emergency lane not open yet")
        self._log.info("consuming", queues=",".join(self.queues), tasks=len(self.app.tasks))
        if not self.ready.is_set():
            self.ready.set()
            self._on_ready()

    def _wake(self) -> None:
        """Have the server answer the blocked connection now. Raises LinkError."""
        if self._blocked_id is not None:
            with self.app.broker_link.link():
                self.app.broker_link.client.client_unblock(self._blocked_id)

    def _has_room(self) -> bool:
        if self._stopping.is_set():
            return False
        return len(self._jobs) - len(self._waiting) < self._prefetch

    def _wait_for_room(self) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: self._has_room() or self._stopping.is_set(), timeout=self._patience_s()
            )

    def _drain(self, connection: Any) -> None:
        """Block for one message, then take what else has come without blocking."""
        timeout_s = self._patience_s()
        try:
            for _ in range(BATCH):
                connection.drain_events(timeout=timeout_s)
                timeout_s = 0.0
                if not self._has_room():
                    return
        except TimeoutError:
            return

    def _patience_s(self) -> float:
        if not self._waiting:
            return DRAIN_S
        return min(DRAIN_S, max(0.0, self._waiting[0][0] - self.app.clock.now_s()))

    # --- one message -----------------------------------------------------------------------

    def _take(self, message: Any) -> None:
        """Take one delivered message. Raises nothing but errors of the link."""
        self.counts["received"] += 1
        delivery = StockDelivery(message=message, store=self._store)
        if self._stopping.is_set():
            delivery.give_back()
            return
        queue = message.delivery_info["routing_key"]
        try:
            parsed, task = self._read(message, queue)
        except (MessageError, UnknownTask) as error:
            self._reject(error, queue=queue, headers=message.headers)
            delivery.ack()
            return
        wait_s = self._seconds_to_eta(parsed)
        job = Job(message=parsed, task=task, delivery=delivery)
        with self._changed:
            self._jobs[delivery.tag] = job
        if wait_s > 0.0:
            due_s = self.app.clock.now_s() + wait_s
            heapq.heappush(self._waiting, (due_s, next(self._order), job))
        else:
            self._submit(job)

    def _read(self, message: Any, queue: str) -> tuple[TaskMessage, Task]:
        """Return what a message asks for. Raises MessageError or UnknownTask, nothing else."""
        try:
            parsed = parse_message(
                headers=message.headers,
                body=message.body,
                content_type=message.content_type,
                content_encoding=message.content_encoding,
                queue=queue,
                priority=message.properties.get("priority"),
                limit_bytes=self.app.limit_bytes,
            )
        except MessageError:
            raise
        except Exception as error:  # it would come again, and again be met here
            raise MessageError(f"cannot be read: {type(error).__name__}: {error}") from error
        return parsed, self.app.get_task(parsed.task)

    def _seconds_to_eta(self, message: TaskMessage) -> float:
        return 0.0 if message.eta_s is None else message.eta_s - self.app.broker_clock.now_s()

    def _submit(self, job: Job) -> None:
        (self._loop if job.task.is_async else self._threads).submit(job)

    def _submit_due(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.app.clock.now_s():
            self._submit(heapq.heappop(self._waiting)[2])

    def _let_go(self, job: Job) -> None:
        """Called by executors: the job has left the worker's hands."""
        with self._changed:
            self._jobs.pop(job.delivery.tag, None)
            self.counts["done"] += 1
            self._changed.notify_all()

    def _reject_raw(self, raw: bytes, queue: str, error: Exception) -> None:
        """Drop a message that could not even be opened; it is recorded nowhere."""
        headers: object = None
        try:
            headers = open_envelope(raw, queue=queue, limit_bytes=10 * len(raw))["headers"]
        except MessageError:
            self.counts["without_id"] += 1
        self._reject(error, queue=queue, headers=headers)

    def _reject(self, error: Exception, *, queue: str, headers: object) -> None:
        kind = "unknown_task" if isinstance(error, UnknownTask) else "unreadable"
        self.counts[kind] += 1
        id = readable_id(headers)
        self._log.error(kind, queue=queue, id=id, reason=str(error)[:LOG_LENGTH])
        if id is None or self.app.results is None:
            return
        name = headers.get("task") if isinstance(headers, dict) else None
        with contextlib.suppress(ResultError):  # what it carries cannot even be told
            self.app.results.store(
                Record(
                    id=id,
                    state=State.FAILURE,
                    fault=fault_of(error),
                    name=name if isinstance(name, str) else None,
                    worker=self.name,
                    queue=queue,
                )
            )

    # --- stopping --------------------------------------------------------------------------

    def _give_back_waiting(self) -> None:
        """Put back at once whatever has not begun."""
        self._waiting.clear()
        with self._changed:
            jobs = list(self._jobs.values())
        for job in reversed(jobs):  # each goes to the head: the order stays
            if job.withdraw():
                job.delivery.give_back()
                self.counts["given_back"] += 1
                self._let_go(job)

    def _finish(self) -> None:
        """Wait for what runs; then give back what may run again, and end what may not."""
        try:
            self._give_back_waiting()
        except LinkError as error:
            self._log.warning("not given back", reason=str(error))
        deadline_s = self.app.clock.now_s() + self._grace_s
        with self._changed:
            while self._jobs and not self._abandoned.is_set():
                left_s = deadline_s - self.app.clock.now_s()
                if left_s <= 0.0:
                    break
                self._changed.wait(min(left_s, 0.1))
            jobs = list(self._jobs.values())
        self._abandoned.set()
        for job in jobs:
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
