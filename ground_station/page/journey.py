"""The way of every command to a ship, with the time at which it passed each stage.

A reader of the queue sees what is sent, by anybody; the records that the worker publishes
say how far it is. Both are only read: nothing is added to a command or to its way.

| stage     | it is passed when                                   | known from              |
|-----------|-----------------------------------------------------|-------------------------|
| keyboard  | the sender sends it                                 | the message, broker's clock |
| queue     | it is in the stream                                 | the entry's id          |
| worker    | the worker has read and accepted it                 | its first record        |
| mailbox   | the task is about to give it to the flight process  | its first progress      |
| flight    | the flight process has accepted it                  | `accepted_s`, or progress |
| motor     | the same cycle has driven the outputs               | the cycle's mean time   |
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import BlimpError, NotGenuine
from blimp.queue.brokers.streams.envelope import unpack
from blimp.queue.protocol.read import parse_message
from blimp.queue.protocol.record import Record, State, decode
from blimp.queue.protocol.signing import Signer
from blimp.queue.redis.client import open_redis
from blimp.queue.redis.keys import RESULT_PREFIX, Keys
from blimp.queue.redis.urls import link_errors
from blimp.tasks.client import TASK_PREFIX, vehicle_queue
from ground_station.discover import ShipAddress
from ground_station.page.state import Hear

WAIT_S = 0.5
TIMEOUT_S = 2.0
RETRY_S = 0.5
REMEMBERED = 64
QUESTIONS = ("ping", "sensor", "status")  # they move nothing: only their time is shown
STREAMED = ("stick", "velocity", "motor")  # by a joystick, 20 times a second
STAGES = ("keyboard", "queue", "worker", "mailbox", "flight", "motor")


class Recorded(NamedTuple):
    """A command as it stood in the queue."""

    stream: str
    fields: dict[bytes, bytes]
    command: str


class Journey:
    """One command as far as it is known. stages: milliseconds since it was sent."""

    def __init__(self, *, id: str, command: str) -> None:
        self.id = id
        self.command = command
        self.arguments: dict[str, Any] = {}
        self.source = ""
        self.sent_s: float | None = None  # on this machine's monotonic clock
        self.stages: dict[str, float] = {}
        self.state = "QUEUED"
        self.reason = ""
        self.fraction: float | None = None
        self.done_ms: float | None = None
        self.is_heard = False  # its message, and not only what became of it
        self.is_one_of_many = False  # of a stream of setpoints: only its time is shown

    def begin(self, sent_s: float) -> None:
        """Count from when it was sent; a record of it may have come before its message."""
        if self.sent_s is not None:
            late_ms = 1e3 * (self.sent_s - sent_s)
            self.stages = {name: round(ms + late_ms, 2) for name, ms in self.stages.items()}
        self.sent_s = sent_s

    def passed(self, stage: str, at_s: float) -> None:
        """Note the first time at which it passed a stage."""
        if self.sent_s is None:
            self.sent_s = at_s
        self.stages.setdefault(stage, round(max(0.0, 1e3 * (at_s - self.sent_s)), 2))

    def document(self) -> dict[str, Any]:
        stages, at_ms = {}, 0.0
        for name in STAGES:
            if name in self.stages:  # two clocks are compared, by a round trip: not to the ms
                stages[name] = at_ms = max(at_ms, self.stages[name])
        return {
            "id": self.id,
            "command": self.command,
            "arguments": self.arguments,
            "source": self.source,
            "stages": stages,
            "state": self.state,
            "reason": self.reason,
            "fraction": self.fraction,
            "done_ms": self.done_ms,
        }


class Journeys(Closing):
    """Follows the commands to one ship from two threads; it tells each as it goes on.

    keys: with them only what is signed is believed.
    """

    def __init__(self, ship: ShipAddress, *, keys: Sequence[str] | None, clock: Clock) -> None:
        self._ship = ship
        self._signer = None if keys is None else Signer(keys)
        self._clock = clock
        self._queue = vehicle_queue(ship.vehicle)
        self._lock = threading.Lock()
        self._known: dict[str, Journey] = {}
        self._stop = threading.Event()
        self._theirs_minus_ours_s = 0.0
        self.last: Recorded | None = None  # but for questions and setpoints
        self.step_ms = 0.0  # the mean of one cycle, as the ship says

    def follow_queue(self, hear: Hear) -> None:
        """Tell of every command that is put into the queue, until `close`."""
        self._keep_on(lambda redis: self._read_queue(redis, hear))

    def follow_results(self, hear: Hear) -> None:
        """Tell of everything that becomes of them, until `close`."""
        self._keep_on(lambda redis: self._read_results(redis, hear))

    def close(self) -> None:
        self._stop.set()

    def _keep_on(self, follow: Callable[[Any], None]) -> None:
        """Follow again after each outage: of that the telemetry tells."""
        while not self._stop.is_set():
            try:
                with (
                    link_errors(self._ship.broker),
                    open_redis(self._ship.broker, timeout_s=TIMEOUT_S) as redis,
                ):
                    follow(redis)
            except BlimpError:
                self._stop.wait(RETRY_S)

    # --- the queue --------------------------------------------------------------------------

    def _read_queue(self, redis: Any, hear: Hear) -> None:
        levels = Keys().queue(self._queue).levels
        self._compare_clocks(redis)
        last: dict[Any, Any] = dict.fromkeys(levels, "$")
        while not self._stop.is_set():
            # A blocked reader is served before the worker can complete what is there.
            news = redis.xread(last, count=20, block=int(1e3 * WAIT_S))
            if not news:
                self._compare_clocks(redis)
            for stream, entries in news:
                last[stream.decode()] = entries[-1][0]
                for entry_id, fields in entries:
                    self._take_message(stream.decode(), entry_id, fields, hear)

    def _compare_clocks(self, redis: Any) -> None:
        asked_s = self._clock.now_s()
        seconds, microseconds = redis.time()
        middle_s = (asked_s + self._clock.now_s()) / 2.0
        self._theirs_minus_ours_s = seconds + 1e-6 * microseconds - middle_s

    def _take_message(
        self, stream: str, entry_id: bytes, fields: dict[bytes, bytes], hear: Hear
    ) -> None:
        try:
            payload = unpack([part for pair in fields.items() for part in pair])
            message = parse_message(
                headers=payload["headers"],
                body=payload["body"],
                content_type=payload.get("content-type"),
                content_encoding=payload.get("content-encoding"),
                queue=self._queue,
                signer=self._signer,
            )
        except (BlimpError, ValueError):
            return  # the worker says what is wrong with it
        put_s = int(entry_id.partition(b"-")[0]) / 1e3
        issued_s = put_s if message.issued_ms is None else message.issued_ms / 1e3
        with self._lock:
            journey = self._journey(message.id, message.task)
            sent_s = min(issued_s, put_s) - self._theirs_minus_ours_s
            if not journey.is_heard:
                journey.begin(sent_s)
            journey.arguments = dict(message.kwargs)
            journey.is_heard = True
            journey.is_one_of_many = message.coalesce is not None
            journey.source = str(message.headers.get("blimp_source", ""))[:80]
            journey.passed("keyboard", journey.sent_s or sent_s)
            journey.passed("queue", put_s - self._theirs_minus_ours_s)
            if journey.command not in (*QUESTIONS, *STREAMED):
                self.last = Recorded(stream, fields, journey.command)
            self._tell(journey, hear)

    # --- what becomes of them ---------------------------------------------------------------

    def _read_results(self, redis: Any, hear: Hear) -> None:
        with redis.pubsub(ignore_subscribe_messages=True) as watch:
            watch.psubscribe(RESULT_PREFIX + "*")
            while not self._stop.is_set():
                found = watch.get_message(timeout=WAIT_S)
                if found is not None and found["type"] == "pmessage":
                    self._take_record(found["channel"], found["data"], hear)

    def _take_record(self, channel: bytes, data: bytes, hear: Hear) -> None:
        now_s = self._clock.now_s()
        id = channel.decode(errors="replace").removeprefix(RESULT_PREFIX)
        try:
            if self._signer is not None:
                self._signer.check_appended(data, place=f"result of {id}")
            record = decode(data)
        except (BlimpError, NotGenuine):
            return
        with self._lock:
            if record.queue != self._queue and id not in self._known:
                return
            journey = self._journey(id, record.name or "")
            self._note(journey, record, now_s)
            self._tell(journey, hear)

    def _note(self, journey: Journey, record: Record, now_s: float) -> None:
        details = record.result if isinstance(record.result, dict) else {}
        journey.state = record.state.value
        journey.reason = record.reason or ("" if record.final else str(details.get("reason", "")))
        journey.passed("worker", now_s)
        if record.state is State.PROGRESS:
            journey.passed("mailbox", now_s)
        accepted_s = details.get("accepted_s")
        is_accepted = record.state is State.PROGRESS and details.get("sent") is not False
        if isinstance(accepted_s, int | float) or is_accepted:
            at_s = self._accepted(accepted_s, journey, now_s)
            journey.passed("flight", at_s)
            journey.passed("motor", at_s + 1e-3 * self.step_ms)
        fraction = details.get("fraction")
        if isinstance(fraction, int | float):
            journey.fraction = float(fraction)
        if record.final:
            journey.done_ms = round(1e3 * (now_s - (journey.sent_s or now_s)), 2)

    def _accepted(self, accepted_s: object, journey: Journey, now_s: float) -> float:
        """Return when the ship accepted it: its own time, if its clock is that of this machine."""
        if isinstance(accepted_s, int | float) and (journey.sent_s or 0.0) <= accepted_s <= now_s:
            return float(accepted_s)
        return now_s

    def _journey(self, id: str, task: str) -> Journey:
        journey = self._known.get(id)
        if journey is None:
            journey = self._known[id] = Journey(id=id, command=task.removeprefix(TASK_PREFIX))
            while len(self._known) > REMEMBERED:
                self._known.pop(next(iter(self._known)))
        return journey

    def _tell(self, journey: Journey, hear: Hear) -> None:
        if journey.command in STREAMED and not journey.is_heard:
            return
        is_question = journey.command in QUESTIONS
        if not is_question and not journey.is_one_of_many:
            hear("command", journey.document())
            return
        if is_question and journey.is_heard:
            hear("question", journey.document())
        if "flight" in journey.stages and journey.done_ms is not None:
            hear("latency", {"ms": journey.stages["flight"], "round_trip_ms": journey.done_ms})
