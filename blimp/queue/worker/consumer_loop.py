"""The loop of a worker's main thread: connect, consume, and reconnect after any outage.

Tested by test_outage.py.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import ConfigError, LinkError
from blimp.queue.brokers.base import Aside, AtomicConsumer, Completion, ConsumerOptions
from blimp.queue.redis.urls import hide_password, is_lost, is_refused
from blimp.queue.worker.decode import Decoder
from blimp.queue.worker.job import Job, Place

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.extensions import Observers
    from blimp.queue.results.backend import ResultBackend
    from blimp.queue.retry import Outage
    from blimp.queue.worker.aside import AsideRule
    from blimp.queue.worker.in_flight import InFlight

BATCH = 64
WAKE_AGAIN_S = 0.05  # a wake-up may come before the consumer blocks


class ConsumerLoop:
    """Takes messages from `queues` and submits their jobs, in the thread that runs it."""

    submit: Callable[[Job], None]  # where its jobs go; see `run`

    def __init__(
        self,
        *,
        app: TaskApp,
        worker: str,
        queues: Sequence[str],
        in_flight: InFlight,
        aside: AsideRule,
        stopping: threading.Event,
        counts: Counter[str],
        observers: Observers,
        log: Any,
    ) -> None:
        self._app = app
        self._observers = observers
        self._queues = tuple(queues)
        self._wanted: tuple[str, ...] | None = None  # the queues to change to, if any
        self._refusal = ""  # why the broker refused the change
        self._has_changed = threading.Condition()
        self.totals: Counter[str] = Counter()  # of the messages received, by task
        self._in_flight = in_flight
        self._stopping = stopping
        self._counts = counts
        self._counting = threading.Lock()  # any thread may lose a lease
        self._log = log
        self._longest_s = app.longest_wait_s  # a stop wakes it earlier
        self._has_consumed = False
        # Where the server pushes, it would send the same messages here again.
        self._gives_back = app.capabilities.local_prefetch
        self._decoder = Decoder(app=app, worker=worker, aside=aside, counts=counts, log=log)
        results: ResultBackend | None = app.results
        self._options = ConsumerOptions(
            name=f"{app.name}.{worker}",
            brokers=app.brokers,
            broker=app.settings,
            signer=app.signer,
            store_result=None if results is None else results.write,
            completes_results=app.completes_at_once,
            completes_follow_ups=app.chords_end_at_once,
            result_keep_s=0 if results is None else results.keep_s,
            follow_up_keep_s=app.chord_keep_s,
            join=lambda *found: app.follow_ups.join(*found),  # loaded with the first
            queues=self._queues,
            room=in_flight.room,
            limit=in_flight.limit,
            waiting=in_flight.waiting,
            knows=app.versions,
            is_stopping=stopping.is_set,
            on_message=self._take,
            on_unreadable=self._decoder.reject_raw,
            on_lost=self._lose,
            log=log,
        )
        self.consumer = app.broker_kind.open_consumer(self._options)

    @property
    def queues(self) -> tuple[str, ...]:
        """What it consumes now."""
        return self._queues

    def change_queues(self, queues: Sequence[str], *, timeout_s: float) -> str | None:
        """Consume `queues` instead. Any thread; returns why it does not yet, None if it does.

        What is in flight goes on. Without a broker the change is made when it is back. If the
        broker refuses one queue, all stays as it was.
        """
        wanted = tuple(queues)
        with self._has_changed:
            self._wanted, self._refusal = wanted, ""
        until_s = self._app.clock.now_s() + timeout_s
        while self._app.clock.now_s() < until_s:
            self.look_again()
            with self._has_changed:
                if self._has_changed.wait_for(lambda: self._wanted is None, timeout=WAKE_AGAIN_S):
                    if self._queues == wanted:
                        return None
                    return self._refusal or "they were changed meanwhile"
        return "not yet: the broker does not answer; it is made when it does"

    def look_again(self) -> None:
        """Wake the consuming thread, so that it sees a change at once."""
        with contextlib.suppress(LinkError):
            self.wake()

    def run(self, *, submit: Callable[[Job], None], on_consuming: Callable[[], None]) -> None:
        """Consume until stopping. Returns with nothing in flight but what runs.

        on_consuming: called each time it has connected and restored what its name had left.
        """
        self.submit = submit
        outage = self._app.outage("broker lost", log=self._log, ends=True)
        while not self._stopping.is_set():
            url = self._app.brokers.current
            try:
                self._session(url, outage, on_consuming)
            except Exception as error:  # any: a worker must not stop consuming
                if isinstance(error, ConfigError) and not self._has_consumed:
                    raise  # a server that cannot be used is refused at the start
                self._counts["reconnects"] += 1
                if is_lost(error):
                    self._app.brokers.failed(url)
                self._stopping.wait(outage.failed(error, broker=hide_password(url)))

    def wake(self) -> None:
        """End a wait for messages now. Any thread; raises LinkError."""
        self._in_flight.nudge()
        self.consumer.wake()

    def probe(self) -> None:
        """Ask the broker whether it is there. Any thread; raises LinkError."""
        self.consumer.probe()

    def close(self) -> None:
        """Close the consumer for good. Idempotent."""
        self.consumer.close()

    def requeue_waiting(self) -> None:
        """Requeue at once what has not begun. Raises LinkError."""
        self._requeue(self._in_flight.jobs())

    def _give_back(self) -> None:
        """Requeue what waits for a full pool, if another worker may run it. Raises LinkError."""
        overdue = self._in_flight.overdue()
        queues = {job.message.queue for job in overdue}
        shared = {queue for queue in queues if self.consumer.is_shared(queue)}
        for place in self._requeue([job for job in overdue if job.message.queue in shared]):
            self._in_flight.hold(place)

    def _requeue(self, jobs: Sequence[Job]) -> set[Place]:
        """Requeue those of `jobs` that have not begun; return for which pools they waited."""
        places = set()
        for job in reversed(jobs):  # each goes to the head: the order stays
            if job.withdraw():
                job.delivery.requeue(seen=False)
                self._in_flight.release(job)
                self._counts["requeued"] += 1
                places.add(job.place)
        return places

    def _session(self, url: str, outage: Outage, on_consuming: Callable[[], None]) -> None:
        """Consume at one broker, until it is lost, another is in use, or the worker stops."""
        try:
            with self._changing():
                self._options.queues = self._queues
                restored, dropped = self.consumer.connect(held=self._in_flight.tags())
            if restored:
                self._counts["restored"] += restored
                self._log.info("restored", messages=restored)
            if dropped:
                self._counts["unreadable"] += dropped
                self._log.error("unreadable", messages=dropped)
            self._has_consumed = True
            on_consuming()
            while not self._stopping.is_set():
                if url != self._app.brokers.current:
                    return  # what is in flight goes on
                if self._wanted is not None:
                    self._change_queues()
                for job in self._in_flight.due():
                    self.submit(job)
                if self._gives_back:
                    self._give_back()
                if self._in_flight.wait_for_room(self._in_flight.patience_s(self._longest_s)):
                    self._drain()
                    outage.over()  # not before: an unreadable queue must not make it spin
            self.requeue_waiting()
        finally:
            self.consumer.disconnect()

    def _change_queues(self) -> None:
        with self._changing():
            self.consumer.consume(self._queues)
        self._log.info("consuming", queues=",".join(self._queues))

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Change to the wanted queues for the block, and back if the broker refuses them."""
        with self._has_changed:
            wanted = self._wanted
        if wanted is None:
            yield
            return
        before, self._queues = self._queues, wanted
        try:
            yield
        except Exception as error:
            if is_refused(error):  # otherwise each new connection would be refused
                self._queues = self._options.queues = before
                self._end_change(wanted, refusal=str(error))
            raise
        self._end_change(wanted)

    def _end_change(self, wanted: tuple[str, ...], *, refusal: str = "") -> None:
        with self._has_changed:
            if self._wanted == wanted:
                self._wanted, self._refusal = None, refusal
            self._has_changed.notify_all()

    def _lose(self, tag: str) -> None:
        """Another worker has this delivery: its lease ended while this process stood still."""
        with self._counting:
            self._counts["leases_lost"] += 1
        self._log.warning("lease lost", delivery=tag)
        job = self._in_flight.lose(tag)
        if job is not None:
            self._observers.lost(job)

    def _drain(self) -> None:
        """Block for one message, then take the others that are there without blocking."""
        timeout_s = self._in_flight.patience_s(self._longest_s)
        with contextlib.suppress(TimeoutError):
            for _ in range(BATCH):
                self.consumer.drain(timeout_s)
                timeout_s = 0.0
                if not self._in_flight.room():
                    return

    def _take(self, message: Any) -> None:
        """Take one delivered message. Raises only LinkError."""
        self._counts["received"] += 1
        delivery = self.consumer.delivery(message)
        if self._stopping.is_set():
            delivery.requeue(seen=False)
            return
        read = self._decoder.read(message, queue=delivery.queue)
        if isinstance(read, Aside):
            delivery.requeue(aside=read)
            return
        if isinstance(read, str):
            delivery.reject(read)
            return
        parsed, task = read
        wait_s = 0.0
        if parsed.eta_s is not None and not self._app.capabilities.schedules:
            wait_s = parsed.eta_s - self._app.broker_clock.now_s()
        job = Job(message=parsed, task=task, delivery=delivery)
        mark = getattr(message, "revoked", b"")  # of streams
        if mark and self._app.revocations.accept(parsed.id, mark):
            wait_s = 0.0  # it ends at once, whenever it was to run
        elif wait_s <= 0.0 and self._in_flight.rates and self._postpone(job):
            return
        self.totals[parsed.task] += 1
        if self._observers.extensions:
            job.received_s = self._app.clock.now_s()
            self._observers.received(job)
        if self._in_flight.take(job, wait_s=wait_s):
            self.submit(job)

    def _postpone(self, job: Job) -> bool:
        """Schedule `job` on the server for later, if enough wait here for its task's rate.

        It stays the same delivery: it has not begun. If the broker cannot, it waits here.
        """
        wait_s = self._in_flight.postpone_s(job.task.name)
        if wait_s is None or not isinstance(self.consumer, AtomicConsumer):
            return False
        eta_s = self._app.broker_clock.recent_s() + wait_s
        later = msgspec.structs.replace(job.message, eta_s=eta_s)
        self.consumer.complete(
            [Completion(delivery=job.delivery, message=job.message, next=(later,), job=job)]
        )
        self._counts["postponed"] += 1
        return True
