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
from blimp.queue.redis.eager import EagerConnection
from blimp.queue.redis.keys import Keys
from blimp.queue.redis.scripts import Script
from blimp.queue.redis.urls import hide_password

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.retry import Outage

KEPT_S = 10.0  # no sender waits longer; an older stop would reach a ship that flies again
PROBE_S = 1.5  # between two probes, of a worker that handles broadcasts
QUIET_PROBE_S = 5.0  # of one that only hears of revocations, which it also loads by itself
POLL_S = 0.2  # between two looks, if the server does not let this user subscribe
DEAF_S = 2 * PROBE_S + 0.5  # one probe may be late, and a round trip takes a moment
CLOSE_S = 2.0
MOSTLOOKED_AT = 64  # entries at one look, the newest
MOST_REMEMBERED = 4096
PROBE = b"probe "  # begins one: no JSON does

# Returns the newest entries of each stream that are not older than ARGV[1] ms, at most ARGV[2].
LOOK = Script("""#!lua flags=no-writes
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local oldest = string.format('%.0f', math.max(0, now_ms - ARGV[1]))
local found = {}
for n, key in ipairs(KEYS) do
  found[n] = {}
  if redis.call('TYPE', key).ok == 'stream' then
    found[n] = redis.call('XREVRANGE', key, '+', oldest, 'COUNT', ARGV[2])
  end
end
return found
""")

OnBroadcast = Callable[[dict[str, Any]], None]  # has it as kombu's payload


class StreamsListener:
    """One thread that hears the broadcasts at one server until closed. Close is idempotent.

    It connects again after any error: a worker that hears no broadcast cannot be stopped.
    routes: what is called with each broadcast, by fanout exchange; the most urgent first.
    unreadable: called with what is wrong with one. before: called before it listens.
    listening: set while broadcasts arrive.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        url: str,
        routes: Mapping[str, OnBroadcast],
        unreadable: Callable[[Exception], None],
        before: Callable[[], None],
        log: Any,
    ) -> None:
        self._app = app
        self._url = url
        self._routes = dict(routes)
        self._keys = Keys()
        self._unreadable = unreadable
        self._before = before
        self._log = log
        self._link = EagerConnection(url, timeout_s=app.timeout_s)
        self._probe = PROBE + uuid.uuid4().hex.encode()
        self._probe_s = PROBE_S if app.broadcasts else QUIET_PROBE_S
        self._polls = False  # the server does not let this user subscribe
        self._heard: OrderedDict[bytes, None] = OrderedDict()  # digests of bodies
        self._looked = False
        self._channels: dict[str, OnBroadcast] = {}
        self._proved_s: float | None = None
        self._closed = threading.Event()
        self.listening = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="emergency", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End soon; `wait_closed` waits for the thread."""
        self._closed.set()
        self._link.close()

    def wait_closed(self) -> None:
        if self._thread.is_alive():
            self._thread.join(timeout=CLOSE_S)

    def deaf_s(self) -> float:
        """Return for how long no probe has come back; 0 while they do, or before the first."""
        if self._proved_s is None:
            return 0.0
        silent_s = self._app.clock.now_s() - self._proved_s
        return silent_s if silent_s > DEAF_S else 0.0

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
        link.open()
        if self._closed.is_set():
            return
        self._before()
        self._channels = {
            self._keys.channel(exchange, database=link.database): receive
            for exchange, receive in self._routes.items()
        }
        if not self._polls:
            link.send(*(("subscribe", ("SUBSCRIBE", channel)) for channel in self._channels))
        self._look()
        while link.silent_s:  # subscribed, and what was missed is known
            self._read(self._app.timeout_s)
        self.listening.set()
        outage.over()
        next_s = clock.now_s()
        while not self._closed.is_set():
            now_s = clock.now_s()
            if now_s >= next_s:
                next_s = now_s + (POLL_S if self._polls else self._probe_s)
                if not self._polls:
                    link.send(("probe", ("PUBLISH", next(iter(self._channels)), self._probe)))
                self._look()
            self._read(max(0.0, next_s - now_s))

    def _look(self) -> None:
        """Ask for what the streams have kept."""
        streams = [self._keys.fanout(exchange) for exchange in self._routes]
        words = (LOOK.text, len(streams), *streams, int(KEPT_S * 1000), MOSTLOOKED_AT)
        self._link.send(("kept", ("EVAL", *words)))

    def _read(self, timeout_s: float) -> None:
        """Act on what comes within `timeout_s`, the first of it."""
        link = self._link
        patience_s = self._app.timeout_s - link.silent_s if link.silent_s else timeout_s
        if not link.wait(min(timeout_s, max(0.0, patience_s))):
            if link.silent_s > self._app.timeout_s:
                raise TimeoutError(f"no answer for {link.silent_s:.1f} s")
            return
        for tag, answer in link.read():
            if tag == "kept":
                self._take_kept(answer)
            elif isinstance(answer, hiredis.ReplyError):
                self._poll_from_now_on(answer)
            elif answer == self._probe:
                self._proved_s = self._app.clock.now_s()
            elif tag in self._channels and not answer.startswith(PROBE):
                self._remember(answer)  # first: what fails is not done again by a look
                head, _, body = answer.partition(SEPARATOR)
                self._receive(self._channels[tag], [HEAD, head, BODY, body])

    def _take_kept(self, answer: Any) -> None:
        """Act on the entries that nobody published to this listener."""
        if isinstance(answer, hiredis.ReplyError):
            raise ConnectionError(str(answer))
        if self._polls:
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

    def _poll_from_now_on(self, error: Exception) -> None:
        """Live without the channel: its users are of an older `blimp broker acl`."""
        if not self._polls:
            self._polls = True
            self._log.warning(
                "broadcasts are looked for, not heard",
                broker=hide_password(self._url),
                every_s=POLL_S,
                reason=str(error),
                cure="let this user subscribe: write its users again: blimp broker acl",
            )
