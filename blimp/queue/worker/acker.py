"""Completion jobs with the broker: many at a time, by one thread, so that no executor waits for it.

Endings that come while one writing is under way go together in the next. Nothing is waited for
in order to gather more: where the broker is quicker than the tasks, each is written at once.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError, ResultError
from blimp.queue.protocol.outcome import Outcome

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.brokers.base import Completion, Consumer
    from blimp.queue.extensions import Observers
    from blimp.queue.protocol.record import Record
    from blimp.queue.retry import Outage
    from blimp.queue.worker.job import Job

MOST_AT_ONCE = 128
MOST_BYTES = 1_000_000
LOOK_S = 1.0  # between looks whether there is still something to wait for


class Acker:
    """Writes endings, each until the broker took it or the worker is abandoned.

    Where the line can, all of an ending is one step. Otherwise the result is stored and what
    follows is queued before the message is acknowledged: a worker killed in between leaves a
    message that comes again, finds its result, and is only acknowledged.

    on_ran: called with each job that waits for a commit, in any thread.
    on_done: called with the jobs that have left the worker's hands, in the settler's thread.
    Close is idempotent; what waits then is written once more, or comes again.
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
        self._consumer = consumer
        self._abandoned = abandoned
        self._on_done = on_done
        self._observers = observers
        self._log = log
        self._outage = app.outage("broker away", log=log)
        self._results_outage = app.outage("results away", log=log)
        self._on_ran = on_ran
        self._commits = app.results is not None and app.results.commits
        # Elsewhere a result goes first, to a server of its own.
        self._atomic = app.capabilities.atomic_completion
        self._is_one_step = self._atomic and (app.results is None or app.completes_at_once)
        # An event is set once what came before it is written.
        self._endings: queue.SimpleQueue[Completion | threading.Event] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="settler", daemon=True)
        self._thread.start()

    def settle(self, ending: Completion) -> None:
        """Have `ending` written, and its job let go then. Any thread; does not wait."""
        if self._commits:
            self._on_ran(ending.job)
        self._endings.put(ending)

    def wait_written(self) -> None:
        """Wait until what was handed over before is written, or the worker ends."""
        written = threading.Event()
        self._endings.put(written)
        while not written.wait(LOOK_S) and not (self._abandoned.is_set() or self._closed):
            pass

    def until_done(
        self, function: Callable[..., Any], *args: Any, outage: Outage | None = None
    ) -> bool:
        """Call until the broker takes it; False where the worker was abandoned before.

        outage: of what is asked, where that is not the broker.
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
        """Wait before the broker is asked again; True where the worker is abandoned."""
        return self._abandoned.wait(self._outage.failed(error))

    def close(self) -> None:
        """End the thread, once what waits is written or the worker is abandoned."""
        if not self._closed:
            self._closed = True
            self._endings.put(self._ended)
            self._thread.join(timeout=2.0 * self._app.timeout_s)

    def _serve(self) -> None:
        while not self._ended.is_set():
            batch, event = self._gather()
            if batch:
                self._finish(batch)
            if event is not None:
                event.set()

    def _gather(self) -> tuple[list[Completion], threading.Event | None]:
        """Wait for what is to be written together; return it, and an event that came after it."""
        batch: list[Completion] = []
        size = 0
        while not batch or (self._has_room(len(batch), size) and not self._endings.empty()):
            item = self._endings.get()
            if isinstance(item, threading.Event):
                return batch, item
            batch.append(item)
            size += len(item.record)
        return batch, None

    def _finish(self, batch: Sequence[Completion]) -> None:
        written = self._write(batch)
        if self._observers:
            self._tell(written)
        try:
            self._on_done(*(ending.job for ending in batch))
        except Exception:  # nothing ends this thread: all that ends goes through it
            self._log.exception("settle", jobs=len(batch))

    def _tell(self, written: Sequence[Completion]) -> None:
        for ending in written:
            job = ending.job
            if job.outcome is not None and not job.is_lost:
                self._observers.finished(job, job.outcome)

    def _has_room(self, count: int, size_bytes: int) -> bool:
        """Say whether one more may go with these: the server does nothing else meanwhile."""
        gathers = self._atomic or self._commits
        return gathers and count < MOST_AT_ONCE and size_bytes < MOST_BYTES

    def _write(self, batch: Sequence[Completion]) -> list[Completion]:
        """Write `batch`; one that cannot be is a dead letter, and spoils no other.

        Returns what is written: not what the worker was abandoned before.
        """
        try:
            # No step without the one before it: no message goes whose result is not written.
            written = [
                ending
                for ending in self._counted(self._stored(batch))
                if (self._is_one_step and not ending.requeue)
                or all(self.until_done(step) for step in self._steps(ending))
            ]
            if self._atomic:
                ends = [one for one in written if not one.requeue]
                if not self.until_done(self._end, ends):
                    return [one for one in written if one.requeue]
            for ending in written:
                if ending.chords is not None:
                    self._note_joined(ending)
            return written
        except Exception as error:
            if len(batch) > 1:
                return [one for ending in batch for one in self._write([ending])]
            self._log.exception("settle", **_about(batch[0].job))
            self._give_up(batch[0], error)
            return []

    def _give_up(self, ending: Completion, error: Exception) -> None:
        with contextlib.suppress(Exception):
            reason = f"its end cannot be written: {error}"
            self.until_done(ending.job.delivery.reject, reason)

    def _stored(self, batch: Sequence[Completion]) -> list[Completion]:
        """Write the results that go to a keeper of their own, all at once.

        Returns the endings to go on with: not those whose result was refused, which are dead
        letters, nor any where the worker was abandoned before. Where another result stands,
        what follows is that one's.
        """
        results = self._app.results
        if results is None or self._is_one_step:
            return list(batch)
        # A lease that was lost meanwhile: whoever has the message now says what became of it.
        going = [one for one in batch if one.requeue or not one.job.is_lost]
        kept = [one for one in going if one.record and not one.requeue]
        answers: list[bool | ResultError] = []

        def store() -> None:
            records = [(one.job.message.id, one.record) for one in kept]
            answers[:] = results.write_many(records)

        if kept and not self.until_done(store, outage=self._results_outage):
            return [one for one in going if not any(one is other for other in kept)]
        instead: dict[int, Completion | None] = {}
        for ending, answer in zip(kept, answers, strict=True):
            if isinstance(answer, ResultError):
                self._log.error("result", **_about(ending.job), reason=str(answer))
                self._give_up(ending, answer)
                instead[id(ending)] = None
            elif not answer:
                self._log.warning("result stands", **_about(ending.job))
                instead[id(ending)] = self._restated(ending)
        found = [instead.get(id(one), one) for one in going]
        return [one for one in found if one is not None]

    def _restated(self, ending: Completion) -> Completion | None:
        """Return `ending` with what follows the result that stands; None where abandoned."""
        if not (ending.next or ending.chords):
            return ending
        from blimp.queue.canvas.follow import restated

        found: list[tuple[Completion, Record | None]] = []
        self.until_done(
            lambda: found.append(restated(self._app, ending)), outage=self._results_outage
        )
        for completion, stands in found:
            if stands is not None:
                ending.job.previous = stands
                ending.job.outcome = Outcome(state=stands.state, settled=True)
            return completion
        return None

    def _counted(self, batch: Sequence[Completion]) -> list[Completion]:
        """Count the parts of chords where that is a step of its own."""
        if all(one.chords is None for one in batch):
            return list(batch)
        from blimp.queue.canvas.chords import count_parts

        counted = [
            ending if ending.chords is None else count_parts(self._app, ending, self.until_done)
            for ending in batch
        ]
        return [one for one in counted if one is not None]

    def _note_joined(self, ending: Completion) -> None:
        from blimp.queue.canvas.chords import note_joined

        note_joined(self._app, ending, self.until_done)

    def _steps(self, ending: Completion) -> Iterator[Callable[[], Any]]:
        """Yield what is done before the one step, or instead of it; each is repeated alone."""
        delivery = ending.job.delivery
        if ending.requeue:
            yield delivery.requeue
            return
        if self._atomic:
            return
        for message in ending.next:
            yield partial(self._app.publisher.publish, message)
        if ending.dead and ending.acks:
            yield partial(delivery.reject, ending.dead)
        elif ending.acks:
            yield delivery.ack

    def _end(self, endings: Sequence[Completion]) -> None:
        if not endings:
            return
        for ending, refused in zip(endings, self._consumer.complete(endings), strict=True):
            if refused:
                ending.job.outcome = None  # nothing of it is written
                self._log.warning("result refused", **_about(ending.job), reason=refused)


def _about(job: Job) -> dict[str, str]:
    return {"task": job.task.name, "id": job.message.id}
