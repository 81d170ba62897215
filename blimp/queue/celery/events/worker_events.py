"""Events of one worker and its tasks, as an extension of it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from blimp.queue.celery.events import fields
from blimp.queue.celery.events.event_sender import (
    HOLD_BYTES,
    Event,
    EventBuffer,
    EventExchange,
    EventSender,
)
from blimp.queue.extensions import ControlCommand, Extension
from blimp.queue.worker.job import Stage

if TYPE_CHECKING:
    from msgspec import Struct

    from blimp.queue.celery.events.fields import Fields
    from blimp.queue.protocol.record import Outcome
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.worker import Worker

BEATS = 3  # of the worker's heartbeat, from one `worker-heartbeat` to the next


class WorkerEvents(Extension):
    """Sends what becomes of each job to Celery's event exchange. Any thread's.

    Nothing is sent, and no thread runs, until it is first enabled. From then on the worker
    sends heartbeats until it stops, and events of its tasks while enabled. While more than
    HOLD_BYTES wait, and the broker takes events, the worker takes no further tasks.
    """

    observes_jobs = False  # except while it is enabled

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._app = worker.app
        self.commands = {
            "enable_events": ControlCommand(function=self._answer_enable, is_change=False),
            "disable_events": ControlCommand(function=self._answer_disable),
            "heartbeat": ControlCommand(function=self._answer_heartbeat, is_change=False),
        }
        self.is_enabled = False  # whether events of tasks are sent
        self._next_s = 0.0
        self._lock = threading.Lock()
        self._closed = self._was_held = False
        self._buffer = EventBuffer()
        self._sender: EventSender | None = None
        self._program = b""
        self._wall_s = 0.0  # added to the app's clock it is the time of day
        worker.in_flight.held_by = self._holds

    def starting(self) -> None:
        if self._app.events:
            self.enable()

    def stopped(self) -> None:
        self.close()

    def enable(self) -> bool:
        """Send events of tasks from now on; False if they are sent already."""
        with self._lock:
            if self.is_enabled or self._closed:
                return False
            if self._sender is None:
                self._start()
            self.is_enabled = True
            self._worker.observers.add(self)
            return True

    def disable(self) -> bool:
        """Send no more events of tasks; False if none are sent."""
        with self._lock:
            if not self.is_enabled:
                return False
            self.is_enabled = False
            self._worker.observers.remove(self)
            return True

    def beat(self, alive: bool) -> None:
        """Send a `worker-heartbeat` at every BEATS-th heartbeat of the worker."""
        now_s = self._app.clock.now_s()
        if self._sender is None or now_s < self._next_s:
            return
        self._report_dropped()
        if alive:
            self._next_s = now_s + (BEATS - 0.5) * self._worker.beat_s
            self.heartbeat()

    def heartbeat(self) -> None:
        """Send a heartbeat, if events were ever enabled."""
        if self._sender is not None:
            self._send_worker("worker-heartbeat")

    def close(self) -> None:
        """Send that the worker stops, and what waits. Idempotent."""
        self.disable()
        with self._lock:
            sender, self._sender, self._closed = self._sender, None, True
        if sender is not None:
            self._send_worker("worker-offline")
            sender.close(within_s=2.0 * self._app.timeout_s)
            self._report_dropped()

    # --- hooks of a job, in any thread ----------------------------------------------------------

    def received(self, job: Job) -> None:
        at_s = self._wall_s + (job.received_s or 0.0)
        self._put("task-received", fields.received(job.message, at_s=at_s))

    def started(self, job: Job) -> None:
        at_s = self._wall_s + (job.started_s or 0.0)
        self._put("task-started", fields.Started("task-started", at_s, job.message.id))

    def finished(self, job: Job, outcome: Outcome) -> None:
        at_s = self._wall_s + (job.ended_s or self._app.clock.now_s())
        event = fields.ended(job, outcome, at_s=at_s)
        if event is not None:
            kind = event["type"] if isinstance(event, dict) else event.type
            self._put(kind, event)

    # --- remote-control commands ------------------------------------------------------------------

    def _answer_enable(self, **_: Any) -> dict[str, str]:
        return {"ok": f"task events {'' if self.enable() else 'already '}enabled"}

    def _answer_disable(self, **_: Any) -> dict[str, str]:
        return {"ok": f"task events {'' if self.disable() else 'already '}disabled"}

    def _answer_heartbeat(self, **_: Any) -> None:
        self.heartbeat()

    # --- inside -----------------------------------------------------------------------------------

    def _start(self) -> None:
        self._program = fields.program(hostname=self._worker.name, pid=os.getpid())
        self._next_s = self._app.clock.now_s() + self._worker.beat_s
        self._send_worker("worker-online")
        self._sender = EventSender(
            buffer=self._buffer,
            send=EventExchange(self._app, hostname=self._worker.name).send,
            clock=self._worker.logical_clock,
            outage=self._app.outage("events not sent", log=self._worker.log),
            on_sent=self._sent,
            log=self._worker.log,
        )
        self._sender.start()

    def _send_worker(self, kind: str) -> None:
        # Compare the clocks again: the time of day may have been set since.
        self._wall_s = self._app.clock.wall_s() - self._app.clock.now_s()
        running = sum(job.stage is Stage.RUNNING for job in self._worker.in_flight.jobs())
        event: Fields = {
            "freq": BEATS * self._worker.beat_s,
            "active": running,
            "processed": self._worker.counts["done"],
            "loadavg": [round(load, 2) for load in os.getloadavg()],
            **fields.software(),
        }
        if self._buffer.dropped:
            event["dropped"] = self._buffer.dropped  # Celery has no such field, and ignores it
        event |= {"type": kind, "timestamp": self._app.clock.wall_s()}
        self._put(kind, event)

    def _put(self, kind: str, event: Fields | Struct) -> None:
        self._buffer.put(Event(kind, fields.to_bytes(event, program=self._program)))

    def _report_dropped(self) -> None:
        dropped = self._buffer.dropped
        if dropped > self._worker.counts["events_dropped"]:
            self._worker.counts["events_dropped"] = dropped
            self._worker.log.error("events dropped", events=dropped)

    # --- holding back ---------------------------------------------------------------------------

    def _holds(self) -> bool:
        """Return whether to take no more tasks: there is no room for their events."""
        if self._buffer.size_bytes <= HOLD_BYTES:
            return False
        sender = self._sender
        self._was_held = sender is not None and sender.is_flowing
        return self._was_held

    def _sent(self) -> None:
        if self._was_held and not self._holds():
            self._was_held = False
            self._worker.in_flight.nudge()
