"""Hearing broadcasts on a Redis server: what is published at once, what was missed a second later.

It has no place in a stream that a stream could make wrong. What is published arrives on a channel.
What was kept meanwhile is looked at as a whole: all entries that the server's own clock says are at
most KEPT_S old. So it does not matter whether the stream was emptied, replaced, moved in time,
filled or made of another type.

It proves that it hears: it publishes a probe, and waits for it on the same channel.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import hiredis

from blimp.queue.brokers.streams.envelope import BODY, HEAD, SEPARATOR, unpack
from blimp.queue.redis.eager import FIRST_ANSWER_S, Command, EagerConnection
from blimp.queue.redis.keys import KEY_PREFIX, Keys
from blimp.queue.redis.scripts import Script
from blimp.queue.redis.urls import address_of, hide_password

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.retry import Outage

NAMESPACE = "celery"  # of remote control
EXCHANGE = f"{NAMESPACE}.pidbox"
MAX_COMMAND_BYTES = 262_144
KEPT_S = 10.0  # no sender waits longer; an older stop would reach a ship that flies again
PROBE_S = 1.5  # between two probes, of a worker that handles broadcasts
QUIET_PROBE_S = 5.0  # of one that only hears of revocations, which it also loads by itself
LOOK_AGAIN_S = 0.5  # whether an answer is overdue
POLL_S = 0.2  # between two looks, if the server does not let this user subscribe
DEAF_S = 2 * PROBE_S + 0.5  # one probe may be late, and a round trip takes a moment
CLOSE_S = 2.0
MOST_LOOKED_AT = 64  # entries at one look, the newest
MOST_ENTRY_BYTES = MAX_COMMAND_BYTES + 4096  # the largest there may be, with its head
MOST_LOOK_BYTES = 2 * 2**20  # of a stream; a server of ours ends a connection at 32 MB
MOST_REMEMBERED = 4096
PROBE = b"probe "  # begins one: no JSON does

# Returns the newest entries of each stream that are not older than ARGV[1] ms: at most ARGV[2], and
# none above ARGV[3] bytes. It looks at ARGV[4] bytes of a stream: more than that is no broadcast,
# and an answer above the server's limit would end the connection.
LOOK = Script("""#!lua flags=no-writes
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local oldest = string.format('%.0f', math.max(0, now_ms - ARGV[1]))
local most, largest, room = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local found = {}
for n, key in ipairs(KEYS) do
  local kept, left, newest = {}, room, '+'
  while redis.call('TYPE', key).ok == 'stream' and newest and left > 0 and #kept < most do
    local page = redis.call('XREVRANGE', key, newest, oldest, 'COUNT', 8)
    newest = page[8] and '(' .. page[8][1]
    for _, entry in ipairs(page) do
      local size = 0
      for _, field in ipairs(entry[2]) do
        size = size + #field
      end
      left = left - size
      if size <= largest and left >= 0 and #kept < most then
        kept[#kept + 1] = entry
      end
    end
  end
  found[n] = kept
end
return found
""")

OnBroadcast = Callable[[dict[str, Any]], None]  # has it as kombu's payload


class Listener:
    """One thread that hears the broadcasts at one broker until closed. Close is idempotent.

    It connects again after any error: a worker that hears no broadcast cannot be stopped.
    listening: set while broadcasts arrive.
    """

    def __init__(self, *, app: TaskApp, url: str, log: Any) -> None:
        self._app = app
        self._url = url
        self._log = log
        self._closed = threading.Event()
        self.listening = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="emergency", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End soon; `wait_closed` waits for the thread."""
        self._closed.set()

    def wait_closed(self) -> None:
        if self._thread.is_alive():
            self._thread.join(timeout=CLOSE_S)

    def deaf_s(self) -> float:
        """Return for how long no broadcast could have arrived, 0 if it is not known."""
        return 0.0

    def _serve(self) -> None:
        raise NotImplementedError


class StreamsListener(Listener):
    """On streams.

    routes: what is called with each broadcast, by fanout exchange; the most urgent first.
    unreadable: called with what is wrong with one. on_time: called with the server's time, and when
        it was asked for it, on the app's clock: before the first broadcast.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        url: str,
        routes: Mapping[str, OnBroadcast],
        unreadable: Callable[[Exception], None],
        on_time: Callable[[float, float], object],
        log: Any,
    ) -> None:
        super().__init__(app=app, url=url, log=log)
        self._routes = dict(routes)
        self._keys = Keys(prefix=f"{address_of(url).tag}{KEY_PREFIX}")
        self._unreadable = unreadable
        self._on_time = on_time
        self._link = EagerConnection(url)
        self._probe = PROBE + uuid.uuid4().hex.encode()
        self._probe_s = PROBE_S if app.broadcasts else QUIET_PROBE_S
        self._refused: set[str] = set()  # channels to which this user may not subscribe
        self._has_said = False
        self._asked_s = 0.0
        self._heard: OrderedDict[bytes, None] = OrderedDict()  # digests of bodies
        self._looked = False
        self._channels: dict[str, OnBroadcast] = {}
        self._proved_s: float | None = None

    def close(self) -> None:
        super().close()
        self._link.close()

    def deaf_s(self) -> float:
        """Return for how long no probe has come back; 0 while they do, or before the first."""
        if self._proved_s is None:
            return 0.0
        silent_s = self._app.clock.now_s() - self._proved_s
        # A probe on a slow link is late, not lost.
        most_s = DEAF_S + 2.0 * (self._link.round_trip_s or 0.0)
        return silent_s if silent_s > most_s else 0.0

    def _serve(self) -> None:
        self._proved_s = self._app.clock.now_s()
        outage = self._app.outage("emergency broadcasts lost", log=self._log, brokers=1)
        while not self._closed.is_set():
            try:
                self._listen(outage)
            except Exception as error:
                self.listening.clear()
                if not self._closed.is_set():
                    self._closed.wait(outage.failed(error))
        self._link.close()

    def _listen(self, outage: Outage) -> None:
        """Hear until the server is lost."""
        link, clock = self._link, self._app.clock
        self._refused.clear()
        link.open(self._first)
        while (
            link.silent_s and not self._closed.is_set()
        ):  # subscribed, and what was missed is known
            self._read(FIRST_ANSWER_S)
        self.listening.set()
        outage.over()
        next_s = clock.now_s() + self._period_s
        while not self._closed.is_set():
            now_s = clock.now_s()
            if now_s >= next_s:
                next_s = now_s + self._period_s
                link.send(*self._look())
            self._read(next_s - now_s)

    def _first(self) -> list[Command]:
        """Return what is sent with the greeting, when the database is known."""
        self._channels = {
            self._keys.channel(exchange, database=self._link.database): receive
            for exchange, receive in self._routes.items()
        }
        subscribe = [(channel, ("SUBSCRIBE", channel)) for channel in self._channels]
        self._asked_s = self._app.clock.now_s()
        return [("time", ("TIME",)), *subscribe, *self._look()]

    @property
    def _urgent(self) -> str:
        """The channel of the most urgent exchange: its probes prove that it is heard."""
        return next(iter(self._channels), "")

    @property
    def _period_s(self) -> float:
        return POLL_S if self._urgent in self._refused else self._probe_s

    def _look(self) -> list[Command]:
        """Return what asks for what the streams have kept, and for the probe."""
        streams = [self._keys.fanout(exchange) for exchange in self._routes]
        limits = (int(KEPT_S * 1000), MOST_LOOKED_AT, MOST_ENTRY_BYTES, MOST_LOOK_BYTES)
        found: list[Command] = [
            ("kept", ("EVAL", LOOK.text, len(streams), *streams, *limits)),
        ]
        if self._urgent not in self._refused:
            found.append(("probe", ("PUBLISH", self._urgent, self._probe)))
        return found

    def _read(self, timeout_s: float) -> None:
        """Act on what comes within `timeout_s`, the first of it."""
        link = self._link
        if not link.wait(min(timeout_s, LOOK_AGAIN_S) if link.silent_s else timeout_s):
            if link.is_overdue(self._app.timeout_s):
                raise TimeoutError(f"no answer for {link.silent_s:.1f} s")
            return
        for tag, answer in link.read():
            if isinstance(answer, hiredis.ReplyError):
                self._was_refused(tag, answer)
            elif tag == "time":
                self._on_time(int(answer[0]) + int(answer[1]) / 1e6, self._asked_s)
            elif tag == "kept":
                self._take_kept(answer)
            elif answer == self._probe:
                self._proved_s = self._app.clock.now_s()
            elif tag in self._channels and not answer.startswith(PROBE):
                self._remember(answer)  # first: what fails is not done again by a look
                head, _, body = answer.partition(SEPARATOR)
                self._receive(self._channels[tag], [HEAD, head, BODY, body])

    def _was_refused(self, tag: str, error: Exception) -> None:
        """Live without a channel that this user may not use; any other error is a lost server."""
        channel = self._urgent if tag == "probe" else tag
        if not str(error).startswith("NOPERM") or channel not in self._channels:
            raise ConnectionError(str(error))
        self._refused.add(channel)
        if not self._has_said:
            self._has_said = True
            self._log.warning(
                "broadcasts are looked for, not heard",
                broker=hide_password(self._url),
                channel=channel,
                every_s=self._period_s,
                reason=str(error),
                cure="let this user subscribe: write its users again: blimp broker acl",
            )

    def _take_kept(self, answer: Any) -> None:
        """Act on the entries that nobody published to this listener."""
        if self._urgent in self._refused:
            self._proved_s = self._app.clock.now_s()
        is_first, self._looked = not self._looked, True
        for receive, entries in zip(self._routes.values(), answer, strict=True):
            for id, fields in reversed(entries):
                entry = id + b"".join(fields)
                if self._knows(entry):
                    continue
                self._remember(entry)
                # What is of before the start is another's; what was published is done.
                if not is_first and not self._took(SEPARATOR.join(fields[1::2])):
                    self._receive(receive, fields)

    def _receive(self, receive: OnBroadcast, fields: list[bytes]) -> None:
        try:
            payload = unpack(fields)
        except ValueError as error:
            self._unreadable(error)
            return
        receive(payload)

    def _knows(self, data: bytes) -> bool:
        return hashlib.blake2b(data, digest_size=16).digest() in self._heard

    def _took(self, published: bytes) -> bool:
        """Return whether an entry was published, too; further entries with it are copies."""
        key = hashlib.blake2b(published, digest_size=16).digest()
        return self._heard.pop(key, self) is not self

    def _remember(self, data: bytes) -> None:
        self._heard[hashlib.blake2b(data, digest_size=16).digest()] = None
        while len(self._heard) > MOST_REMEMBERED:
            self._heard.popitem(last=False)
