"""The kombu transport: takes, waits and delivers for all channels of one connection."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

import redis
from kombu.log import get_logger
from kombu.transport import virtual

from blimp.tasks.transport import wire
from blimp.tasks.transport.channel import FANOUT_KEEP, FANOUT_KEEP_MS, Channel
from blimp.tasks.transport.holder import Holder
from blimp.tasks.transport.keys import LANES, QueueKeys
from blimp.tasks.transport.leases import ERRORS
from blimp.tasks.transport.link import client_url
from blimp.tasks.transport.qos import FANOUT_TAG
from blimp.tasks.transport.reader import Entry, Question, Reader
from blimp.tasks.transport.routes import Routes
from blimp.tasks.transport.store import Claim

FANOUT_BLOCK_MS = 5_000
FULL_WAIT_S = 5.0  # prefetch is full and nobody broadcasts: a settlement wakes it before
SWEEPS_PER_LEASE = 3  # while idle: looks for the dead and the due this often

logger = get_logger(__name__)


class Transport(virtual.Transport):
    """Streams of a Valkey or Redis server, a message recorded in the step that delivers it.

        kombu.Connection("redis://localhost/0", transport="blimp.tasks.transport:Transport")

    URLs: redis, rediss, valkey, valkeys, unix (or socket) and sentinel. kombu takes the part
    before a `+` for a transport of its own, so write `unix:///path?db=0`, not `redis+socket`;
    for the same reason it cannot switch to a second URL of a list with this transport.
    Options are those of Holder, Link and Channel.
    """

    Channel = Channel
    can_parse_url = True
    default_port = 6379
    driver_type = "redis"
    driver_name = "redis-py"
    polling_interval = None
    implements = virtual.Transport.implements.extend(
        asynchronous=False,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
    )
    connection_errors = (
        *virtual.Transport.connection_errors,
        OSError,
        redis.ConnectionError,
        redis.TimeoutError,
        redis.exceptions.ReadOnlyError,  # a sentinel has made another the master
    )
    channel_errors = (
        *virtual.Transport.channel_errors,
        redis.DataError,
        redis.InvalidResponse,
        redis.ResponseError,
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        options = client.transport_options
        self._given: Holder | None = options.get("holder")
        self._holder = self._given or Holder(
            url=client_url(client), options=options, ssl=client.ssl
        )
        self.link, self.keys = self._holder.link, self._holder.keys
        self.store, self.leases = self._holder.store, self._holder.leases
        self.routes = Routes(link=self.link, keys=self.keys, store=self.store)
        self.counts: Counter[str] = Counter()
        self._reader: Reader | None = None
        self._ready: deque[tuple[Any, str, dict[str, Any]]] = deque()  # channel, queue, payload
        self._channel_of: dict[str, Any] = {}  # by the queue it consumes
        self._exchange_of: dict[str, str] = {}  # by the queue that hears its broadcasts
        self._heard: dict[str, str] = {}  # last entry of each fanout exchange
        self._asked_s = 0.0
        self._block_s = 0.0
        self._interrupted = False

    def driver_version(self) -> str:
        return str(redis.__version__)

    # --- connection --------------------------------------------------------------------------

    def establish_connection(self) -> Transport:
        self.link.check_version()
        super().establish_connection()
        return self

    def create_channel(self, connection: Any) -> Any:
        channel = super().create_channel(connection)
        # What a given holder has goes on when this connection ends.
        channel.do_restore = self._given is None
        return channel

    def close_connection(self, connection: Any) -> None:
        """Put back what no callback has seen, close the channels, and leave."""
        errors = (*ERRORS, ValueError)
        with contextlib.suppress(*errors):
            self._withdraw()
        with contextlib.suppress(*errors):
            self._put_back(list(self._ready))
        queues = [self.keys.queue(name) for name in self._channel_of]
        for channels in (self._avail_channels, self.channels):
            while channels:
                channel = channels.pop()
                with contextlib.suppress(*errors):
                    channel.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._given is None:
            with contextlib.suppress(*errors):
                self.leases.flush()
                if queues:
                    self.store.leave(queues, leaving=True)
            self._holder.close()

    def wake(self) -> None:
        """Have a waiting `drain_events` look again. Any thread."""
        if self._reader is not None:
            self._reader.wake()

    def interrupt(self) -> None:
        """Have a waiting `drain_events` return at once, as if its time were over. Any thread."""
        self._interrupted = True
        self.wake()

    # --- consumers ---------------------------------------------------------------------------

    def begin(self, channel: Any, queue: str) -> None:
        """`channel` consumes `queue`: take back what this name had left in it."""
        self._channel_of[queue] = channel
        if self.listens(queue):
            return
        keys = self.keys.queue(queue)
        self.store.make_group(keys)
        back = self.store.take_back([keys], known=self.leases.claims())
        if back:
            self.counts["taken_back"] += back
            logger.info("%s: took back %d unacknowledged message(s)", queue, back)
        self.store.leave([keys], leaving=False)
        self._withdraw()  # it asks for the other queues only

    def end(self, channel: Any, queue: str) -> None:
        """`channel` no longer consumes `queue`: what it has not seen goes back."""
        if self._channel_of.get(queue) is channel:
            del self._channel_of[queue]
        self._withdraw()
        self._put_back([one for one in self._ready if one[1] == queue])

    def closed(self, channel: Any) -> None:
        for queue in [name for name, one in self._channel_of.items() if one is channel]:
            del self._channel_of[queue]

    def get_one(self, channel: Any, queue: str) -> dict[str, Any] | None:
        """Take one message of `queue` without waiting; None where there is none."""
        while True:
            taken = self.store.take([self.keys.queue(queue)], room=1)
            self.counts["expired"] += taken.expired
            for claim, fields in taken.deliveries:
                payload = self._accept(claim, fields)
                if payload is not None:
                    return payload
            if not taken.deliveries and not taken.expired:
                return None

    # --- fanout ------------------------------------------------------------------------------

    def listen(self, queue: str, exchange: str) -> None:
        """`queue` hears what is broadcast on `exchange` from now on."""
        last: Any = self.link.client.xrevrange(self.keys.fanout(exchange), count=1)
        self._heard.setdefault(exchange, last[0][0].decode() if last else "0-0")
        self._exchange_of[queue] = exchange
        if self._reader is not None:
            self._reader.fanout.close()

    def stop_listening(self, queue: str, exchange: str | None = None) -> None:
        if exchange in (None, self._exchange_of.get(queue)):
            was = self._exchange_of.pop(queue, None)
            if was is not None and was not in self._exchange_of.values():
                self._heard.pop(was, None)
                if self._reader is not None:
                    self._reader.fanout.close()

    def listens(self, queue: str) -> bool:
        return queue in self._exchange_of

    def broadcast(self, exchange: str, head: bytes, body: bytes) -> None:
        """Tell everyone who listens on `exchange`, and whoever is cut off for a while."""
        self.store.broadcast(exchange, head, body, keep=FANOUT_KEEP, keep_ms=FANOUT_KEEP_MS)

    def deliver_again(self, message: Any) -> None:
        """Deliver a copy of a broadcast once more, here."""
        queue = message.delivery_info.get("queue", "")
        self._ready.append((message.channel, queue, message._raw))

    # --- delivering --------------------------------------------------------------------------

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message to its callback. Raises TimeoutError where none comes in time."""
        until_s = None if timeout is None else time.monotonic() + timeout
        while not self._deliver():
            if self._reader is None:
                self._reader = Reader(self.link)
            if self._interrupted:
                self._interrupted = False
                raise TimeoutError
            self._fill(self._reader, until_s)

    def _deliver(self) -> bool:
        while self._ready:
            _, queue, payload = self._ready.popleft()
            tag = payload["properties"]["delivery_tag"]
            channel, callback = self._channel_of.get(queue), self._callbacks.get(queue)
            if channel is None or callback is None:
                self.leases.release([tag], seen=False)
                continue
            if not tag.startswith(FANOUT_TAG):
                if tag not in self.leases:
                    self.counts["lost_unseen"] += 1
                    continue  # its lease ended while it lay here
                if channel.is_no_ack(queue):
                    self.leases.ack_later(tag)
            callback(payload)
            return True
        return False

    def _fill(self, reader: Reader, until_s: float | None) -> None:
        """Have something to deliver, or wait for it. Raises TimeoutError after `until_s`."""
        self.leases.flush()
        if not reader.messages.asked:
            hungry = self._take()
            if self._ready:
                return
            if hungry and (until_s is None or time.monotonic() < until_s):
                self._asked_s = time.monotonic()
                reader.ask_messages(
                    hungry, consumer=self._holder.consumer, block_ms=int(self._block_s * 1000)
                )
        if self._heard and not reader.fanout.asked:
            after = {self.keys.fanout(name): id for name, id in self._heard.items()}
            reader.ask_fanout(after, block_ms=FANOUT_BLOCK_MS)
        now_s = time.monotonic()
        left_s = FULL_WAIT_S if until_s is None else min(FULL_WAIT_S, until_s - now_s)
        for question in reader.wait(left_s):
            self._read(reader, question)
        if not self._ready and until_s is not None and time.monotonic() >= until_s:
            raise TimeoutError

    def _take(self) -> list[QueueKeys]:
        """Take what is there; return the queues of the channels that have room left."""
        hungry: list[QueueKeys] = []
        block_ms = self._holder.lease_s * 1000.0 / SWEEPS_PER_LEASE
        self.channels.append(self.channels.pop(0))  # another is first next time
        for channel in self.channels:
            names, room = channel.active_queues(), channel.room()
            if not names or room <= 0:
                continue
            channel.keep_alive(names)
            queues = [self.keys.queue(name) for name in names]
            self._asked_s, self._block_s = time.monotonic(), 0.0
            taken = self.store.take(queues, room=room)
            while taken.expired and not taken.deliveries:  # more of them may hide what is good
                self.counts["expired"] += taken.expired
                taken = self.store.take(queues, room=room)
            self.counts["expired"] += taken.expired
            self._accept_all(taken.deliveries)
            # The next one due is waited for, its server's milliseconds rounded up.
            block_ms = (
                min(block_ms, (taken.next_due_ms or 0) + 1)
                if taken.next_due_ms is not None
                else block_ms
            )
            hungry += queues
            channel._active_queues.append(channel._active_queues.pop(0))
        self._block_s = block_ms / 1000.0
        return hungry

    def _read(self, reader: Reader, question: Question) -> None:
        if question is reader.fanout:
            self._hear(question.answer())
            return
        about: Any = question.about
        try:
            entries = question.answer()
        except redis.ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            for queue, _ in about.values():  # the server was emptied, or the queue deleted
                self.store.make_group(queue)
            return
        self._accept_entries(entries, about)

    def _accept_entries(
        self, entries: Iterable[Entry], about: dict[str, tuple[QueueKeys, int]]
    ) -> None:
        found = []
        for stream, id, fields in entries:
            queue, lane = about[stream]
            if lane < LANES:  # else the bell: it only wakes
                found.append((self.store.claim(queue, lane, id, 1), fields))
        self._accept_all(sorted(found, key=lambda one: one[0].lane))

    def _accept_all(self, deliveries: list[tuple[Claim, list[bytes]]]) -> None:
        """Hold what was delivered and have it ready, but for what cannot be read."""
        if not deliveries:
            return
        self.leases.hold([claim for claim, _ in deliveries])
        late_s = time.monotonic() - self._asked_s - self._block_s
        if late_s > self._holder.lease_s / SWEEPS_PER_LEASE:
            # The answer lay here unread, unrenewed: some may be another's by now.
            self.leases.renew([claim for claim, _ in deliveries])
        for claim, fields in deliveries:
            payload = self._open(claim, fields)
            if payload is not None:
                self._ready.append(
                    (self._channel_of.get(claim.queue.name), claim.queue.name, payload)
                )

    def _accept(self, claim: Claim, fields: list[bytes]) -> dict[str, Any] | None:
        self.leases.hold([claim])
        return self._open(claim, fields)

    def _open(self, claim: Claim, fields: list[bytes]) -> dict[str, Any] | None:
        """Return kombu's payload; what cannot be read is a dead letter."""
        try:
            payload = wire.unpack(fields)
        except ValueError as error:
            self.counts["undecodable"] += 1
            logger.error("%s: entry %s is undecodable: %s", claim.queue.name, claim.id, error)
            self.leases.bury(claim.tag, f"undecodable: {error}")
            head = dict(zip(fields[::2], fields[1::2], strict=False)).get(wire.HEAD, b"")
            self._holder.on_undecodable(head, claim.queue.name, error)
            return None
        properties = payload["properties"]
        properties["delivery_tag"] = claim.tag
        properties["delivery_count"] = claim.fence
        properties["issued_ms"] = claim.issued_ms
        properties["delivery_info"] |= {"redelivered": claim.fence > 1, "queue": claim.queue.name}
        return payload

    def _hear(self, entries: Iterable[Entry]) -> None:
        streams = {self.keys.fanout(name): name for name in self._heard}
        for stream, id, fields in entries:
            exchange = streams.get(stream)
            if exchange is None:
                continue
            self._heard[exchange] = id
            for queue in [name for name, one in self._exchange_of.items() if one == exchange]:
                try:
                    payload = wire.unpack(fields)
                except ValueError as error:
                    self.counts["undecodable"] += 1
                    logger.error("%s: broadcast %s is undecodable: %s", exchange, id, error)
                    break
                payload["properties"]["delivery_tag"] = f"{FANOUT_TAG}{uuid.uuid4().hex}"
                payload["properties"]["delivery_info"]["queue"] = queue
                self._ready.append((self._channel_of.get(queue), queue, payload))

    # --- putting back ------------------------------------------------------------------------

    def _withdraw(self) -> None:
        """End the question that is under way; what it brought is ready, or goes back."""
        if self._reader is None or not self._reader.messages.asked:
            return
        about: Any = self._reader.messages.about
        self._accept_entries(self._reader.messages.withdraw(), about)

    def _put_back(self, unseen: list[tuple[Any, str, dict[str, Any]]]) -> None:
        for one in unseen:
            self._ready.remove(one)
        tags = [one[2]["properties"]["delivery_tag"] for one in unseen]
        self.leases.release(tags, seen=False)
