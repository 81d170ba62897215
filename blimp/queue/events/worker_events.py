"""What one worker tells of itself and its tasks.

How it is told is loaded when it is first enabled: most workers tell nothing.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from blimp.queue.events.buffer import HOLD_BYTES, Event, EventBuffer
from blimp.queue.extensions import ControlCommand, Extension
from blimp.queue.worker.job import Stage

if TYPE_CHECKING:
    from msgspec import Struct

    from blimp.queue.events.fields import Fields
    from blimp.queue.events.sender import EventSender
    from blimp.queue.protocol.outcome import Outcome
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.worker import Worker

BEATS = 3  # of the pulse, from one heartbeat to the next


class WorkerEvents(Extension):
    """Told of each job, it tells whoever listens on Celery's exchange. Any thread's.

    Nothing is sent, and no thread runs, until it is first enabled. From then on the worker
    sends heartbeats until it stops, and events of its tasks while enabled. Where more waits to
    be sent than HOLD_BYTES, and the broker takes it, no more tasks are taken until it is sent.

    clock: the worker's logical clock, for all that it says. beat_s: between two of its pulse.
    """

    observes_jobs = False  # but while it is enabled

    def __init__(self, worker: Worker) -> None:
        self.clock = worker.logical_clock
        self._app = worker.app
        self._in_flight = worker.in_flight
        self._counts = worker.counts
        self._observers = worker.observers
        self._log = worker.log
        self._beat_s = worker.beat_s
        self.commands = {
            "enable_events": ControlCommand(function=self._answer_enable, is_change=False),
            "disable_events": ControlCommand(function=self._answer_disable),
            "heartbeat": ControlCommand(function=self._answer_heartbeat, is_change=False),
        }
        self._next_s = 0.0
        self._lock = threading.Lock()
        self._is_enabled = self._closed = self._was_held = False
        self._buffer = EventBuffer()
        self._sender: EventSender | None = None
        self._name = worker.name
        self._about = b""
        self._wall_s = 0.0  # what the app's clock is behind the time of day
        self._in_flight.held_by = self._holds

    def starting(self) -> None:
        if self._app.events:
            self.enable()

    def stopped(self) -> None:
        self.close()

    @property
    def is_enabled(self) -> bool:
        """Whether events of tasks are sent."""
        return self._is_enabled

    def enable(self) -> bool:
        """Send events of tasks from now on; False where they are sent already."""
        with self._lock:
            if self._is_enabled or self._closed:
                return False
            if self._sender is None:
                self._start()
            self._is_enabled = True
            self._observers.add(self)
            return True

    def disable(self) -> bool:
        """Send no more events of tasks; False where none are sent."""
        with self._lock:
            if not self._is_enabled:
                return False
            self._is_enabled = False
            self._observers.remove(self)
            return True

    def beat(self, alive: bool) -> None:
        """Send a heartbeat now and then; called with every beat of the pulse."""
        now_s = self._app.clock.now_s()
        if self._sender is None or now_s < self._next_s:
            return
        self._tell_dropped()
        if alive:
            self._next_s = now_s + (BEATS - 0.5) * self._beat_s
            self.heartbeat()

    def heartbeat(self) -> None:
        """Send a heartbeat, where events were ever enabled."""
        if self._sender is not None:
            self._tell_worker("worker-heartbeat")

    def close(self) -> None:
        """Tell that the worker goes, and send what waits. Idempotent."""
        self.disable()
        with self._lock:
            sender, self._sender, self._closed = self._sender, None, True
        if sender is not None:
            self._tell_worker("worker-offline")
            sender.close(within_s=2.0 * self._app.timeout_s)
            self._tell_dropped()

    # --- told of jobs, in any thread ------------------------------------------------------------

    def received(self, job: Job) -> None:
        from blimp.queue.events import fields

        at_s = self._wall_s + (job.received_s or 0.0)
        self._put("task-received", fields.received(job.message, at_s=at_s))

    def started(self, job: Job) -> None:
        from blimp.queue.events import fields

        at_s = self._wall_s + (job.started_s or 0.0)
        self._put("task-started", fields.Started("task-started", at_s, job.message.id))

    def finished(self, job: Job, outcome: Outcome) -> None:
        from blimp.queue.events import fields

        at_s = self._wall_s + (job.ended_s or self._app.clock.now_s())
        told = fields.ended(job, outcome, at_s=at_s)
        if told is not None:
            self._put(
                "task-succeeded" if isinstance(told, fields.Succeeded) else told["type"], told
            )

    def lost(self, job: Job) -> None:
        """Whoever has it now tells of it."""

    # --- asked by remote control -----------------------------------------------------------------

    def _answer_enable(self, **_: Any) -> dict[str, str]:
        return {"ok": f"task events {'' if self.enable() else 'already '}enabled"}

    def _answer_disable(self, **_: Any) -> dict[str, str]:
        return {"ok": f"task events {'' if self.disable() else 'already '}disabled"}

    def _answer_heartbeat(self, **_: Any) -> None:
        self.heartbeat()

    # --- inside -----------------------------------------------------------------------------------

    def _start(self) -> None:
        from blimp.queue.events import fields
        from blimp.queue.events.sender import EventSender, open_post

        self._about = fields.about_program(hostname=self._name, pid=os.getpid())
        self._next_s = self._app.clock.now_s() + self._beat_s
        self._tell_worker("worker-online")
        self._sender = EventSender(
            buffer=self._buffer,
            post=open_post(self._app, hostname=self._name),
            clock=self.clock,
            outage=self._app.outage("events not sent", log=self._log),
            on_sent=self._sent,
            log=self._log,
        )
        self._sender.start()

    def _tell_worker(self, kind: str) -> None:
        from blimp.queue.events import fields

        self._set_time()
        running = sum(job.stage is Stage.RUNNING for job in self._in_flight.jobs())
        about: Fields = {
            "freq": BEATS * self._beat_s,
            "active": running,
            "processed": self._counts["done"],
            "loadavg": [round(load, 2) for load in os.getloadavg()],
            **fields.SOFTWARE,
        }
        if self._buffer.dropped:
            about["dropped"] = self._buffer.dropped  # not Celery's: whoever counts may know
        about |= {"type": kind, "timestamp": self._app.clock.wall_s()}
        self._put(kind, about)

    def _put(self, kind: str, told: Fields | Struct) -> None:
        from blimp.queue.events import fields

        self._buffer.put(Event(kind, fields.to_bytes(told, about=self._about)))

    def _set_time(self) -> None:
        """Find the time of day anew: it may have been set since. All else is one clock's."""
        self._wall_s = self._app.clock.wall_s() - self._app.clock.now_s()

    def _tell_dropped(self) -> None:
        dropped = self._buffer.dropped
        if dropped > self._counts["events_dropped"]:
            self._counts["events_dropped"] = dropped
            self._log.error("events dropped", events=dropped)

    # --- holding back ---------------------------------------------------------------------------

    def _holds(self) -> bool:
        """Say whether no more tasks are to be taken: what they would tell has no room."""
        if self._buffer.size_bytes <= HOLD_BYTES:
            return False
        sender = self._sender
        self._was_held = sender is not None and sender.is_flowing
        return self._was_held

    def _sent(self) -> None:
        if self._was_held and not self._holds():
            self._was_held = False
            self._in_flight.nudge()
