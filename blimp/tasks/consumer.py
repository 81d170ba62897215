"""One consumer's life: connect, take back, take, and come back from any outage."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from blimp.tasks.intake import Intake
from blimp.tasks.job import Job
from blimp.tasks.retry import ReconnectDelay
from blimp.tasks.stock import StockDelivery, StockTransport, UnackedKeys, UnackedStore
from blimp.tasks.urls import hide_password, kombu_url, transport_options

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp
    from blimp.tasks.hand import Hand

DRAIN_S = 1.0  # the longest block for a message; a stop wakes it before
BATCH = 64


class Consumer:
    """Takes messages from `queues` and submits their jobs, in the thread that runs it.

    on_consuming: called each time it has connected and taken back what was left.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        worker: str,
        queues: Sequence[str],
        hand: Hand,
        submit: Callable[[Job], None],
        on_consuming: Callable[[], None],
        stopping: threading.Event,
        counts: Counter[str],
        log: Any,
    ) -> None:
        self._app = app
        self._queues = queues
        self._hand = hand
        self._submit = submit
        self._on_consuming = on_consuming
        self._stopping = stopping
        self._counts = counts
        self._log = log
        self._intake = Intake(app=app, worker=worker, counts=counts, log=log)
        self._keys = UnackedKeys(app=app.name, worker=worker)
        self._store = UnackedStore(link=app.broker_link, keys=self._keys)
        self._blocked_id: int | None = None  # the server's number of the blocked connection

    def run(self) -> None:
        """Consume until stopping. Returns with nothing in hand but what runs."""
        delay = ReconnectDelay(chance=random.Random())
        while not self._stopping.is_set():
            try:
                self._session(delay)
            except Exception as error:  # any: a worker that stops consuming is worse
                wait_s = delay.next_s()
                self._counts["reconnects"] += 1
                self._log.warning(
                    "broker lost",
                    broker=hide_password(self._app.broker),
                    reason=f"{type(error).__name__}: {error}",
                    again_in_s=round(wait_s, 3),
                )
                self._stopping.wait(wait_s)

    def wake(self) -> None:
        """Have the server answer the blocked connection now. Any thread; raises LinkError."""
        self._hand.nudge()
        if self._blocked_id is not None:
            with self._app.broker_link.link():
                self._app.broker_link.client.client_unblock(self._blocked_id)

    def give_back_waiting(self) -> None:
        """Put back at once whatever has not begun. Raises LinkError."""
        for job in reversed(self._hand.jobs()):  # each goes to the head: the order stays
            if job.withdraw():
                job.delivery.give_back()
                self._hand.let_go(job)
                self._counts["given_back"] += 1

    def _session(self, delay: ReconnectDelay) -> None:
        """Consume on one connection, until it is lost or the worker stops."""
        import kombu

        options = transport_options(timeout_s=self._app.timeout_s) | self._keys.transport_options()
        connection = kombu.Connection(kombu_url(self._app.broker), transport_options=options)
        connection.transport_cls = StockTransport
        try:
            connection.connect()
            channel = connection.channel()
            channel.on_poison = self._intake.turn_away_raw
            channel.limit_bytes = self._app.limit_bytes
            channel.stopping = self._stopping.is_set
            channel.qos.room = self._hand.has_room
            self._blocked_id = channel.identify()
            kombu.Consumer(
                channel,
                queues=[kombu.Queue(name, no_declare=True) for name in self._queues],
                on_message=self._take,
                auto_declare=False,
            ).consume()
            self._restore()
            self._on_consuming()
            while not self._stopping.is_set():
                for job in self._hand.due():
                    self._submit(job)
                if self._hand.wait_for_room(self._hand.patience_s(DRAIN_S)):
                    self._drain(connection)
                    delay.reset()  # not before: a queue that cannot be read must not spin
            self.give_back_waiting()
        finally:
            self._blocked_id = None
            # Reads the answer of a pending BRPOP, which may be a message: it is given back.
            with contextlib.suppress(Exception):  # the link is lost, or the broker is
                connection.release()

    def _restore(self) -> None:
        """Take back what this name had not acknowledged and does not hold now."""
        restored, dropped = self._store.restore(except_tags=self._hand.tags())
        if restored:
            self._counts["restored"] += restored
            self._log.info("restored", messages=restored)
        if dropped:
            self._counts["unreadable"] += dropped
            self._log.error("unreadable", messages=dropped, key=self._keys.messages)

    def _drain(self, connection: Any) -> None:
        """Block for one message, then take what else has come without blocking."""
        timeout_s = self._hand.patience_s(DRAIN_S)
        with contextlib.suppress(TimeoutError):
            for _ in range(BATCH):
                connection.drain_events(timeout=timeout_s)
                timeout_s = 0.0
                if not self._hand.has_room():
                    return

    def _take(self, message: Any) -> None:
        """Take one delivered message. Raises nothing but errors of the link."""
        self._counts["received"] += 1
        delivery = StockDelivery(message=message, store=self._store)
        if self._stopping.is_set():
            delivery.give_back()
            return
        read = self._intake.read(message, queue=delivery.queue)
        if read is None:
            delivery.ack()
            return
        parsed, task = read
        wait_s = 0.0
        if parsed.eta_s is not None:
            wait_s = parsed.eta_s - self._app.broker_clock.now_s()
        job = Job(message=parsed, task=task, delivery=delivery)
        if self._hand.take(job, wait_s=wait_s):
            self._submit(job)
