"""From the server to the callbacks of kombu's channels, also in kombu's event loop."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import redis

from blimp.queue.brokers.streams import envelope as wire
from blimp.queue.brokers.streams.fetcher import Delivered, Fetcher, Question, streams_of
from blimp.queue.celery.kombu_transport.connection import logger
from blimp.queue.celery.kombu_transport.declarations import FANOUT_TAG, Listeners, Payload
from blimp.queue.redis.keys import QueueKeys

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.envelope import Claim
    from blimp.queue.brokers.streams.visibility import StreamsSession

FANOUT_BLOCK_MS = 1_000  # then it looks whether the streams have gone back
LONG_PAST = "1970-01-01T00:00:00+00:00"


class Dispatcher:
    """Takes messages that there is room for, and gives each to its callback. One thread's.

    channels: kombu's list of the connection's channels, which changes.
    callbacks: kombu's, by queue. consumers: the channel that consumes a queue, by queue.
    ready: delivered by the server, and no callback has seen them yet.
    counts: of messages that no callback sees: `expired`, `undecodable`, `lost_unseen`.
    """

    def __init__(
        self,
        *,
        session: StreamsSession,
        listeners: Listeners,
        channels: list[Any],
        callbacks: dict[str, Callable[[dict[str, Any]], Any]],
        counts: Counter[str],
    ) -> None:
        self.consumers: dict[str, Any] = {}
        self.ready: deque[Payload] = deque()
        self.fetcher = Fetcher(session=session)
        self.reader = self.fetcher.reader
        self._session = session
        self._leases = session.leases
        self._listeners = listeners
        self._channels, self._callbacks = channels, callbacks
        self._counts = counts

    # --- to the callbacks --------------------------------------------------------------------

    def deliver(self) -> bool:
        """Give one message to its callback; False if none is ready."""
        while self.ready:
            queue, payload = self.ready.popleft()
            tag = payload["properties"]["delivery_tag"]
            channel, callback = self.consumers.get(queue), self._callbacks.get(queue)
            if channel is None or callback is None:
                self._leases.release([tag], seen=False)
                continue
            if not tag.startswith(FANOUT_TAG):
                if tag not in self._leases:
                    self._counts["lost_unseen"] += 1
                    continue
                if channel.is_no_ack(queue):
                    self._leases.ack(tag)
            callback(payload)
            return True
        return False

    def put_back(self, queue: str | None = None) -> None:
        """Put back what is ready, of one queue or of all, as if it had never been delivered."""
        unseen = [one for one in self.ready if queue in (None, one[0])]
        for one in unseen:
            self.ready.remove(one)
        tags = [payload["properties"]["delivery_tag"] for _, payload in unseen]
        self._leases.release(tags, seen=False)

    # --- from the server ---------------------------------------------------------------------

    def fetch(self, *, may_wait: bool = True) -> None:
        """Take what is there; if there is nothing, ask the server to answer when something is."""
        if not self.reader.messages.asked:
            hungry, until_s = self._take()
            if self.ready:
                return
            if hungry and may_wait:
                self.fetcher.ask(streams_of(hungry), until_s=until_s)
        if self._listeners and not self.reader.fanout.asked:
            self.reader.ask_fanout(self._listeners.after(), block_ms=FANOUT_BLOCK_MS)

    def read(self, question: Question) -> None:
        """Take what the server answered to `question`."""
        if question is self.reader.fanout:
            self._take_broadcasts(question)
        else:
            self._accept(self.fetcher.read())

    def _take_broadcasts(self, question: Question) -> None:
        """Take what was broadcast; if it was nothing, look whether it would have arrived."""
        try:
            entries = question.answer()
        except redis.ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            entries = []  # looking replaces what is no stream
        self.ready.extend(self._listeners.receive(entries))
        if not entries:
            self._listeners.check()

    def withdraw(self) -> None:
        """End the open question; what it brought is ready."""
        self._accept(self.fetcher.withdraw())

    def get_one(self, queue: QueueKeys) -> dict[str, Any] | None:
        """Take one message of `queue` without waiting; None if there is none."""
        while found := self._look([queue], room=1):
            for claim, fields in found:
                payload = self._open(claim, fields)
                if payload is not None:
                    return payload
        return None

    def _take(self) -> tuple[list[QueueKeys], float]:
        """Take what is there; return the queues with room left, and until when to wait."""
        hungry: list[QueueKeys] = []
        until_s = time.monotonic() + self._session.lease_s
        if self._channels:
            self._channels.append(self._channels.pop(0))  # another is first next time
        for channel in self._channels:
            names, room = channel.active_queues(), channel.room()
            if not names or room <= 0:
                continue
            channel.keep_alive(names)
            queues = [self._session.keys.queue(name) for name in names]
            self._accept(self._look(queues, room=room))
            until_s = min(until_s, self.fetcher.idle_until_s)
            hungry += queues
            channel.rotate()
        return hungry, until_s

    def _look(self, queues: list[QueueKeys], *, room: int) -> list[Delivered]:
        found = self.fetcher.look(queues, room=room)
        self._counts["expired"] += self.fetcher.expired
        return found

    def _accept(self, deliveries: Sequence[Delivered]) -> None:
        """Have what was delivered ready if it can be read."""
        for claim, fields in deliveries:
            payload = self._open(claim, fields)
            if payload is not None:
                self.ready.append((claim.queue.name, payload))

    def _open(self, claim: Claim, fields: list[bytes]) -> dict[str, Any] | None:
        """Return kombu's payload; what cannot be read becomes a dead letter."""
        try:
            payload = wire.unpack(fields)
        except ValueError as error:
            self._counts["undecodable"] += 1
            logger.error("%s: entry %s is undecodable: %s", claim.queue.name, claim.id, error)
            self._leases.dead_letter(claim.tag, f"undecodable: {error}")
            return None
        if len(fields) >= 6 and fields[4] == wire.REVOKED:
            payload["headers"]["expires"] = LONG_PAST  # Celery does not run it, it is REVOKED
        properties = payload["properties"]
        properties["delivery_tag"] = claim.tag
        properties["delivery_count"] = claim.fence
        properties["issued_ms"] = claim.issued_ms
        properties["delivery_info"] |= {"redelivered": claim.fence > 1, "queue": claim.queue.name}
        return payload


