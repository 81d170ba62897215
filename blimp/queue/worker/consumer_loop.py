"""One consumer's life: connect, take back, take, and come back from any outage."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import LinkError
from blimp.queue.brokers.base import ChordPart, Completion, ConsumerOptions
from blimp.queue.redis.urls import hide_password, is_lost, is_refused
from blimp.queue.worker.decode import Decoder
from blimp.queue.worker.job import Job

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.extensions import Observers
    from blimp.queue.retry import Outage
    from blimp.queue.worker.in_flight import InFlight

BATCH = 64
WAKE_AGAIN_S = 0.05  # it may not have slept yet when it was woken


class ConsumerLoop:
    """Takes messages from `queues` and submits their jobs, in the thread that runs it.

    on_consuming: called each time it has connected and taken back what was left.
    line: what it consumes through.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        worker: str,
        queues: Sequence[str],
        in_flight: InFlight,
        submit: Callable[[Job], None],
        on_consuming: Callable[[], None],
        stopping: threading.Event,
        counts: Counter[str],
        observers: Observers,
        log: Any,
    ) -> None:
        self._app = app
        self._observers = observers
        self._queues = tuple(queues)
        self._wanted: tuple[str, ...] | None = None  # queues, where they are to be others
        self._refusal = ""  # why they are not, where the broker does not let them be
        self._has_changed = threading.Condition()
        self.totals: Counter[str] = Counter()  # of the tasks that came, by name
        self._in_flight = in_flight
        self._submit = submit
        self._on_consuming = on_consuming
        self._stopping = stopping
        self._counts = counts
        self._counting = threading.Lock()  # any thread may find a lease lost
        self._log = log
        self._longest_s = app.longest_wait_s  # a stop wakes it before
        self._decoder = Decoder(app=app, worker=worker, counts=counts, log=log)
        self._options = ConsumerOptions(
            name=f"{app.name}.{worker}",
            brokers=app.brokers,
            timeout_s=app.timeout_s,
            limit_bytes=app.limit_bytes,
            signer=app.signer,
            store_result=None if app.results is None else app.results.write,
            completes_results=app.completes_at_once,
            completes_chords=app.chords_end_at_once,
            result_keep_s=app.results.keep_s if app.results is not None else 0,
            chord_keep_s=app.chord_keep_s,
            join_chords=self._join_chords,
            queues=self._queues,
            room=in_flight.room,
            limit=in_flight.limit,
            waiting=in_flight.waiting,
            is_stopping=stopping.is_set,
            on_message=self._take,
            on_unreadable=self._decoder.turn_away_raw,
            on_lost=self._lose,
            log=log,
        )
        self.consumer = app.broker_kind.open_consumer(self._options)

    @property
    def queues(self) -> tuple[str, ...]:
        """What it consumes from now."""
        return self._queues

    def change_queues(self, queues: Sequence[str], *, timeout_s: float) -> str | None:
        """Have it consume from `queues` instead. Any thread; returns why it does not, yet.

        What is in hand goes on. It is known when the broker is away, and done when it is back.
        Where the broker refuses one of them, all stays as it was.
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
        return "not yet: the broker does not answer; it is done when it does"

    def look_again(self) -> None:
        """Have the consuming thread look at what has changed; it does by itself, only later."""
        with contextlib.suppress(LinkError):
            self.wake()

    def run(self) -> None:
        """Consume until stopping. Returns with nothing in hand but what runs."""
        outage = self._app.outage("broker lost", log=self._log, ends=True)
        while not self._stopping.is_set():
            url = self._app.brokers.current
            try:
                self._session(url, outage)
            except Exception as error:  # any: a worker that stops consuming is worse
                self._counts["reconnects"] += 1
                if is_lost(error):
                    self._app.brokers.failed(url)
                self._stopping.wait(outage.failed(error, broker=hide_password(url)))

    def wake(self) -> None:
        """Have a wait for messages end now. Any thread; raises LinkError."""
        self._in_flight.nudge()
        self.consumer.wake()

    def probe(self) -> None:
        """Ask the broker whether it is there. Any thread; raises LinkError."""
        self.consumer.probe()

    def close(self) -> None:
        """Let go of the messages in hand for good. Idempotent."""
        self.consumer.close()

    def requeue_waiting(self) -> None:
        """Put back at once whatever has not begun. Raises LinkError."""
        for job in reversed(self._in_flight.jobs()):  # each goes to the head: the order stays
            if job.withdraw():
                job.delivery.requeue(seen=False)
                self._in_flight.release(job)
                self._counts["given_back"] += 1

    def _session(self, url: str, outage: Outage) -> None:
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
            self._on_consuming()
            while not self._stopping.is_set():
                if url != self._app.brokers.current:
                    return  # what is in hand goes on
                if self._wanted is not None:
                    self._change_queues()
                for job in self._in_flight.due():
                    self._submit(job)
                if self._in_flight.wait_for_room(self._in_flight.patience_s(self._longest_s)):
                    self._drain()
                    outage.over()  # not before: a queue that cannot be read must not spin
            self.requeue_waiting()
        finally:
            self.consumer.disconnect()

    def _join_chords(
        self, completion: Completion, parts: Sequence[ChordPart], client: Any
    ) -> Completion:
        from blimp.queue.canvas.chords import join  # a worker without chords goes without it

        joined: Completion = join(self._app, completion, parts, client)
        return joined

    def _change_queues(self) -> None:
        with self._changing():
            self.consumer.consume(self._queues)
        self._log.info("consuming", queues=",".join(self._queues))

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Have the queues be those that are wanted; as before where the broker refuses them."""
        with self._has_changed:
            wanted = self._wanted
        if wanted is None:
            yield
            return
        before, self._queues = self._queues, wanted
        try:
            yield
        except Exception as error:
            if is_refused(error):  # or it would be refused at each connection to come
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
        """Someone else has this delivery: its lease ended while this process stood still."""
        with self._counting:
            self._counts["leases_lost"] += 1
        self._log.warning("lease lost", delivery=tag)
        job = self._in_flight.lose(tag)
        if job is not None:
            self._observers.lost(job)

    def _drain(self) -> None:
        """Block for one message, then take what else has come without blocking."""
        timeout_s = self._in_flight.patience_s(self._longest_s)
        with contextlib.suppress(TimeoutError):
            for _ in range(BATCH):
                self.consumer.drain(timeout_s)
                timeout_s = 0.0
                if not self._in_flight.has_room():
                    return

    def _take(self, message: Any) -> None:
        """Take one delivered message. Raises nothing but errors of the link."""
        self._counts["received"] += 1
        delivery = self.consumer.delivery(message)
        if self._stopping.is_set():
            delivery.requeue(seen=False)
            return
        read = self._decoder.read(message, queue=delivery.queue)
        if isinstance(read, str):
            delivery.reject(read)
            return
        parsed, task = read
        wait_s = 0.0
        if parsed.eta_s is not None:
            wait_s = parsed.eta_s - self._app.broker_clock.now_s()
        job = Job(message=parsed, task=task, delivery=delivery)
        if self._in_flight.limits_rates and wait_s <= 0.0 and self._postpone(job):
            return
        self.totals[parsed.task] += 1
        if self._observers:
            job.received_s = self._app.clock.now_s()
            self._observers.received(job)
        if self._in_flight.take(job, wait_s=wait_s):
            self._submit(job)

    def _postpone(self, job: Job) -> bool:
        """Have the server keep `job` for a while, where more wait for its task's rate than enough.

        As the same delivery: it has not begun. Elsewhere than on streams it waits in hand.
        """
        if not self._app.capabilities.atomic_completion:
            return False
        wait_s = self._in_flight.postpone_s(job.task.name)
        if wait_s is None:
            return False
        eta_s = self._app.broker_clock.recent_s() + wait_s
        later = msgspec.structs.replace(job.message, eta_s=eta_s)
        self.consumer.complete(
            [Completion(delivery=job.delivery, message=job.message, next=(later,), job=job)]
        )
        self._counts["postponed"] += 1
        return True
