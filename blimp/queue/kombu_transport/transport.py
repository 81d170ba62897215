"""The kombu transport: it makes the channels of one connection, and delivers for all of them."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import redis
from kombu.transport import virtual

from blimp.queue.brokers.streams.visibility import ERRORS, StreamsSession
from blimp.queue.kombu_transport.channel import Channel
from blimp.queue.kombu_transport.connection import (
    DEFAULT_PORT,
    keep_transport,
    logger,
    take_settings,
)
from blimp.queue.kombu_transport.dispatcher import Dispatcher, EventLoop
from blimp.queue.kombu_transport.exchanges import Exchanges, Listeners
from blimp.queue.redis.client import reset_after_fork
from blimp.queue.redis.urls import hide_password

DEFAULT_ETA_LEAD_S = 60.0
FULL_WAIT_S = 5.0  # the prefetch is full and no fanout is consumed: an acknowledgement wakes

OPTIONS = frozenset(
    {"consumer", "lease_s", "max_deliveries", "max_dead_letters", "on_lease_lost"}
    | {"on_undecodable", "resume", "key_prefix", "global_keyprefix"}  # of StreamsSession
    | {"socket_timeout", "socket_connect_timeout", "socket_keepalive", "client_name"}
    | {"master_name", "sentinel_kwargs"}  # of the Redis client
    | {"lazy_ack", "batch", "publish_once_s", "deadletter_queue"}  # of Channel
    | {"eta_lead_s"}
)


class LeftNames:
    """Names of consumers that had to leave messages in flight, for the next of this process.

    kombu's programs reconnect with a new connection. Under the old name it takes its messages
    back at once, and does not wait for a lease that nobody renews. Any thread.
    """

    def __init__(self) -> None:
        self._left: list[tuple[str, frozenset[str], str]] = []
        reset_after_fork(self)

    def after_fork(self) -> None:
        """The names are the parent's."""
        self._left = []

    def leave(self, place: str, queues: Sequence[str], name: str) -> None:
        self._left.append((place, frozenset(queues), name))

    def take(self, place: str, queue: str) -> str | None:
        """Return a name that left something in `queue`; nobody else gets it."""
        for one in list(self._left):
            if one[0] == place and queue in one[1]:
                with contextlib.suppress(ValueError):  # another thread was first
                    self._left.remove(one)
                    return one[2]
        return None


