"""A line on our own transport. What is held outlives the connection that took it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError
from blimp.tasks.carrier import connect, open_connection, streams_options
from blimp.tasks.owed import Held
from blimp.tasks.posting import post
from blimp.tasks.results.redis import result_key
from blimp.tasks.transport.end import End
from blimp.tasks.transport.holder import Holder
from blimp.tasks.transport.store import LOST
from blimp.tasks.urls import redis_url

if TYPE_CHECKING:
    from blimp.tasks.job import Ending
    from blimp.tasks.line import LineOptions


# Errors that end by themselves: no memory, no disk, not the master, too few replicas.
PASSING = ("OOM", "MISCONF", "READONLY", "NOREPLICAS", "MASTERDOWN", "LOADING", "BUSY")


class StreamsDelivery:
    """One message taken through the transport. Raises LinkError while the broker is away.

    An end that the server refuses, because the lease was lost, raises nothing: the line tells
    of it, and whoever has the message now ends it.
    """

    def __init__(self, *, message: Any, held: Held) -> None:
        self.tag: str = message.delivery_tag
        self.queue: str = message.delivery_info["queue"]
        self._qos = message.channel.qos
        self.held = held

    def forget(self) -> None:
        """Count it as settled, wherever that happened."""
        self._qos.forget(self.tag)

    def ack(self) -> None:
        leases = self.held.holder.leases
        self.held.tell([self.tag], lambda: leases.ack(self.tag), otherwise=0)
        self.forget()

    def give_back(self) -> None:
        leases = self.held.holder.leases
        self.held.tell([self.tag], lambda: leases.release([self.tag]), otherwise=0)
        self.forget()

    def reject(self, reason: str) -> None:
        leases = self.held.holder.leases
        self.held.tell([self.tag], lambda: leases.bury(self.tag, reason), otherwise=0)
        self.forget()


class StreamsLine:
    ends_at_once = True

    def __init__(self, options: LineOptions) -> None:
        self._options = options
        self._here: Held | None = None
        self._held: dict[str, Held] = {}  # by the broker's URL
        self._connection: Any = None
        self._transport: Any = None

    def connect(self, *, held: Collection[str]) -> tuple[int, int]:
        import kombu

        app = self._options.app
        here = self._here = self._at(app.broker)
        self._connection = open_connection(
            here.url, transport=app.transport, timeout_s=app.timeout_s, holder=here.holder
        )
        connect(self._connection)
        channel = self._connection.channel()
        channel.room = lambda: min(channel.batch, self._options.room())
        here.holder.leases.keep({*held, *here.tags()})
        kombu.Consumer(
            channel,
            queues=[kombu.Queue(name, no_declare=True) for name in self._options.queues],
            on_message=self._take,
            auto_declare=False,
        ).consume()
        self._transport = self._connection.transport
        return self._transport.counts["taken_back"], 0

    def _at(self, url: str) -> Held:
        """Return what is held at the broker `url`, kept for as long as the worker lives."""
        if url not in self._held:
            app = self._options.app
            holder = Holder(
                url=redis_url(url),
                options=streams_options(timeout_s=app.timeout_s)
                | {
                    "consumer": f"{app.name}.{self._options.worker}",
                    "on_lease_lost": self._options.on_lost,
                    "on_undecodable": self._options.on_unreadable,
                },
            )
            self._held[url] = Held(url=url, holder=holder, brokers=app.brokers)
        return self._held[url]

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
        assert self._here is not None
        return StreamsDelivery(message=message, held=self._here)

    def end(self, endings: Sequence[Ending]) -> list[str]:
        places: dict[str, list[int]] = {}
        for number, ending in enumerate(endings):
            places.setdefault(_held(ending).url, []).append(number)
        refusals = [""] * len(endings)
        for numbers in places.values():
            for number, refusal in zip(
                numbers, self._end_at([endings[number] for number in numbers]), strict=True
            ):
                refusals[number] = refusal
        return refusals

    def _end_at(self, endings: list[Ending]) -> list[str]:
        """End deliveries of one broker, or owe it where another is in use."""
        held, app = _held(endings[0]), self._options.app

        def tell() -> list[str] | None:
            ends = [self._end(one, held.holder) for one in endings]
            answers = iter(held.holder.leases.end([one for one in ends if one is not None]))
            return [
                self._refusal(ending, LOST if end is None else next(answers))
                for ending, end in zip(endings, ends, strict=True)
            ]

        told = held.tell([one.job.delivery.tag for one in endings], tell, otherwise=None)
        if told is not None:
            return told
        for ending in endings:
            if ending.record and app.completes_at_once and app.results is not None:
                app.results.write(ending.job.message.id, ending.record)
        return [""] * len(endings)

    def _end(self, ending: Ending, holder: Holder) -> End | None:
        """Return what the server is to write, None where the lease is lost already."""
        app, tag, keys = self._options.app, ending.job.delivery.tag, holder.keys
        claim = holder.leases.claim(tag) if ending.acks else None
        if claim is None and ending.acks:
            return None
        return End(
            claim=claim,
            once=keys.once(tag) if ending.next else "",
            result=result_key(ending.job.message.id),
            record=ending.record if app.completes_at_once else b"",
            keep_s=app.results.keep_s if app.results else 0,
            puts=tuple(
                post(message, keys=keys, signer=app.signer, limit_bytes=app.limit_bytes)
                for message in ending.next
            ),
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
        for held in self._held.values():
            held.close()


def _held(ending: Ending) -> Held:
    delivery = ending.job.delivery
    assert isinstance(delivery, StreamsDelivery)
    return delivery.held
