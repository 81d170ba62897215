"""The kombu transport: takes, waits and delivers for all channels of one connection."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import Any

import redis
from kombu.transport import virtual

from blimp.queue.brokers.streams.session import StreamsSession
from blimp.queue.brokers.streams.visibility import ERRORS
from blimp.queue.kombu_transport import fanout
from blimp.queue.kombu_transport.channel import Channel
from blimp.queue.kombu_transport.event_loop import EventLoop
from blimp.queue.kombu_transport.failover_patch import keep_transport
from blimp.queue.kombu_transport.inbox import logger
from blimp.queue.kombu_transport.pump import Pump
from blimp.queue.kombu_transport.routes import Routes
from blimp.queue.redis.client import reset_after_fork
from blimp.queue.redis.urls import hide_password

DEFAULT_ETA_LEAD_S = 60.0
FULL_WAIT_S = 5.0  # prefetch is full and nobody broadcasts: a settlement wakes it before


def client_url(connection: Any) -> str:
    """Return the URL of a kombu.Connection, put together where it was given in parts."""
    hostname = str(connection.hostname or "localhost")
    if "://" in hostname:
        return hostname
    secret = f":{connection.password}@" if connection.password else ""
    database = str(connection.virtual_host or "0").strip("/") or "0"
    scheme = "rediss" if connection.ssl else "redis"
    host = f"{hostname}:{connection.port or 6379}"
    return f"{scheme}://{connection.userid or ''}{secret}{host}/{database}"


class Transport(virtual.Transport):
    """Streams of a Valkey or Redis server, a message recorded in the step that delivers it.

        kombu.Connection("redis://localhost/0", transport="blimp.queue.kombu_transport:Transport")

    URLs: redis, rediss, valkey, valkeys, unix and sentinel; several of them, divided by `;`,
    for a connection that goes on with the next one. kombu takes what is before a `+` in the
    first of them for a transport of its own, so write `unix:///path?db=0` there, not
    `redis+socket`. Who calls a connection's `switch` before it was ever used leaves this
    transport; call `connect` first.
    Options are those of Holder, Link and Channel, and one for programs that run in kombu's
    event loop, which is Celery's worker:
    eta_lead_s: how long before it is due they are given a scheduled message. They keep it until
        then by a timer of their own, and show it as scheduled. Others get theirs when due.
    """

    Channel = Channel
    can_parse_url = True
    default_port = 6379
    driver_type = "redis"
    driver_name = "redis-py"
    polling_interval = None
    implements = virtual.Transport.implements.extend(
        asynchronous=True,
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
        keep_transport(client)
        options = client.transport_options
        self._given: StreamsSession | None = options.get("holder")
        self._session = self._given or StreamsSession(
            url=client_url(client), options=options, ssl=client.ssl
        )
        self._eta_lead_s = float(options.get("eta_lead_s", DEFAULT_ETA_LEAD_S))
        self.link, self.keys = self._session.link, self._session.keys
        self.store, self.leases = self._session.store, self._session.leases
        self.routes = Routes(link=self.link, keys=self.keys, store=self.store)
        self.counts: Counter[str] = Counter()
        self._listeners = fanout.Listeners(
            link=self.link, keys=self.keys, resume=options.get("resume")
        )
        self._pump: Pump | None = None
        self._event_loop: EventLoop | None = None
        self._interrupted = False
        reset_after_fork(self)

    def driver_version(self) -> str:
        return str(redis.__version__)

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        return uri if include_password else hide_password(uri)

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
        if self._event_loop is not None:
            self._event_loop.close()
            self._event_loop = None
        pump = self._pump
        queues = [] if pump is None else [self.keys.queue(name) for name in pump.consumers]
        if pump is not None:
            with contextlib.suppress(*errors):
                pump.withdraw()
            with contextlib.suppress(*errors):
                pump.inbox.put_back()
        for channels in (self._avail_channels, self.channels):
            while channels:
                channel = channels.pop()
                with contextlib.suppress(*errors):
                    channel.close()
        if pump is not None:
            pump.reader.close()
            self._pump = None
        if self._given is None:
            with contextlib.suppress(*errors):
                self.leases.flush()
                if queues:
                    self.store.leave(queues)
            self._session.close()

    def after_fork(self) -> None:
        self._event_loop = None  # its poller is the parent's
        if self._pump is not None:
            self._pump.reader.on_close = lambda _: None
            self._pump.reader.close()
            self._pump = None
        self._callbacks.clear()
        for channel in self.channels:
            channel.after_fork()

    def wake(self) -> None:
        """Have a waiting `drain_events` or event loop look again. Any thread."""
        pump = self._pump
        if pump is not None:
            pump.wake()

    def interrupt(self) -> None:
        """Have a waiting `drain_events` return at once, as if its time were over. Any thread."""
        self._interrupted = True
        self.wake()

    # --- consumers ---------------------------------------------------------------------------

    def begin(self, channel: Any, queue: str) -> None:
        """`channel` consumes `queue`: take back what this name had left in it."""
        self._pumping().consumers[queue] = channel
        if queue in self._listeners:
            return
        keys = self.keys.queue(queue)
        back = self.store.begin([keys], known=self.leases.claims())
        if back:
            self.counts["taken_back"] += back
            logger.info("%s: took back %d unacknowledged message(s)", queue, back)
        self._pumping().withdraw()  # it asks for the other queues only

    def end(self, channel: Any, queue: str) -> None:
        """`channel` no longer consumes `queue`: what it has not seen goes back."""
        pump = self._pumping()
        if pump.consumers.get(queue) is channel:
            del pump.consumers[queue]
        pump.withdraw()
        pump.inbox.put_back(queue)

    def closed(self, channel: Any) -> None:
        if self._pump is not None:
            self._pump.forget(channel)

    def get_one(self, queue: str) -> dict[str, Any] | None:
        """Take one message of `queue` without waiting; None where there is none."""
        return self._pumping().get_one(self.keys.queue(queue))

    # --- fanout ------------------------------------------------------------------------------

    def listen(self, queue: str, exchange: str) -> None:
        """`queue` hears what is broadcast on `exchange` from now on."""
        self._listeners.add(queue, exchange)
        self._pumping().reader.fanout.close()

    def stop_listening(self, queue: str, exchange: str | None = None) -> None:
        if self._listeners.remove(queue, exchange):
            self._pumping().reader.fanout.close()

    def listens(self, queue: str) -> bool:
        return queue in self._listeners

    def broadcast(self, exchange: str, head: bytes, body: bytes) -> None:
        """Tell everyone who listens on `exchange`, and whoever is cut off for a while."""
        self.store.broadcast(exchange, head, body, keep=fanout.KEEP, keep_ms=fanout.KEEP_MS)

    def deliver_again(self, message: Any) -> None:
        """Deliver a copy of a broadcast once more, here."""
        queue = message.delivery_info.get("queue", "")
        self._pumping().inbox.ready.append((queue, message._raw))

    # --- delivering --------------------------------------------------------------------------

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message to its callback. Raises TimeoutError where none comes in time."""
        until_s = None if timeout is None else time.monotonic() + timeout
        pump = self._pumping()
        while not pump.deliver():
            if self._interrupted:
                self._interrupted = False
                raise TimeoutError
            self._fill(pump, until_s)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver from kombu's hub `loop`, as Celery's worker wants it."""
        pump = self._pumping()
        pump.early_ms = int(self._eta_lead_s * 1000)
        if self._event_loop is not None:
            self._event_loop.close()
        self._event_loop = EventLoop(hub=loop, pump=pump)

    def _fill(self, pump: Pump, until_s: float | None) -> None:
        """Have something to deliver, or wait for it. Raises TimeoutError after `until_s`."""
        pump.fetch(may_wait=until_s is None or time.monotonic() < until_s)
        if pump.inbox.ready:
            return
        now_s = time.monotonic()
        left_s = FULL_WAIT_S if until_s is None else min(FULL_WAIT_S, until_s - now_s)
        for question in pump.reader.wait(left_s):
            pump.read(question)
        if not pump.inbox.ready and until_s is not None and time.monotonic() >= until_s:
            raise TimeoutError

    def _pumping(self) -> Pump:
        if self._pump is None:
            self._pump = Pump(
                session=self._session,
                listeners=self._listeners,
                channels=self.channels,
                callbacks=self._callbacks,
                counts=self.counts,
            )
        return self._pump