class Transport(virtual.Transport):
    """Redis or Valkey streams: a message is recorded in the step that delivers it.

        kombu.Connection("redis://localhost/0", transport="blimp.queue.kombu_transport:Transport")

    URLs: redis, rediss, valkey, valkeys, unix and sentinel; several, divided by `;`, for
    failover. kombu takes what is before a `+` in the first URL for a transport of its own, so
    write `unix:///path?db=0` there, not `redis+socket`. `connection.switch` keeps this transport
    only if the connection was used before; call `connect` first.
    Options: those of StreamsSession, the Redis client and Channel; others are named in a
    warning. One is for programs that run in kombu's event loop, as Celery's worker does:
    eta_lead_s: how long before it is due they get a scheduled message. They keep it until
        then by a timer of their own, and show it as scheduled. Others get theirs when due.
    counts: messages that no callback saw: `expired`, `undecodable`, `lost_unseen`; and
        `taken_back`, those that this consumer's name had left.
    """

    Channel = Channel
    can_parse_url = True
    default_port = DEFAULT_PORT
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
    left_names = LeftNames()  # kombu makes each transport: only the class outlives a connection

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self._settings, self._place = take_settings(client, known_options=OPTIONS)
        keep_transport(client)
        options = self._settings.options
        self._has_own_name = not options.get("consumer")
        self._session = StreamsSession(
            url=self._settings.url, options=options, ssl=self._settings.ssl
        )
        self._eta_lead_s = float(options.get("eta_lead_s", DEFAULT_ETA_LEAD_S))
        self.link, self.keys = self._session.link, self._session.keys
        self.store, self.leases = self._session.store, self._session.leases
        self.exchanges = Exchanges(link=self.link, keys=self.keys, store=self.store)
        self.counts: Counter[str] = Counter()
        self.listeners = Listeners(
            link=self.link,
            keys=self.keys,
            resume=options.get("resume"),
            on_change=lambda: self.dispatcher.reader.fanout.close(),
        )
        self._dispatcher: Dispatcher | None = None
        self._event_loop: EventLoop | None = None
        self._interrupted = False
        reset_after_fork(self)

    def driver_version(self) -> str:
        return str(redis.__version__)

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        url = self._settings.url
        return url if include_password else hide_password(url)

    @property
    def default_connection_params(self) -> dict[str, Any]:
        return {"hostname": self._place.hostname, "port": self._place.port}

    # --- connection --------------------------------------------------------------------------

    def establish_connection(self) -> Transport:
        self.link.check_server()
        super().establish_connection()
        return self

    def close_connection(self, connection: Any) -> None:
        """Put back what no callback has seen, close the channels, and leave."""
        errors = (*ERRORS, ValueError)
        if self._event_loop is not None:
            self._event_loop.close()
            self._event_loop = None
        dispatcher = self._dispatcher
        queues = [] if dispatcher is None else list(dispatcher.consumers)
        if dispatcher is not None:
            with contextlib.suppress(*errors):
                dispatcher.withdraw()
            with contextlib.suppress(*errors):
                dispatcher.put_back()
        for channels in (self._avail_channels, self.channels):
            while channels:
                channel = channels.pop()
                with contextlib.suppress(*errors):
                    channel.close()
        if dispatcher is not None:
            dispatcher.reader.close()
            self._dispatcher = None
        try:
            self.leases.flush()
            if queues:
                self.store.leave([self.keys.queue(queue) for queue in queues])
        except errors:
            if self._has_own_name:
                self.left_names.leave(self._broker, queues, self._session.consumer)
        self._session.close()

    def after_fork(self) -> None:
        self._event_loop = None  # its poller is the parent's
        if self._dispatcher is not None:
            self._dispatcher.reader.on_close = lambda _: None
            self._dispatcher.reader.close()
            self._dispatcher = None
        self._callbacks.clear()
        for channel in self.channels:
            channel.after_fork()

    def wake(self) -> None:
        """Have a waiting `drain_events` or event loop look again. Any thread."""
        dispatcher = self._dispatcher
        if dispatcher is not None:
            dispatcher.reader.wake()

    def interrupt(self) -> None:
        """Have a waiting `drain_events` return at once, as if its time were over. Any thread."""
        self._interrupted = True
        self.wake()

    # --- consumers ---------------------------------------------------------------------------

    def begin(self, channel: Any, queue: str) -> None:
        """`channel` consumes `queue`: take back what this name had left in it."""
        dispatcher = self.dispatcher
        if self._has_own_name and not dispatcher.consumers:
            name = self.left_names.take(self._broker, queue)
            if name is not None:
                self._session.consumer = self.store.consumer = name
        dispatcher.consumers[queue] = channel
        if queue in self.listeners:
            return
        back = self.store.begin([self.keys.queue(queue)], known=self.leases.claims())
        if back:
            self.counts["taken_back"] += back
            logger.info("%s: took back %d unacknowledged message(s)", queue, back)
        dispatcher.withdraw()  # the open question names the other queues only

    def end(self, channel: Any, queue: str) -> None:
        """`channel` no longer consumes `queue`: messages that no callback saw go back."""
        dispatcher = self.dispatcher
        if dispatcher.consumers.get(queue) is channel:
            del dispatcher.consumers[queue]
        dispatcher.withdraw()
        dispatcher.put_back(queue)

    @property
    def _broker(self) -> str:
        return f"{self._settings.url} {self.keys.exchange('')}"

    # --- delivering --------------------------------------------------------------------------

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message to its callback. Raises TimeoutError if none comes in time."""
        until_s = None if timeout is None else time.monotonic() + timeout
        dispatcher = self.dispatcher
        while not dispatcher.deliver():
            if self._interrupted:
                self._interrupted = False
                raise TimeoutError
            self._fill(dispatcher, until_s)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver from kombu's hub `loop`, as Celery's worker wants it."""
        dispatcher = self.dispatcher
        dispatcher.early_ms = int(self._eta_lead_s * 1000)
        if self._event_loop is not None:
            self._event_loop.close()
        self._event_loop = EventLoop(hub=loop, dispatcher=dispatcher)

    def _fill(self, dispatcher: Dispatcher, until_s: float | None) -> None:
        """Have something to deliver, or wait for it. Raises TimeoutError after `until_s`."""
        dispatcher.fetch(may_wait=until_s is None or time.monotonic() < until_s)
        if dispatcher.ready:
            return
        now_s = time.monotonic()
        left_s = FULL_WAIT_S if until_s is None else min(FULL_WAIT_S, until_s - now_s)
        for question in dispatcher.reader.wait(left_s):
            dispatcher.read(question)
        if not dispatcher.ready and until_s is not None and time.monotonic() >= until_s:
            raise TimeoutError

    @property
    def dispatcher(self) -> Dispatcher:
        """Made on first use: a program that publishes needs none."""
        if self._dispatcher is None:
            self._dispatcher = Dispatcher(
                session=self._session,
                listeners=self.listeners,
                channels=self.channels,
                callbacks=self._callbacks,
                counts=self.counts,
            )
        return self._dispatcher
