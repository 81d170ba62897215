"""An emergency stop, and one broker on its way: the connection, and the thread that has it."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from typing import TYPE_CHECKING, Any, Protocol

import hiredis

from blimp.closing import Closing
from blimp.errors import LinkError, NotAuthorised
from blimp.queue.protocol.record import Record, State
from blimp.queue.redis.eager import FIRST_ANSWER_S, ROUND_TRIPS, EagerConnection
from blimp.queue.redis.keys import Keys, result_key
from blimp.queue.redis.urls import hide_password, link_error
from blimp.queue.results.backend import ResultWatch
from blimp.system import readable

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.redis.eager import Command
    from blimp.types import Outcome

BROADCAST, QUEUE, SOCKET = "broadcast", "queue", "socket"
REPEAT_S = 0.2  # until a stop is confirmed; a slower link's round trip instead
RETRY_S = 0.1  # after a broker that refused, or was lost, while a stop waits
MOST_RETRY_S = 5.0  # doubled up to it while none does
ALIVE_S = 1.0  # between two questions on a connection on which nothing happens
SILENCE_S = 0.5  # of a broker that has answered, until another connection is tried
GUESS_S = 1.0  # this machine's clock may be wrong by so much before a stop is dated again


class Stop(ResultWatch):
    """One press: the records of what became of it, and how fast each road was.

    roads_ms: from the press to the confirmation by each road that has confirmed it.
    """

    def __init__(self, *, id: str, clock: Clock) -> None:
        self.id = id
        self.task_id = f"{id}.queue"
        self.clock = clock
        self.pressed_s = clock.now_s()
        self.roads_ms: dict[str, float] = {}
        self.changed = threading.Condition()
        self._records: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
        self.ended = False

    def confirmed(self, road: str, record: Record) -> None:
        """Note what a road says. Any thread."""
        if record.final and (road != QUEUE or record.state is State.SUCCESS):
            with self.changed:
                took_ms = (self.clock.now_s() - self.pressed_s) * 1000.0
                self.roads_ms.setdefault(road, round(took_ms, 3))
                self.changed.notify_all()
        elif road == QUEUE:
            return  # the other roads go on
        self._records.put(record)

    def outcome(self, outcome: Outcome) -> None:
        """Note the flight process's own answer."""
        result = {**outcome.result, "fraction": outcome.fraction, "accepted_s": outcome.accepted_s}
        record = Record(id=self.id, name="estop", state=State.SUCCESS, result=result)
        self.confirmed(SOCKET, record)

    def next(self, *, timeout_s: float) -> Record | None:
        with contextlib.suppress(queue.Empty):
            return self._records.get(timeout=max(0.0, timeout_s))
        return None

    def wait_roads(self, count: int, *, within_s: float) -> None:
        """Wait until `count` roads have confirmed it, for `within_s` at most."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.roads_ms) >= count, timeout=within_s)

    def end(self) -> None:
        """Nobody waits for a road any more."""
        self.ended = True

    def close(self) -> None:
        """Nothing: the other roads may still confirm it, until `end`."""


class StopWriter(Protocol):
    """How a stop stands on the wire; see `blimp.tasks.stop.StopSender`."""

    @property
    def exchange(self) -> str: ...

    def broadcast(self, stop: Stop, *, now_s: float, database: int) -> list[Command]: ...

    def task(self, stop: Stop, *, now_s: float) -> Command: ...

    def read(self, stop: Stop, road: str, data: bytes) -> None: ...


class BrokerRoad(Closing):
    """Sends the stops of one sender by one broker, until they are closed. Close is idempotent.

    trouble: why there is no connection; None while there is one, or the first is being made.
    """

    def __init__(self, url: str, *, writer: StopWriter, clock: Clock) -> None:
        self._url = url
        self._writer = writer
        self._clock = clock
        self._link = EagerConnection(url)
        self._lock = threading.Lock()
        self._new: list[Stop] = []
        self._stops: dict[str, Stop] = {}
        self._watched: dict[str, tuple[Stop, str]] = {}  # stop and road, by channel
        self._queued: set[str] = set()  # ids of stops that this connection has put into the queue
        self._repeat_s = 0.0
        self._ahead_s: float | None = None  # the broker's clock of our monotonic one, at least
        self._failures = 0  # connections since the last answer
        self._refused: dict[str, str] = {}  # what the broker said of a command, by its kind
        self._has_made_room = self._closed = False
        self._wake_out, self._wake_in = socket.socketpair()
        self._thread: threading.Thread | None = None
        self.trouble: Exception | None = None

    def start(self) -> None:
        """Connect, and stay connected."""
        with self._lock:
            if not self._closed and (self._thread is None or not self._thread.is_alive()):
                thread = threading.Thread(target=self._serve, name="stop", daemon=True)
                thread.start()
                self._thread = thread

    def fire(self, stop: Stop) -> None:
        """Send `stop` now, and again until it is confirmed. Does not wait."""
        self.start()
        with self._lock:
            if not self._closed:
                self._new.append(stop)
                self._wake_in.send(b"x")

    def patience_s(self) -> float:
        """Return for how long after the press this link may need for a confirmation."""
        if self.trouble is not None:
            return 0.0
        if not self._link.has_answered:
            return FIRST_ANSWER_S
        return 2 * ROUND_TRIPS * (self._link.round_trip_s or 0.0)

    def silence(self) -> Exception | None:
        """Return what it means that this connection had no answer yet; None if it had one."""
        if self._link.has_answered:
            return None
        return link_error(self._url, TimeoutError("no answer yet"))

    def _serve(self) -> None:
        while not self._closed:
            try:
                self._take_new()
                self._travel()
            except Exception as error:  # whatever an answer was: the stop must go out
                self.trouble = self._named(error)
                self._failures += 1
                self._link.close()
            if not self._closed:
                self._sleep()
        self._link.close()
        self._wake_out.close()

    def _named(self, error: Exception) -> LinkError:
        if isinstance(error, PermissionError) and error.errno is None:  # the server's own words
            return NotAuthorised(f"broker at {hide_password(self._url)}: {error}")
        return link_error(self._url, error)

    def _travel(self) -> None:
        """Connect, and send what there is to send, until the connection is lost."""
        self._queued.clear()
        self._watched.clear()
        self._refused.clear()
        self._has_made_room = False
        self._ahead_s = None  # this machine may have slept, and this may be another server
        self._link.open(lambda: [("time", ("TIME",)), *self._salvo()])
        while not self._closed:
            until_s = self._repeat_s if self._unconfirmed() else self._clock.now_s() + ALIVE_S
            ready = self._link.wait(until_s - self._clock.now_s(), self._wake_out.fileno())
            if self._wake_out.fileno() in ready:
                self._wake_out.recv(1024)
                self._take_new()
                self._link.send(*self._salvo())
            if self._link.fileno() in ready:
                for tag, answer in self._link.read():
                    self._answered(tag, answer)
                if self._link.has_answered:
                    self._failures, self.trouble = 0, self._refusal()
                self._forget_ended()
            if self._link.is_overdue(SILENCE_S * 2.0 ** min(self._failures, 6)):
                raise TimeoutError(f"no answer for {self._link.silent_s:.1f} s")
            if not ready:
                self._link.send(("time", ("TIME",)), *self._salvo())

    def _unconfirmed(self) -> list[Stop]:
        return [stop for stop in self._stops.values() if not stop.roads_ms]

    def _salvo(self) -> list[Command]:
        """Return what is to be sent of the stops under way.

        One that nobody waits for any more is sent no more: the ship may have been armed since.
        """
        self._forget_ended()
        now_s, found = self._clock.now_s(), list[Any]()
        for stop in self._stops.values():
            for id, road in ((stop.id, "broadcast"), (stop.task_id, "queue")):
                channel = result_key(id)
                if channel not in self._watched:
                    self._watched[channel] = (stop, road)
                    found.append(("watched", ("SUBSCRIBE", channel)))
        for stop in self._unconfirmed():
            found += self._writer.broadcast(
                stop, now_s=self._broker_s(now_s), database=self._link.database
            )
            found.append((result_key(stop.id), ("GET", result_key(stop.id))))
        self._repeat_s = now_s + max(REPEAT_S, self._link.round_trip_s or 0.0)
        return found + self._tasks(now_s)

    def _tasks(self, now_s: float) -> list[Command]:
        """Return what puts the stops into the queue, once on each connection."""
        if self._ahead_s is None:  # it is asked for the time with the same packet
            return []
        new = [stop for stop in self._stops.values() if stop.id not in self._queued]
        self._queued.update(stop.id for stop in new)
        return [self._writer.task(stop, now_s=self._broker_s(now_s)) for stop in new]

    def _broker_s(self, now_s: float) -> float:
        return self._clock.wall_s() if self._ahead_s is None else now_s + self._ahead_s

    def _answered(self, tag: str, answer: Any) -> None:
        if tag in self._watched and isinstance(answer, bytes):
            stop, road = self._watched[tag]
            self._writer.read(stop, road, answer)
        elif tag == "time" and not isinstance(answer, hiredis.ReplyError):
            self._learn_time(int(answer[0]) + int(answer[1]) / 1e6)
        elif isinstance(answer, hiredis.ReplyError):
            self._was_refused(tag, str(answer))
        else:
            self._refused.pop(tag, None)

    def _was_refused(self, tag: str, reason: str) -> None:
        kind, _, id = tag.partition(" ")
        self._refused[kind] = reason
        self._queued.discard(id)  # the next repeat tries it again
        if reason.startswith(("READONLY", "MASTERDOWN", "MOVED")):
            raise ConnectionError(reason)  # who listens is elsewhere: ask for the master again
        if kind == "kept":
            self._make_room(reason)

    def _refusal(self) -> LinkError | None:
        """Return that this user may not stop the ship, if no road through this broker is open."""
        roads = [self._refused.get(kind, "") for kind in ("published", "kept", "queued")]
        if all(reason.startswith("NOPERM") for reason in roads):
            return NotAuthorised(f"broker at {hide_password(self._url)}: {roads[0]}")
        return None

    def _learn_time(self, theirs_s: float) -> None:
        """Note the broker's time; send again what was dated by a guess that is wrong."""
        now_s, was_known = self._clock.now_s(), self._ahead_s is not None
        guessed_s = self._clock.wall_s()
        self._ahead_s = theirs_s - now_s
        if was_known or not self._stops:
            return
        is_wrong = abs(guessed_s - theirs_s) > GUESS_S + (self._link.round_trip_s or 0.0)
        self._link.send(*(self._salvo() if is_wrong else self._tasks(now_s)))

    def _make_room(self, reason: str) -> None:
        """Delete the exchange's stream if it takes no entry: it is of no use to anybody."""
        if self._has_made_room or not ("WRONGTYPE" in reason or "exhausted" in reason):
            return
        self._has_made_room = True
        self._link.send(("room", ("DEL", Keys().fanout(self._writer.exchange))), *self._salvo())

    def _take_new(self) -> None:
        with self._lock:
            self._stops |= {stop.id: stop for stop in self._new}
            self._new.clear()

    def _forget_ended(self) -> None:
        for stop in [one for one in self._stops.values() if one.ended]:
            del self._stops[stop.id]
            self._queued.discard(stop.id)
            for id in (stop.id, stop.task_id):
                if self._watched.pop(result_key(id), None) is not None and self._link.is_open:
                    self._link.send(("watched", ("UNSUBSCRIBE", result_key(id))))

    def _sleep(self) -> None:
        """Wait before the next connection; a new stop ends it."""
        quiet_s = min(MOST_RETRY_S, RETRY_S * 2.0 ** min(self._failures, 8))
        waits_s = RETRY_S if self._stops or self._new else quiet_s
        if readable((self._wake_out.fileno(),), waits_s):
            self._wake_out.recv(1024)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with contextlib.suppress(BrokenPipeError):  # its thread has seen it already
                self._wake_in.send(b"x")
            self._wake_in.close()
        if self._thread is None:
            self._wake_out.close()
        else:
            self._thread.join(timeout=1.0)  # one that is connecting ends later
