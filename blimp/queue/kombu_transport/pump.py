"""From the server to the callbacks: takes what there is room for, or asks to be told."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import redis

from blimp.queue.brokers.streams.fetcher import Asked, claimed, idle_s, make_groups, take_good
from blimp.queue.brokers.streams.reader import Question, Reader
from blimp.queue.kombu_transport.inbox import Inbox
from blimp.queue.kombu_transport.qos import FANOUT_TAG
from blimp.queue.redis.keys import QueueKeys

if TYPE_CHECKING:
    from collections.abc import Callable

    from blimp.queue.brokers.streams.session import StreamsSession
    from blimp.queue.kombu_transport.fanout import Listeners

FANOUT_BLOCK_MS = 5_000


class Pump:
    """What drain_events and an event loop have in common. One thread's, but for `wake`.

    channels: kombu's list of the connection's channels, as it stands at any time.
    callbacks: kombu's, by queue. consumers: the channel that consumes a queue, by queue.
    counts: messages that ended here: `expired`, `undecodable`, `lost_unseen`.
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
        self.early_ms = 0  # how long before it is due a scheduled message may be taken
        self.reader = Reader(session.link)
        self.inbox = Inbox(session=session, counts=counts)
        self._session = session
        self._leases, self._store = session.leases, session.store
        self._listeners = listeners
        self._channels, self._callbacks = channels, callbacks
        self._counts = counts
        self._asked = Asked(lease_s=session.lease_s)
        self._block_ms = 0

    def wake(self) -> None:
        """Have whoever waits look again. Any thread."""
        self.reader.wake()

    def forget(self, channel: Any) -> None:
        """`channel` has closed."""
        for queue in [name for name, one in self.consumers.items() if one is channel]:
            del self.consumers[queue]

    # --- to the callbacks --------------------------------------------------------------------

    def deliver(self) -> bool:
        """Give one message to its callback; False where none is ready."""
        while self.inbox.ready:
            queue, payload = self.inbox.ready.popleft()
            tag = payload["properties"]["delivery_tag"]
            channel, callback = self.consumers.get(queue), self._callbacks.get(queue)
            if channel is None or callback is None:
                self._leases.release([tag], seen=False)
                continue
            if not tag.startswith(FANOUT_TAG):
                if self.inbox.is_lost(tag):
                    continue
                if channel.is_no_ack(queue):
                    self._leases.ack_later(tag)
            callback(payload)
            return True
        return False

    # --- from the server ---------------------------------------------------------------------

    def fetch(self, *, may_wait: bool = True) -> None:
        """Have ready what is there; where there is nothing, ask to be told."""
        self._leases.flush()
        if not self.reader.messages.asked:
            hungry = self._take()
            if self.inbox.ready:
                return
            if hungry and may_wait:
                self._asked.now(block_s=self._block_ms / 1000.0)
                self.reader.ask_messages(
                    hungry, consumer=self._session.consumer, block_ms=self._block_ms
                )
        if self._listeners and not self.reader.fanout.asked:
            self.reader.ask_fanout(self._listeners.after(), block_ms=FANOUT_BLOCK_MS)

    def read(self, question: Question) -> None:
        """Have ready what a question that was answered brought."""
        if question is self.reader.fanout:
            self.inbox.ready.extend(self._listeners.hear(question.answer()))
            return
        about: Any = question.about
        try:
            entries = question.answer()
        except redis.ResponseError as error:
            make_groups(self._store, (queue for queue, _ in about.values()), error)
            return
        self._accept(entries, about)

    def withdraw(self) -> None:
        """End the question that is under way; what it brought is ready."""
        if self.reader.messages.asked:
            about: Any = self.reader.messages.about
            self._accept(self.reader.messages.withdraw(), about)

    def get_one(self, queue: QueueKeys) -> dict[str, Any] | None:
        """Take one message of `queue` without waiting; None where there is none."""
        while True:
            taken = self._store.take([queue], room=1)
            self._counts["expired"] += taken.expired
            for claim, fields in taken.deliveries:
                self._leases.hold([claim])
                payload = self.inbox.open(claim, fields)
                if payload is not None:
                    return payload
            if not taken.deliveries and not taken.expired:
                return None

    def _take(self) -> list[QueueKeys]:
        """Take what is there; return the queues of the channels that have room left."""
        hungry: list[QueueKeys] = []
        wait_s = self._session.lease_s
        if self._channels:
            self._channels.append(self._channels.pop(0))  # another is first next time
        for channel in self._channels:
            names, room = channel.active_queues(), channel.room()
            if not names or room <= 0:
                continue
            channel.keep_alive(names)
            queues = [self._session.keys.queue(name) for name in names]
            self._asked.now()
            taken = take_good(self._store, queues, room=room, early_ms=self.early_ms)
            self._counts["expired"] += taken.expired
            self.inbox.accept(taken.deliveries, is_late=self._asked.is_late())
            wait_s = min(wait_s, idle_s(taken, lease_s=self._session.lease_s))
            hungry += queues
            channel.rotate()
        self._block_ms = round(wait_s * 1000.0)
        return hungry

    def _accept(self, entries: list[Any], about: dict[str, tuple[QueueKeys, int]]) -> None:
        found = claimed(self._store, entries, about)
        self.inbox.accept(found, is_late=self._asked.is_late())
