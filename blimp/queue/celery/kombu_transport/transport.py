"""The kombu transport: it makes the channels of one connection, and delivers for all of them."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import Counter
from typing import Any, ClassVar

import redis
from kombu.transport import virtual

from blimp.queue.brokers.streams.exchanges import Exchanges
from blimp.queue.brokers.streams.visibility import ERRORS, StreamsSession
from blimp.queue.celery.kombu_transport.channel import Channel
from blimp.queue.celery.kombu_transport.connection import (
    keep_transport,
    logger,
    read_options,
    take_settings,
)
from blimp.queue.celery.kombu_transport.declarations import Listeners
from blimp.queue.celery.kombu_transport.dispatcher import Dispatcher, EventLoop
from blimp.queue.redis.forks import reset_after_fork
from blimp.queue.redis.urls import DEFAULT_PORT, hide_password

FULL_WAIT_S = 5.0  # the prefetch is full and no fanout is consumed: an acknowledgement wakes


class Transport(virtual.Transport):
    """Redis or Valkey streams: a message is recorded in the step that delivers it.

        kombu.Connection("redis://localhost/0", transport="blimp.queue.kombu_transport:Transport")

    URLs: redis, rediss, valkey, valkeys, unix and sentinel; several, divided by `;`, for
    failover. kombu takes what is before a `+` in the first URL for a transport of its own, so
    write `unix:///path?db=0` there, not `redis+socket`. `connection.switch` keeps this transport
    only if the connection was used before; call `connect` first.
    Options: see TransportOptions; another is a ConfigError. One is for programs that run in
    kombu's event loop, as Celery's worker does:
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
    # Consumer names that had to leave messages in flight: the process, broker and queues of each.
    # kombu makes each transport: only the class outlives a connection.
    left_names: ClassVar[dict[str, tuple[int, str, frozenset[str]]]] = {}

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self._settings = take_settings(client)
        keep_transport(client)
        options = read_options(self._settings.options)
        self._has_own_name = not options.consumer
        self._session = StreamsSession(
            url=self._settings.url, options=options.streams(ssl=self._settings.ssl)
        )
        self._eta_lead_s = options.eta_lead_s
        self.link, self.keys = self._session.link, self._session.keys
        self.store, self.leases = self._session.store, self._session.leases
        self.exchanges = Exchanges(self.store)
        self.counts: Counter[str] = Counter()
        self.listeners = Listeners(
            exchanges=self.exchanges,
            keys=self.keys,
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
        return {"hostname": self.client.hostname, "port": self.client.port}

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
            if queues:
                self.store.leave([self.keys.queue(queue) for queue in queues])
        except errors:
            if self._has_own_name:
                left = os.getpid(), self._broker, frozenset(queues)
                self.left_names[self._session.consumer] = left
        self._session.close()

    def after_fork(self) -> None:
        self._event_loop = None  # its poller is the parent's
        dispatcher, self._dispatcher = self._dispatcher, None
        if dispatcher is not None:
            dispatcher.reader.on_close = lambda _: None
            dispatcher.reader.close()
        self._callbacks.clear()
        for channel in self.channels:
            channel.after_fork()

    def wake(self) -> None:
        """Have a waiting `drain_events` or event loop look again. Any thread."""
        if (dispatcher := self._dispatcher) is not None:
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
            self._take_left_name(queue)
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

    def _take_left_name(self, queue: str) -> None:
        """Continue as a consumer of this process that left something in `queue`.

        kombu's programs reconnect with a new connection. Under the old name it takes its
        messages back at once, and does not wait for a lease that nobody renews.
        """
        for name, (process, broker, queues) in list(self.left_names.items()):
            is_ours = process == os.getpid() and broker == self._broker and queue in queues
            if is_ours and self.left_names.pop(name, None) is not None:  # nobody else gets it
                self._session.consumer = self.store.consumer = name
                return

    @property
    def _broker(self) -> str:
        return f"{self._settings.url} {self.keys.exchange('')}"

    # --- delivering --------------------------------------------------------------------------

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message to its callback. Raises TimeoutError if none comes in time."""
        until_s = math.inf if timeout is None else time.monotonic() + timeout
        dispatcher = self.dispatcher
        while not dispatcher.deliver():
            if self._interrupted:
                self._interrupted = False
                raise TimeoutError
            dispatcher.fetch(may_wait=time.monotonic() < until_s)
            if not dispatcher.ready:
                left_s = min(FULL_WAIT_S, until_s - time.monotonic())
                for question in dispatcher.reader.wait(left_s):
                    dispatcher.read(question)
                if not dispatcher.ready and time.monotonic() >= until_s:
                    raise TimeoutError

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver from kombu's hub `loop`, as Celery's worker wants it."""
        dispatcher = self.dispatcher
        dispatcher.fetcher.early_ms = int(self._eta_lead_s * 1000)
        if self._event_loop is not None:
            self._event_loop.close()
        self._event_loop = EventLoop(hub=loop, dispatcher=dispatcher)

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
