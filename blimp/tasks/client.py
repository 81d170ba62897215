"""The ground's end: send a command to a vehicle, follow it, stop the ship.

Light to import: kombu and redis-py are loaded with the first command.
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

import msgspec

from blimp.clock import Clock, SystemClock
from blimp.closing import Closing
from blimp.tasks.message import NORMAL, TaskMessage

if TYPE_CHECKING:
    from blimp.tasks.results.record import Record
    from blimp.tasks.results.redis import RedisResults, Watch
    from blimp.tasks.signing import Key

Stage = Literal["queued", "received", "executing", "done"]
OnProgress = Callable[[str, float | None], None]
ReplyState = Literal[
    "SUCCESS", "FAILURE", "REFUSED", "EXPIRED", "SUPERSEDED", "INTERRUPTED", "TIMEOUT"
]

TASK_PREFIX = "blimp."
DEFAULT_TTL_S = 5.0
ESTOP_REPEAT_S = 0.2


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended, as far as the ground knows.

    latency_ms: from sending to the first word that the ship accepted or refused it: its
        first progress, or its end. On this machine's clock; None where no word came.
    """

    id: str
    task: str
    state: ReplyState
    result: Any = None
    reason: str = ""
    latency_ms: float | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """One step on the way: queued, received by the worker, executing a fraction, done.

    fraction: how much is done, 0 to 1, where the ship told it.
    """

    stage: Stage
    fraction: float | None = None
    elapsed_ms: float = 0.0
    reason: str = ""


class VehicleClient(Closing):
    """Commands one vehicle. Thread-safe; a context manager; connects on first use.

    broker: a URL, or several as TaskApp takes them. signing_key: commands are signed with it.
    Every method raises LinkError, naming the broker, where none answers in `timeout_s`.
    """

    def __init__(
        self,
        broker: str | Sequence[str],
        vehicle: str,
        *,
        source: str = "",
        timeout_s: float = 2.0,
        clock: Clock | None = None,
        transport: str | None = None,
        signing_key: Key | Sequence[Key] | None = None,
    ) -> None:
        self._transport = transport
        self._signing_key = signing_key
        self.broker = broker
        self.vehicle = vehicle
        self._source = source or _who()
        self._timeout_s = timeout_s
        self.clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._results: RedisResults | None = None
        self._open: WeakSet[Pending] = WeakSet()

    def send(
        self,
        task: str,
        arguments: dict[str, Any] | None = None,
        *,
        ttl_s: float = DEFAULT_TTL_S,
        priority: int = NORMAL,
        id: str | None = None,
    ) -> Pending:
        """Queue a command; return what follows it.

        task: "takeoff" or "blimp.takeoff". ttl_s: it must begin within this many seconds,
        on the broker's clock. Raises MessageError for arguments that JSON cannot hold.
        """
        id = id or str(uuid.uuid4())
        name = task if task.startswith(TASK_PREFIX) else TASK_PREFIX + task
        results = self._link()
        message = TaskMessage(
            id=id,
            task=name,
            kwargs=dict(arguments or {}),
            queue=vehicle_queue(self.vehicle),
            priority=priority,
            issued_ms=int(self._broker_clock.now_s() * 1000),
            ttl_s=ttl_s,
            origin=self._source,
            headers={"blimp_vehicle": self.vehicle, "blimp_source": self._source},
        )
        watch = results.watch(id)  # before sending: nothing it says may be missed
        sent_s = self.clock.now_s()
        try:
            self._publisher.publish(message)
        except BaseException:
            watch.close()
            raise
        pending = Pending(id=id, task=name, watch=watch, sent_s=sent_s, clock=self.clock)
        self._open.add(pending)
        return pending

    def ping(self, *, timeout_s: float = 2.0) -> Reply:
        """Ask the vehicle for a sign of life."""
        return self.send("ping", ttl_s=timeout_s).wait(timeout_s)

    def estop(self, *, timeout_s: float = 3.0) -> Reply:
        """Stop every output now, past every queue; repeat until it is confirmed.

        SUCCESS only where the vehicle has confirmed it, TIMEOUT otherwise.
        """
        id = str(uuid.uuid4())
        results = self._link()
        sent_s = self.clock.now_s()
        watch = results.watch(id)
        pending = Pending(
            id=id, task=TASK_PREFIX + "estop", watch=watch, sent_s=sent_s, clock=self.clock
        )
        with pending:
            while True:
                self._publisher.broadcast(
                    f"{vehicle_queue(self.vehicle)}.emergency",
                    {"id": id, "name": "estop", "payload": {"source": self._source}},
                )
                left_s = timeout_s - (self.clock.now_s() - sent_s)
                reply = pending.wait(min(ESTOP_REPEAT_S, max(0.0, left_s)))
                if reply.state != "TIMEOUT":
                    return reply
                if left_s <= ESTOP_REPEAT_S:
                    return pending.timed_out(timeout_s)

    def result(self, id: str, *, task: str = "") -> Reply:
        """Return what is known of an earlier command; TIMEOUT where it has not ended."""
        record = self._link().get(id)
        if record.final:
            return reply_of(record, task=task, latency_ms=None)
        return Reply(
            id=id,
            task=record.name or task,
            state="TIMEOUT",
            result=record.result,
            reason=f"the command is {record.state.value}: not known to have ended",
        )

    def close(self) -> None:
        """Give up the connections, those of commands still waited for included. Idempotent."""
        for pending in list(self._open):
            pending.close()
        if self._results is not None:
            self._publisher.close()
            self._results.close()
            self._results = None

    def _link(self) -> RedisResults:
        from blimp.tasks.broker_clock import BrokerClock
        from blimp.tasks.brokers import Brokers
        from blimp.tasks.publisher import Publisher
        from blimp.tasks.results.redis import RedisResults
        from blimp.tasks.signing import Signer
        from blimp.tasks.urls import SCHEMES

        with self._lock:
            if self._results is None:
                brokers = Brokers(self.broker, schemes=SCHEMES)
                signer = None if self._signing_key is None else Signer(self._signing_key)
                self._publisher = Publisher(
                    url=brokers,
                    timeout_s=self._timeout_s,
                    transport=self._transport,
                    signer=signer,
                    clock=self.clock,
                )
                self._publisher.connect()
                self._results = RedisResults(
                    url=brokers, clock=self.clock, timeout_s=self._timeout_s
                )
                self._broker_clock = BrokerClock(link=self._results, clock=self.clock)
            return self._results