class EventLoop:
    """Runs a dispatcher in kombu's event loop, as in Celery's worker. Close is idempotent.

    The loop calls `turn` before it waits, and `_readable` when a socket has something to read.
    """

    def __init__(self, *, hub: Any, dispatcher: Dispatcher) -> None:
        self._hub = hub
        self._dispatcher = dispatcher
        self._watched: dict[int, Question | None] = {}  # by descriptor; None is the wake pipe
        hub.on_tick.add(self.turn)
        dispatcher.reader.on_close = self._forget

    def turn(self) -> None:
        """Deliver what is there, or have the loop watch the sockets. Raises connection errors."""
        if self._dispatcher.reader.is_overdue():
            raise redis.TimeoutError("the broker does not answer a blocking read in time")
        self._dispatcher.fetch()
        if self._deliver_all():
            self._dispatcher.reader.wake()  # there may be more: the loop must not wait now
        self._watch()

    def _deliver_all(self) -> bool:
        delivered = False
        while self._dispatcher.deliver():
            delivered = True
        return delivered

    def _readable(self, number: int) -> None:
        question = self._watched.get(number)
        if question is None:
            self._dispatcher.reader.drain_wakes()
        elif question.asked:
            try:
                self._dispatcher.read(question)
            except (redis.RedisError, OSError):
                self._forget(number)  # redis-py has closed the socket
                raise
            self._deliver_all()

    def _watch(self) -> None:
        reader = self._dispatcher.reader
        wanted: dict[int, Question | None] = {
            one.socket().fileno(): one for one in (reader.messages, reader.fanout) if one.asked
        }
        wanted[reader.wake_number] = None
        for number in wanted.keys() - self._watched.keys():
            self._hub.add_reader(number, self._readable, number)
        self._watched |= wanted

    def _forget(self, number: int) -> None:
        """A socket closes: another may have its number at once."""
        if number not in self._watched:
            return
        del self._watched[number]
        callback = (self._hub.readers.get(number) or (None,))[0]
        if callback == self._readable:  # else the hub was reset since
            with contextlib.suppress(OSError, ValueError, KeyError):
                self._hub.remove(number)

    def close(self) -> None:
        self._hub.on_tick.discard(self.turn)
        for number in list(self._watched):
            self._forget(number)
        self._dispatcher.reader.on_close = lambda _: None
