"""Completing jobs with the broker: many at a time, by one thread, so that no pool waits for it.

Completions that arrive during one write go together in the next. The thread never waits in order
to gather more: if the broker is faster than the tasks, each is written at once.
Tested by behaviour/test_delivery.py.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError, ResultError
from blimp.queue.brokers.base import AtomicConsumer
from blimp.queue.protocol.record import Outcome
from blimp.queue.worker.middleware import let_marks_expire

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.brokers.base import Completion, Consumer
    from blimp.queue.extensions import Observers
    from blimp.queue.protocol.record import Record
    from blimp.queue.results.backend import ResultBackend
    from blimp.queue.retry import Outage
    from blimp.queue.worker.job import Job

MOST_AT_ONCE = 128
MOST_BYTES = 1_000_000
LOOK_S = 1.0  # between looks whether there is still something to wait for


class Acker:
    """Writes completions, each until the broker has it or the worker is abandoned.

    If the broker can, a completion is one step. Otherwise the result is stored and what follows
    is published before the message is acknowledged: a worker killed in between leaves a message
    that is delivered again, finds its result, and is only acknowledged.

    on_ran: called with each job that waits for a commit, in any thread.
    on_done: called with the jobs that are no longer in flight, in the acker's thread.
    Close is idempotent; what waits then is tried once more, or is delivered again.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        consumer: Consumer,
        abandoned: threading.Event,
        on_done: Callable[..., None],
        on_ran: Callable[[Job], None],
        observers: Observers,
        log: Any,
    ) -> None:
        self._app = app
        self._abandoned = abandoned
        self._on_done = on_done
        self._observers = observers
        self._log = log
        self._outage = app.outage("broker unreachable", log=log)
        self._results_outage = app.outage("results unreachable", log=log)
        self._on_ran = on_ran
        self._results: ResultBackend | None = app.results
        self._commits = self._results is not None and self._results.commits
        # A result on another server is stored before.
        self._atomic = consumer if isinstance(consumer, AtomicConsumer) else None
        self._is_one_step = self._atomic is not None and (
            self._results is None or app.completes_at_once
        )
        # An event is set once what came before it is written.
        self._queue: queue.SimpleQueue[Completion | threading.Event] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="acker", daemon=True)
        self._thread.start()

    def put(self, completion: Completion) -> None:
        """Have `completion` written, and its job released. Any thread; does not wait."""
        if self._commits:
            self._on_ran(completion.job)
        self._queue.put(completion)

    def wait_written(self) -> None:
        """Wait until all that was put before is written, or the worker ends."""
        written = threading.Event()
        self._queue.put(written)
        while not written.wait(LOOK_S) and not (self._abandoned.is_set() or self._closed):
            pass

    def until_done(
        self, function: Callable[..., Any], *args: Any, outage: Outage | None = None
    ) -> bool:
        """Call until the broker answers; return False if the worker was abandoned before.

        outage: of the server that is asked, if that is not the broker.
        """
        outage = outage or self._outage
        while True:
            try:
                function(*args)
                outage.over()
                return True
            except LinkError as error:
                if self._abandoned.wait(outage.failed(error)):
                    return False

    def wait_out(self, error: LinkError) -> bool:
        """Wait before the broker is asked again; return True if the worker is abandoned."""
        return self._abandoned.wait(self._outage.failed(error))

    def close(self) -> None:
        """End the thread once all that waits is written, or the worker is abandoned."""
        if not self._closed:
            self._closed = True
            self._queue.put(self._ended)
            self._thread.join(timeout=2.0 * self._app.timeout_s)

    def _serve(self) -> None:
        while not self._ended.is_set():
            batch, event = self._gather()
            if batch:
                self._finish(batch)
            if event is not None:
                event.set()

    def _gather(self) -> tuple[list[Completion], threading.Event | None]:
        """Wait for what is written together; return it, and an event that came after it."""
        batch: list[Completion] = []
        size = 0
        while not batch or (self._has_room(len(batch), size) and not self._queue.empty()):
            item = self._queue.get()
            if isinstance(item, threading.Event):
                return batch, item
            batch.append(item)
            size += len(item.record)
        return batch, None

    def _finish(self, batch: Sequence[Completion]) -> None:
        written = self._write(batch)
        marks = [] if self._atomic else [one.mark for one in written if one.mark]
        if marks:
            with contextlib.suppress(LinkError):  # they stay: some bytes, and no wrong answer
                let_marks_expire(self._app, marks)
        if self._observers.extensions:
            self._notify(written)
        try:
            self._on_done(*(completion.job for completion in batch))
        except Exception:  # this thread must go on: every completion goes through it
            self._log.exception("completion", jobs=len(batch))

    def _notify(self, written: Sequence[Completion]) -> None:
        for completion in written:
            job = completion.job
            if job.outcome is not None and not job.is_lost:
                self._observers.finished(job, job.outcome)

    def _has_room(self, count: int, size_bytes: int) -> bool:
        """Return whether one more may go with these: the server does nothing else meanwhile."""
        gathers = self._atomic is not None or self._commits
        return gathers and count < MOST_AT_ONCE and size_bytes < MOST_BYTES

    def _write(self, batch: Sequence[Completion]) -> list[Completion]:
        """Write `batch`; one that cannot be written is a dead letter, the others are written.

        Returns those that were written before the worker was abandoned.
        """
        try:
            # Never acknowledge before the result is stored.
            written = [
                completion
                for completion in self._counted(self._stored(batch))
                if (self._is_one_step and not completion.requeue)
                or all(self.until_done(step) for step in self._steps(completion))
            ]
            if self._atomic:
                ends = [one for one in written if not one.requeue]
                if not self.until_done(self._complete, ends):
                    return [one for one in written if one.requeue]
            for completion in written:
                if completion.follow_up is not None:
                    self._app.follow_ups.note_joined(completion, self.until_done)
            return written
        except Exception as error:
            if len(batch) > 1:
                return [one for completion in batch for one in self._write([completion])]
            self._log.exception("completion", **_about(batch[0].job))
            self._give_up(batch[0], error)
            return []

    def _give_up(self, completion: Completion, error: Exception) -> None:
        with contextlib.suppress(Exception):
            reason = f"its end cannot be written: {error}"
            self.until_done(completion.job.delivery.reject, reason)

    def _stored(self, batch: Sequence[Completion]) -> list[Completion]:
        """Store the results of a backend of its own, all at once.

        Returns the completions to go on with: not those whose result was refused, which are
        dead letters, nor any if the worker was abandoned before. If another result is stored
        already, the messages that follow are that result's.
        """
        results = self._results
        if results is None or self._is_one_step:
            return list(batch)
        # After a lost lease the worker that has the message now writes its end.
        going = [one for one in batch if one.requeue or not one.job.is_lost]
        to_store = [one for one in going if one.record and not one.requeue]
        answers: list[bool | ResultError] = []

        def store() -> None:
            records = [(one.job.message.id, one.record) for one in to_store]
            answers[:] = results.write_many(records)

        if to_store and not self.until_done(store, outage=self._results_outage):
            return [one for one in going if not any(one is other for other in to_store)]
        instead: dict[int, Completion | None] = {}
        for completion, answer in zip(to_store, answers, strict=True):
            if isinstance(answer, ResultError):
                self._log.error("result", **_about(completion.job), reason=str(answer))
                self._give_up(completion, answer)
                instead[id(completion)] = None
            elif not answer:
                self._log.warning("result stands", **_about(completion.job))
                instead[id(completion)] = self._restated(completion)
        found = [instead.get(id(one), one) for one in going]
        return [one for one in found if one is not None]

    def _restated(self, completion: Completion) -> Completion | None:
        """Return `completion` with what follows the stored result; None if abandoned."""
        if not (completion.next or completion.follow_up):
            return completion
        found: list[tuple[Completion, Record | None]] = []
        restated = self._app.follow_ups.restated
        self.until_done(lambda: found.append(restated(completion)), outage=self._results_outage)
        for restated_one, stored in found:
            if stored is not None:
                completion.job.previous = stored
                completion.job.outcome = Outcome(state=stored.state, settled=True)
            return restated_one
        return None

    def _counted(self, batch: Sequence[Completion]) -> list[Completion]:
        """Do what follow-ups need before, if that is a step of its own."""
        if all(one.follow_up is None for one in batch):
            return list(batch)
        counted = [
            completion
            if completion.follow_up is None
            else self._app.follow_ups.count(completion, self.until_done)
            for completion in batch
        ]
        return [one for one in counted if one is not None]

    def _steps(self, completion: Completion) -> Iterator[Callable[[], Any]]:
        """Yield the steps before the one step, or instead of it; each is repeated alone."""
        delivery = completion.job.delivery
        if completion.requeue:
            aside = completion.job.aside
            yield delivery.requeue if aside is None else partial(delivery.requeue, aside=aside)
            return
        if self._atomic:
            return
        for message in completion.next:
            yield partial(self._app.publisher.publish, message)
        if completion.dead and completion.acks:
            yield partial(delivery.reject, completion.dead)
        elif completion.acks:
            yield delivery.ack
        if completion.frees is not None:
            yield partial(delivery.free, completion.frees, completion.message.id)

    def _complete(self, completions: Sequence[Completion]) -> None:
        if not completions or self._atomic is None:
            return
        for completion, refused in zip(
            completions, self._atomic.complete(completions), strict=True
        ):
            if refused:
                completion.job.outcome = None  # nothing of it is written
                self._log.warning("result refused", **_about(completion.job), reason=refused)


def _about(job: Job) -> dict[str, str]:
    return {"task": job.task.name, "id": job.message.id}