class Pending(Closing):
    """One command under way. One thread's; a context manager. Close is idempotent.

    `reply` is None until it has ended. Waiting may be repeated after a TIMEOUT, and after a
    LinkError: it then goes on where it was.
    """

    def __init__(self, *, id: str, task: str, watch: Watch, sent_s: float, clock: Clock) -> None:
        self.id = id
        self.task = task
        self.reply: Reply | None = None
        self._watch = watch
        self._sent_s = sent_s
        self._clock = clock
        self._latency_ms: float | None = None
        self._last: Record | None = None
        self._told_queued = self._told_received = False

    def wait(self, timeout_s: float, on_progress: OnProgress | None = None) -> Reply:
        """Return the reply; state TIMEOUT where it has not ended within `timeout_s`.

        on_progress: called with each step's stage and fraction. Raises LinkError where the
        broker is lost.
        """
        for step in self.events(timeout_s=timeout_s):
            if on_progress is not None and step.stage != "done":
                on_progress(step.stage, step.fraction)
        return self.reply or self.timed_out(timeout_s)

    def events(self, *, timeout_s: float) -> Iterator[Progress]:
        """Yield each step as it comes; end with "done", or without it after `timeout_s`."""
        deadline_s = self._clock.now_s() + timeout_s
        if not self._told_queued:
            self._told_queued = True
            yield Progress(stage="queued")
        while self.reply is None:
            left_s = max(0.0, deadline_s - self._clock.now_s())
            record = self._watch.next(timeout_s=left_s)
            if record is None:
                return
            if self._is_old(record):
                continue
            step = self._step(record)
            if step.stage == "executing" and not self._told_received:
                # The stored record has overtaken the word that it arrived; people get both.
                yield Progress(stage="received", elapsed_ms=step.elapsed_ms)
            self._told_received = True
            yield step

    def close(self) -> None:
        self._watch.close()

    def timed_out(self, timeout_s: float) -> Reply:
        """The outcome is unknown; say how far it was seen."""
        last = self._last
        if last is None:
            reason = f"no word from the vehicle within {timeout_s:g} s: outcome unknown"
        else:
            detail = str(_details(last).get("reason", ""))
            reason = f"{last.state.value} when it was last heard of"
            reason += f": {detail}" if detail else ""
        return Reply(
            id=self.id,
            task=self.task,
            state="TIMEOUT",
            reason=reason,
            latency_ms=self._latency_ms,
        )

    def _is_old(self, record: Record) -> bool:
        """Say whether it was known before: the stored record overtakes those on their way."""
        last = self._last
        if last is None or record.final or last.state != "PROGRESS":
            return False
        backwards = record.state == "STARTED" or _fraction(record) < _fraction(last)
        return backwards or record == last

    def _step(self, record: Record) -> Progress:
        """Take note of `record` and return it as people see it."""
        self._last = record
        elapsed_ms = round((self._clock.now_s() - self._sent_s) * 1000.0, 3)
        details = _details(record)
        fraction, reason = details.get("fraction"), str(details.get("reason", ""))
        executing = record.state == "PROGRESS" and isinstance(fraction, int | float)
        accepted = executing and not reason
        if self._latency_ms is None and (accepted or record.final):
            self._latency_ms = elapsed_ms
        if record.final:
            self.reply = reply_of(record, task=self.task, latency_ms=self._latency_ms)
            self.close()
            return Progress(stage="done", elapsed_ms=elapsed_ms, reason=record.reason)
        return Progress(
            stage="executing" if executing else "received",
            fraction=float(fraction or 0.0) if executing else None,
            elapsed_ms=elapsed_ms,
            reason=reason or record.reason,
        )


def _fraction(record: Record) -> float:
    fraction = _details(record).get("fraction")
    return float(fraction) if isinstance(fraction, int | float) else 0.0


def _details(record: Record) -> dict[str, Any]:
    return record.result if isinstance(record.result, dict) and not record.final else {}


def vehicle_queue(vehicle: str) -> str:
    """Return the queue, and the app's name, of one vehicle."""
    return f"blimp.{vehicle}"


def reply_of(record: Record, *, task: str, latency_ms: float | None) -> Reply:
    """Return a final record as a reply."""
    states: dict[str, ReplyState] = {
        "SUCCESS": "SUCCESS",
        "FAILURE": "FAILURE",
        "REFUSED": "REFUSED",
        "EXPIRED": "EXPIRED",
        "INTERRUPTED": "INTERRUPTED",
        "REVOKED": "EXPIRED",  # a Celery worker's word for it
        "SUPERSEDED": "SUPERSEDED",
    }
    return Reply(
        id=record.id,
        task=task or record.name or "",
        state=states[record.state.value],
        result=record.result,
        reason=record.reason,
        latency_ms=None if latency_ms is None else round(latency_ms, 3),
    )


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"
