"""A line on our own transport. What is held outlives the connection that took it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from blimp.tasks.carrier import open_connection, streams_options
from blimp.tasks.transport.holder import Holder
from blimp.tasks.transport.store import LOST
from blimp.tasks.urls import redis_url

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp
    from blimp.tasks.line import LineOptions


class StreamsDelivery:
    """One message taken through the transport. Raises LinkError while the broker is away.

    An end that the server refuses, because the lease was lost, raises nothing: the line tells
    of it, and whoever has the message now ends it.
    """

    def __init__(self, *, message: Any, holder: Holder, app: TaskApp) -> None:
        self.tag: str = message.delivery_tag
        self.queue: str = message.delivery_info["queue"]
        self._qos = message.channel.qos
        self._holder = holder
        self._app = app

    def ack(self) -> None:
        with self._app.broker_link.link():
            self._holder.leases.ack(self.tag)
        self._qos.forget(self.tag)

    def complete(self, *, key: str, record: bytes, keep_s: int) -> bool:
        with self._app.broker_link.link():
            answer = self._holder.leases.complete(self.tag, key=key, record=record, keep_s=keep_s)
        self._qos.forget(self.tag)
        return answer != LOST

    def give_back(self) -> None:
        with self._app.broker_link.link():
            self._holder.leases.release([self.tag])
        self._qos.forget(self.tag)

    def reject(self, reason: str) -> None:
        with self._app.broker_link.link():
            self._holder.leases.bury(self.tag, reason)
        self._qos.forget(self.tag)


class StreamsLine:
    def __init__(self, options: LineOptions) -> None:
        self._options = options
        app = options.app
        self._holder = Holder(
            url=redis_url(app.broker),
            options=streams_options(timeout_s=app.timeout_s)
            | {
                "consumer": f"{app.name}.{options.worker}",
                "on_lease_lost": options.on_lost,
                "on_undecodable": options.on_unreadable,
            },
        )
        self._connection: Any = None
        self._transport: Any = None

    def connect(self, *, held: Collection[str]) -> tuple[int, int]:
        import kombu

        app = self._options.app
        self._connection = open_connection(
            app.broker, transport=app.transport, timeout_s=app.timeout_s, holder=self._holder
        )
        self._connection.connect()
        channel = self._connection.channel()
        channel.room = lambda: min(channel.batch, self._options.room())
        self._holder.leases.keep(held)
        kombu.Consumer(
            channel,
            queues=[kombu.Queue(name, no_declare=True) for name in self._options.queues],
            on_message=self._take,
            auto_declare=False,
        ).consume()
        self._transport = self._connection.transport
        return self._transport.counts["taken_back"], 0

    def _take(self, message: Any) -> None:
        """Have the fence in the header, where other transports carry it."""
        count = message.properties["delivery_count"]
        if count > 1:
            before = message.headers.get("blimp_delivery")
            message.headers["blimp_delivery"] = (
                (before if isinstance(before, int) else 0) + count - 1
            )
        self._options.on_message(message)

    def drain(self, timeout_s: float) -> None:
        self._connection.drain_events(timeout=timeout_s)

    def delivery(self, message: Any) -> StreamsDelivery:
        return StreamsDelivery(message=message, holder=self._holder, app=self._options.app)

    def wake(self) -> None:
        transport = self._transport
        if transport is not None:
            transport.interrupt()

    def disconnect(self) -> None:
        self._transport = None
        if self._connection is not None:
            with contextlib.suppress(Exception):  # the link is lost, or the broker is
                self._connection.release()
            self._connection = None

    def close(self) -> None:
        self.disconnect()
        self._holder.close()
