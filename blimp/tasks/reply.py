"""A command under way as its sender follows it, and the reply it ends with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from blimp.closing import Closing

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.protocol.record import Record
    from blimp.queue.results.backend import ResultWatch

Stage = Literal["queued", "received", "executing", "done"]
OnProgress = Callable[[str, float | None], None]
ReplyState = Literal[
    "SUCCESS", "FAILURE", "REFUSED", "EXPIRED", "SUPERSEDED", "INTERRUPTED", "TIMEOUT"
]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended, as far as the sender knows.

    latency_ms: from sending to the first report that the ship accepted or refused it: its
        first progress, or its end. On this machine's clock; None if no report came.
    kind: the name of the exception it ended with, "" if there was none.
    roads_ms: of an emergency stop, from the press to the confirmation by each of its roads.
    """

    id: str
    task: str
    state: ReplyState
    result: Any = None
    reason: str = ""
    latency_ms: float | None = None
    kind: str = ""
    roads_ms: dict[str, float] = {}  # msgspec copies it


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """One step on the way: queued, received by the worker, executing a fraction, done.

    fraction: how much is done, 0 to 1, if the ship reported it.
    """

    stage: Stage
    fraction: float | None = None
    elapsed_ms: float = 0.0
    reason: str = ""


class Pending(Closing):
    """One command under way, for use by one thread. A context manager; close is idempotent.

    watch: of its reports; it is `on_close` that gives it back or closes it.
    `reply` is None until the command has ended. Waiting may be repeated after a TIMEOUT or a
    LinkError; it continues with the next step.
    `heard_s`: when the last report came, one without news included; on the clock, -inf before.
    """

    def __init__(
        self,
        *,
        id: str,
        task: str,
        watch: ResultWatch,
        sent_s: float,
        clock: Clock,
        on_close: Callable[[], None],
    ) -> None:
        self.id = id
        self.task = task
        self.reply: Reply | None = None
        self._watch = watch
        self._sent_s = sent_s
        self._clock = clock
        self._on_close: Callable[[], None] | None = on_close
        self._latency_ms: float | None = None
        self._last: Record | None = None
        self.heard_s = -inf
        self._has_queued = self._has_received = False  # steps that were yielded

    def wait(self, timeout_s: float, on_progress: OnProgress | None = None) -> Reply:
        """Return the reply; its state is TIMEOUT if it has not ended within `timeout_s`.

        on_progress: called with each step's stage and fraction, or with why the ship waits
        ("waits: link lost: holding") and None. Raises LinkError if the broker is lost.
        """
        for step in self.events(timeout_s=timeout_s):
            if on_progress is not None and step.stage == "executing" and step.reason:
                on_progress(step.reason, None)
            elif on_progress is not None and step.stage != "done":
                on_progress(step.stage, step.fraction)
        return self.reply or self.timed_out(timeout_s)

    def events(self, *, timeout_s: float) -> Iterator[Progress]:
        """Yield each step as it comes; end with "done", or without it after `timeout_s`."""
        deadline_s = self._clock.now_s() + timeout_s
        if not self._has_queued:
            self._has_queued = True
            yield Progress(stage="queued")
        while self.reply is None and self._on_close is not None:
            left_s = max(0.0, deadline_s - self._clock.now_s())
            record = self._watch.next(timeout_s=left_s)
            if record is None:
                return
            self.heard_s = self._clock.now_s()
            if self._is_old(record):
                continue
            step = self._step(record)
            if step.stage == "executing" and not self._has_received:
                # The stored record has overtaken the report of its arrival: yield both.
                yield Progress(stage="received", elapsed_ms=step.elapsed_ms)
            self._has_received = True
            yield step

    @property
    def is_heard(self) -> bool:
        """Whether the ship, or its worker, has said anything of this command."""
        return self._last is not None

    def close(self) -> None:
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def timed_out(self, timeout_s: float) -> Reply:
        """Return the reply of a command whose outcome is unknown, with its last known step."""
        last = self._last
        if last is None:
            reason = f"no word from the vehicle within {timeout_s:g} s: outcome unknown"
        else:
            detail = str(_details(last).get("reason", ""))
            reason = f"last known state {last.state.value}"
            reason += f": {detail}" if detail else ""
        if self._watch.forged:
            reason += f"; {self._watch.forged} reports were passed over: not signed with our key"
        return Reply(
            id=self.id,
            task=self.task,
            state="TIMEOUT",
            reason=reason,
            latency_ms=self._latency_ms,
        )

    def _is_old(self, record: Record) -> bool:
        """Say whether `record` is older than the last one: a stored record overtakes events."""
        last = self._last
        if self._has_received and _is_unsent(record):
            return True
        if last is None or record.final or last.state != "PROGRESS":
            return False
        backwards = record.state == "STARTED" or _fraction(record) < _fraction(last)
        return backwards or record == last

    def _step(self, record: Record) -> Progress:
        """Remember `record` and return it as a step."""
        self._last = record
        elapsed_ms = round((self._clock.now_s() - self._sent_s) * 1000.0, 3)
        details = _details(record)
        fraction, reason = details.get("fraction"), str(details.get("reason", ""))
        is_sent = record.state == "PROGRESS" and not _is_unsent(record)
        executing = is_sent and isinstance(fraction, int | float)
        if self._latency_ms is None and (executing or record.final):
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


def _is_unsent(record: Record) -> bool:
    """Say whether the worker has the command and the ship does not yet: see `CommandRun`."""
    return _details(record).get("sent") is False


def _fraction(record: Record) -> float:
    fraction = _details(record).get("fraction")
    return float(fraction) if isinstance(fraction, int | float) else 0.0


def _details(record: Record) -> dict[str, Any]:
    return record.result if isinstance(record.result, dict) and not record.final else {}


def reply_of(record: Record, *, task: str, latency_ms: float | None) -> Reply:
    """Return a final record as a reply."""
    states: dict[str, ReplyState] = {
        "SUCCESS": "SUCCESS",
        "FAILURE": "FAILURE",
        "REFUSED": "REFUSED",
        "EXPIRED": "EXPIRED",
        "INTERRUPTED": "INTERRUPTED",
        "REVOKED": "EXPIRED",  # a Celery worker reports an expired task this way
        "SUPERSEDED": "SUPERSEDED",
    }
    return Reply(
        id=record.id,
        task=task or record.name or "",
        state=states[record.state.value],
        result=record.result,
        reason=record.reason,
        latency_ms=None if latency_ms is None else round(latency_ms, 3),
        kind=record.fault.exc_type if record.fault else "",
    )
