"""One broker on the way of an emergency stop: its connection, and the thread that has it."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from typing import TYPE_CHECKING, Any

import hiredis

from blimp.closing import Closing
from blimp.errors import LinkError, NotAuthorised
from blimp.queue.redis.eager import EagerConnection
from blimp.queue.redis.keys import Keys, result_key
from blimp.queue.redis.urls import hide_password, link_error

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.redis.eager import Command
    from blimp.tasks.stop import Stop, StopSender

REPEAT_S = 0.2  # until a stop is confirmed; a slower link's round trip instead
CONNECT_S = 30.0  # TCP tries longer; another attempt costs nothing then
RETRY_S = 0.1  # after a broker that refused, or was lost
ALIVE_S = 1.0  # between two questions on a connection on which nothing happens
SILENCE_S = 0.5  # of a broker that has answered, until another connection is tried; then doubled
FIRST_ANSWER_S = 60.0  # of one that has not: TCP sends again for as long on a link that loses
ROUND_TRIPS = 4  # that an answer may take, before a lost packet is the better explanation
GUESS_S = 1.0  # this machine's clock may be wrong by so much before a stop is dated again


class BrokerRoad(Closing):
    """Sends the stops of one sender by one broker, until they are closed. Close is idempotent.

    trouble: why there is no connection; None while there is one, or the first is being made.
    """

    def __init__(self, url: str, *, sender: StopSender, clock: Clock) -> None:
        self._url = url
        self._sender = sender
        self._clock = clock
        self._link = EagerConnection(url, timeout_s=CONNECT_S)
        self._lock = threading.Lock()
        self._new: list[Stop] = []
        self._stops: dict[str, Stop] = {}
        self._watched: dict[str, tuple[Stop, str]] = {}  # stop and road, by channel
        self._queued: set[str] = set()  # ids of stops that this connection has put into the queue
        self._repeat_s = 0.0
        self._ahead_s: float | None = None  # the broker's clock of our monotonic one, at least
        self._failures = 0  # connections since the last answer
        self._has_made_room = self._has_answered = False
        self._is_connecting = self._closed = False
        self._wake_out, self._wake_in = os.pipe()
        self._thread: threading.Thread | None = None
        self.trouble: Exception | None = None

    def start(self) -> None:
        """Connect, and stay connected."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._serve, name="stop", daemon=True)
                self._thread.start()

    def fire(self, stop: Stop) -> None:
        """Send `stop` now, and again until it is confirmed. Does not wait."""
        self.start()
        with self._lock:
            if not self._closed:
                self._new.append(stop)
                os.write(self._wake_in, b"x")

    def patience_s(self) -> float:
        """Return for how long after the press this link may need for a confirmation."""
        if self._is_connecting or not (self.trouble or self._has_answered):
            return FIRST_ANSWER_S
        return 0.0 if self.trouble else 2 * ROUND_TRIPS * (self._link.round_trip_s or 0.0)

    def silence(self) -> Exception | None:
        """Return what it means that this connection had no answer yet; None if it had one."""
        return None if self._has_answered else link_error(self._url, TimeoutError("no answer yet"))

    def _serve(self) -> None:
        while not self._closed:
            try:
                self._take_new()
                self._travel()
            except Exception as error:  # whatever an answer was: the stop must go out
                self.trouble = self._named(error)
                self._failures += 1
                self._link.close()
                self._sleep(RETRY_S)
        self._link.close()

    def _named(self, error: Exception) -> LinkError:
        if isinstance(error, PermissionError) and error.errno is None:  # the server's own words
            return NotAuthorised(f"broker at {hide_password(self._url)}: {error}")
        return link_error(self._url, error)

    def _travel(self) -> None:
        """Connect, and send what there is to send, until the connection is lost."""
        self._is_connecting = self.trouble is None
        self._queued.clear()
        self._watched.clear()
        self._has_made_room = self._has_answered = False
        try:
            self._link.open(lambda: [("time", ("TIME",)), *self._salvo()])
        finally:
            self._is_connecting = False
        while not self._closed:
            until_s = self._repeat_s if self._unconfirmed() else self._clock.now_s() + ALIVE_S
            ready = self._link.wait(until_s - self._clock.now_s(), self._wake_out)
            if self._wake_out in ready:
                os.read(self._wake_out, 1024)
                self._take_new()
                self._link.send(*self._salvo())
            if self._link.fileno() in ready:
                for tag, answer in self._link.read():
                    self._failures, self.trouble, self._has_answered = 0, None, True
                    self._answered(tag, answer)
                self._forget_ended()
            if not ready:
                self._check_answers()
                self._link.send(("time", ("TIME",)), *self._salvo())

    def _check_answers(self) -> None:
        """Raise TimeoutError if the broker has been silent for longer than its link explains."""
        slow_s = ROUND_TRIPS * (self._link.round_trip_s or 0.0)
        patience_s = min(FIRST_ANSWER_S, max(slow_s, SILENCE_S) * 2.0 ** min(self._failures, 8))
        if not self._has_answered:
            patience_s = FIRST_ANSWER_S
        if self._link.silent_s > patience_s:
            raise TimeoutError(f"no answer for {self._link.silent_s:.1f} s")

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
            found += self._sender.broadcast(
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
        return [self._sender.task(stop, now_s=self._broker_s(now_s)) for stop in new]

    def _broker_s(self, now_s: float) -> float:
        return self._clock.wall_s() if self._ahead_s is None else now_s + self._ahead_s

    def _answered(self, tag: str, answer: Any) -> None:
        if tag in self._watched and isinstance(answer, bytes):
            stop, road = self._watched[tag]
            self._sender.read(stop, road, answer)
        elif tag == "time" and not isinstance(answer, hiredis.ReplyError):
            self._learn_time(int(answer[0]) + int(answer[1]) / 1e6)
        elif tag == "kept" and isinstance(answer, hiredis.ReplyError):
            self._make_room(str(answer))

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
        self._link.send(("room", ("DEL", Keys().fanout(self._sender.exchange))), *self._salvo())

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

    def _sleep(self, timeout_s: float) -> None:
        if select.select([self._wake_out], [], [], timeout_s)[0]:
            os.read(self._wake_out, 1024)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            os.write(self._wake_in, b"x")
        if self._thread is not None:
            self._thread.join(timeout=1.0)
            if self._thread.is_alive():  # it is connecting: its socket must go, not its pipe
                return
        for number in (self._wake_in, self._wake_out):
            with contextlib.suppress(OSError):
                os.close(number)
