"""Emergency broadcasts: past queues, prefetch and pools, straight to a handler.

A fanout exchange that a worker consumes on a thread and a connection of its own, at every broker
of a list; on streams without kombu, see `StreamsListener`. The sender repeats itself with the same
id until the confirmation, which is a result of that id, is there.

With a key each repeat is signed with a seal of its own and the broker's time. It acts if its seal
is new, and it is fresh by the last that is known of that broker's clock, or else by what the
broker then answers: a step of the clock stops no emergency stop, and a recorded one stops nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import Copied, LinkError, MessageError, NotGenuine, Refused, ResultError
from blimp.nesting import shallow
from blimp.queue.broadcast.listener import (
    EXCHANGE,
    KEPT_S,
    MAX_COMMAND_BYTES,
    MOST_REMEMBERED,
    Listener,
    OnBroadcast,
    StreamsListener,
)
from blimp.queue.extensions import Broadcast, BroadcastHandler
from blimp.queue.neighbours import neighbour
from blimp.queue.protocol.message import MAX_NAME_LENGTH
from blimp.queue.protocol.record import Record, State, fault_of
from blimp.queue.protocol.signing import FRESH_S, Window
from blimp.queue.publish.revocations import BROADCAST as REVOKE
from blimp.queue.redis.client import RedisServer
from blimp.queue.redis.clock import BrokerClock

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp

# A repeat of one that is forgotten acts again. As many as a listener knows; 3 MB, full.
MAX_CONFIRMED = MOST_REMEMBERED
LOG_LENGTH = 200
WAKE = "blimp.wake"  # received by all workers, it only ends a consumer's wait

_decoder = msgspec.json.Decoder(Broadcast)


class ControlMessage(msgspec.Struct, frozen=True):
    """A remote-control command as it came from the broker at `url`.

    clock: its sender's logical clock.
    """

    url: str
    body: bytes | str
    content_type: str | None
    clock: object


class BroadcastReceiver:
    """Consumes at every broker there is: a stop may come by another than the one in use.

    on_revoke: called with the id of a revoked task, and whether to terminate it.
    on_command: called with each remote-control command; None to receive none.
    counts: the worker's, of what is refused.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        worker: str,
        on_revoke: Callable[[str, bool], object],
        on_command: Callable[[ControlMessage], None] | None = None,
        counts: Counter[str] | None = None,
        log: Any,
    ) -> None:
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.app = app
        self.worker = worker
        self.on_command = on_command
        self.log = log
        self._on_revoke = on_revoke
        self._acting = threading.Lock()
        self._counting = threading.Lock()  # each broker has a thread of its own
        self._confirmed: OrderedDict[tuple[str, str], Record] = OrderedDict()
        self._window = Window()
        self._started_s = app.clock.now_s()
        self._links: list[RedisServer] = []
        self._clocks: dict[str, BrokerClock] = {}
        if app.capabilities.on_redis:
            for url in app.brokers.urls:
                # As patient as the connection: else a slow link is one that no stop passes.
                self._links.append(RedisServer(url, timeout_s=app.timeout_s))
                self._clocks[url] = BrokerClock(link=self._links[-1], clock=app.clock)
        self._parts: dict[str, Listener] = {url: self._listener(url) for url in app.brokers.urls}
        self._started = False

    def _listener(self, url: str) -> Listener:
        if not self.app.capabilities.keeps_broadcasts:
            kombu: Listener = neighbour("kombu broadcasts")(
                app=self.app,
                url=url,
                worker=self.worker,
                on_broadcast=lambda message: self.receive(message.body, url=url),
                on_command=None
                if self.on_command is None
                else lambda found: self._take(url, found.body, found.content_type, found.headers),
                log=self.log,
            )
            return kombu
        routes: dict[str, OnBroadcast] = {
            self.app.emergency_exchange: lambda payload: self.receive(payload["body"], url=url)
        }
        if self.on_command is not None:
            routes[EXCHANGE] = lambda found: self._take(
                url, found["body"], found.get("content-type"), found["headers"]
            )
        return StreamsListener(
            app=self.app,
            url=url,
            routes=routes,
            unreadable=self.unreadable,
            on_time=partial(self._learn_time, url),
            log=self.log,
        )

    def _take(
        self, url: str, body: bytes | str, content_type: str | None, headers: dict[str, Any]
    ) -> None:
        assert self.on_command is not None
        self.on_command(ControlMessage(url, body, content_type, headers.get("clock")))

    def start(self) -> None:
        self._started = True
        self.app.deaf = self.deaf
        for part in self._parts.values():
            part.start()

    def wait_listening(self, timeout_s: float) -> bool:
        """Wait until broadcasts of the broker in use arrive; return whether they do."""
        part = self._parts[self.app.brokers.current]
        return self._started and part.listening.wait(timeout_s)

    def deaf(self) -> str:
        """Return why a broadcast of the broker in use would not arrive now, "" if it would."""
        part = self._parts[self.app.brokers.current]
        deaf_s = part.deaf_s() if self._started else 0.0
        if not deaf_s:
            return ""
        return f"{self.worker} hears no broadcast: none of its own came back for {deaf_s:.0f} s"

    def close(self) -> None:
        """Receive nothing more. Idempotent."""
        for part in self._parts.values():
            part.close()
        if not self._started:
            return
        self._started = False
        if not self.app.capabilities.keeps_broadcasts:
            with contextlib.suppress(LinkError):  # its wait ends by itself, only later
                self.app.broadcast(WAKE)
        for part in self._parts.values():
            part.wait_closed()
        for link in self._links:
            link.close()

    def receive(self, body: bytes | str, *, url: str) -> None:
        """Handle one broadcast; never raises except for a lost connection."""
        try:
            if len(body) > MAX_COMMAND_BYTES:  # reading holds the interpreter lock
                raise MessageError(f"{len(body)} bytes: the limit is {MAX_COMMAND_BYTES}")
            broadcast = _decoder.decode(shallow(body))
            if not 0 < len(broadcast.id) <= MAX_NAME_LENGTH:
                raise MessageError(f"id: must have 1 to {MAX_NAME_LENGTH} letters")
            if self.app.signer is not None:
                document, place = msgspec.structs.asdict(broadcast), self.app.emergency_exchange
                for name in ("seal", "sent_s"):  # of older versions, which do not sign them
                    if document[name] is None:
                        del document[name]
                self.app.signer.check_document(document, broadcast.signature, place=place)
                self._check_fresh(broadcast, url)
            elif broadcast.sent_s is not None:
                self._check_age(broadcast.sent_s, url, limit_s=KEPT_S)
            if broadcast.name == REVOKE and not isinstance(broadcast.payload.get("id"), str):
                raise MessageError("payload: must name the id of a task")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MessageError) as error:
            self.unreadable(error)
            return
        if broadcast.name == WAKE:
            return
        if broadcast.name == REVOKE:
            payload = broadcast.payload
            self._on_revoke(payload["id"], payload.get("terminate") is True)
            return
        handler = self.app.broadcasts.get(broadcast.name)
        if handler is None:
            known = ", ".join(sorted(self.app.broadcasts)) or "none"
            self.log.error("broadcast unknown", name=broadcast.name, known=known)
            return
        with self._acting:
            done = self._confirmed.get((broadcast.name, broadcast.id))
            record = done or self._act(broadcast, handler)
        self._confirm(record, url)

    def _learn_time(self, url: str, theirs_s: float, sent_s: float) -> None:
        if url in self._clocks:
            self._clocks[url].learn(theirs_s, sent_s=sent_s)

    def _check_fresh(self, broadcast: Broadcast, url: str) -> None:
        """Raise NotGenuine for a copy, and for what is too old or was sent before the start."""
        if broadcast.seal is None or broadcast.sent_s is None:
            raise NotGenuine("seal or sent_s is missing: its sender is of an older version")
        self._window.admit(broadcast.seal)
        up_s = self.app.clock.now_s() - self._started_s
        age_s = self._check_age(broadcast.sent_s, url, limit_s=FRESH_S, up_s=up_s)
        if age_s > up_s:  # the window knows nothing of that time
            raise NotGenuine("it was sent before this worker started")

    def _check_age(self, sent_s: float, url: str, *, limit_s: float, up_s: float = inf) -> float:
        """Return the age of a broadcast. Raises NotGenuine if it is too old, or of the future."""
        clock = self._clocks.get(url, self.app.broker_clock)
        age_s = clock.age_s(sent_s, limit_s=min(limit_s, up_s))
        if not abs(age_s) <= limit_s:
            raise NotGenuine(f"{age_s:.0f} s old by the broker's clock: the limit is {limit_s:g}")
        return age_s

    def unreadable(self, error: Exception) -> None:
        if isinstance(error, NotGenuine):
            with self._counting:
                self.counts["copied" if isinstance(error, Copied) else "not_genuine"] += 1
        self.log.error("broadcast unreadable", reason=str(error)[:LOG_LENGTH])

    def _act(self, broadcast: Broadcast, handler: BroadcastHandler) -> Record:
        def record(state: State, **fields: Any) -> Record:
            id, name = broadcast.id, broadcast.name
            return Record(id=id, name=name, worker=self.worker, state=state, **fields)

        reason = "received; it could not be done yet"
        try:
            result = handler(broadcast)
            found = None if result is None else record(State.SUCCESS, result=result)
        except Refused as error:
            found = record(State.REFUSED, fault=fault_of(error))
        except Exception as error:
            self.log.exception("broadcast", name=broadcast.name, id=broadcast.id)
            found, reason = None, f"{type(error).__name__}: {error}"
        if found is None:  # not confirmed: it is tried again when its sender repeats itself
            return record(State.PROGRESS, result={"fraction": 0.0, "reason": reason})
        self.log.info("broadcast", name=broadcast.name, id=broadcast.id, state=str(found.state))
        self._confirmed[broadcast.name, broadcast.id] = found
        while len(self._confirmed) > MAX_CONFIRMED:
            self._confirmed.popitem(last=False)
        return found

    def _confirm(self, record: Record, url: str) -> None:
        """Store the confirmation at the broker it came by: its sender looks there."""
        results = self.app.results
        if results is None:
            return
        try:
            try:
                results.store(record, at=url)
            except ResultError as error:  # it was done: that matters more than what it returned
                self.log.error("broadcast result", id=record.id, reason=str(error)[:LOG_LENGTH])
                results.store(msgspec.structs.replace(record, result={}), at=url)
        except (LinkError, ResultError) as error:  # the sender repeats, and is answered then
            self.log.warning("confirmation not stored", id=record.id, reason=str(error))
            with contextlib.suppress(LinkError, ResultError):
                results.announce(record, at=url)
