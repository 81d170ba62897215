"""A line on our own transport. What is held outlives the connection that took it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError
from blimp.tasks.carrier import open_connection, streams_options
from blimp.tasks.posting import post
from blimp.tasks.results.redis import result_key
from blimp.tasks.transport.end import End
from blimp.tasks.transport.holder import Holder
from blimp.tasks.transport.store import LOST
from blimp.tasks.urls import redis_url

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp
    from blimp.tasks.job import Ending
    from blimp.tasks.line import LineOptions


# Errors that end by themselves: no memory, no disk, not the master, too few replicas.
PASSING = ("OOM", "MISCONF", "READONLY", "NOREPLICAS", "MASTERDOWN", "LOADING", "BUSY")


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

    def forget(self) -> None:
        """Count it as settled, wherever that happened."""
        self._qos.forget(self.tag)

    def ack(self) -> None:
        with self._app.broker_link.link():
            self._holder.leases.ack(self.tag)
        self.forget()

    def give_back(self) -> None:
        with self._app.broker_link.link():
            self._holder.leases.release([self.tag])
        self.forget()

    def reject(self, reason: str) -> None:
        with self._app.broker_link.link():
            self._holder.leases.bury(self.tag, reason)
        self.forget()


class StreamsLine:
    ends_at_once = True

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

    def end(self, endings: Sequence[Ending]) -> list[str]:
        ends = [self._end(one) for one in endings]
        with self._options.app.broker_link.link():
            answers = iter(self._holder.leases.end([one for one in ends if one is not None]))
            return [
                self._refusal(ending, LOST if end is None else next(answers))
                for ending, end in zip(endings, ends, strict=True)
            ]

    def _end(self, ending: Ending) -> End | None:
        """Return what the server is to write, None where the lease is lost already."""
        app, tag, keys = self._options.app, ending.job.delivery.tag, self._holder.keys
        claim = self._holder.leases.claim(tag) if ending.acks else None
        if claim is None and ending.acks:
            return None
        return End(
            claim=claim,
            once=keys.once(tag) if ending.next else "",
            result=result_key(ending.job.message.id),
            record=ending.record if app.completes_at_once else b"",
            keep_s=app.results.keep_s if app.results else 0,
            puts=tuple(post(message, keys=keys) for message in ending.next),
            reason=ending.dead,
        )

    def _refusal(self, ending: Ending, answer: int | str) -> str:
        """Return why an end was not written. Raises LinkError where it is to be told again."""
        delivery = ending.job.delivery
        assert isinstance(delivery, StreamsDelivery)
        reason = "someone else has the message" if answer == LOST else ""
        if isinstance(answer, str):
            if answer.startswith(PASSING):
                raise LinkError(f"the broker does not write: {answer}")
            reason = f"its end cannot be written: {answer}"
            if ending.acks:
                delivery.reject(reason)
        delivery.forget()
        return reason

    def wake(self) -> None:
        transport = self._transport
        if transport is not None:
            transport.interrupt()

    def probe(self) -> None:
        with self._options.app.broker_link.link():
            self._options.app.broker_link.client.ping()

    def disconnect(self) -> None:
        self._transport = None
        if self._connection is not None:
            with contextlib.suppress(Exception):  # the link is lost, or the broker is
                self._connection.release()
            self._connection = None

    def close(self) -> None:
        self.disconnect()
        self._holder.close()
