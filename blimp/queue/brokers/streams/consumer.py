"""A line on our own transport. What is held outlives the connection that took it."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError
from blimp.queue.brokers.choose import streams_options
from blimp.queue.brokers.streams.completion import End
from blimp.queue.brokers.streams.deferred import Held
from blimp.queue.brokers.streams.envelope import HEAD, post
from blimp.queue.brokers.streams.fetcher import Fetcher
from blimp.queue.brokers.streams.received import open_message
from blimp.queue.brokers.streams.session import StreamsSession
from blimp.queue.brokers.streams.store import LOST, Claim
from blimp.queue.redis.urls import redis_url
from blimp.queue.results.redis_backend import PASSING, result_key
from blimp.queue.worker.outcome import MOST_DELIVERIES as MOST_DELIVERIES

if TYPE_CHECKING:
    from blimp.queue.brokers.base import ConsumerOptions
    from blimp.queue.worker.job import Ending


HEAD_ROOM_BYTES = 16_384  # for what every message has in its headers

MOST_AT_ONCE = 128
SPARE_DELIVERIES = 3  # in which a worker may end what it does not run any more
HAND_OVER_S = 50e-6


class StreamsDelivery:
    """One message taken through the transport. Raises LinkError while the broker is away.

    An end that the server refuses, because the lease was lost, raises nothing: the line tells
    of it, and whoever has the message now ends it.
    """

    __slots__ = ("claim", "held", "queue", "tag")

    def __init__(self, *, claim: Claim, held: Held) -> None:
        self.claim = claim
        self.tag = claim.tag
        self.queue = claim.queue.name
        self.held = held

    @property
    def over_delivery_limit(self) -> str:
        before = self.claim.fence - 1
        return (
            f"delivered {before} times without being completed" if before >= MOST_DELIVERIES else ""
        )

    def ack(self) -> None:
        """Raises BrokerLeft where it cannot be told before the task would run."""
        leases = self.held.session.leases
        was_held = self.tag in leases
        answer = self.held.tell_now(lambda: leases.ack(self.tag))
        if answer == LOST and not was_held:  # lost before its job was in hand: nobody heard
            self.held.session.on_lease_lost(self.tag)

    def requeue(self, *, seen: bool = True) -> None:
        leases = self.held.session.leases
        self.held.tell([self.tag], lambda: leases.release([self.tag], seen=seen), otherwise=0)

    def reject(self, reason: str) -> None:
        leases = self.held.session.leases
        self.held.tell([self.tag], lambda: leases.dead_letter(self.tag, reason), otherwise=0)


class StreamsConsumer:
    ends_at_once = True

    def __init__(self, options: ConsumerOptions) -> None:
        self._options = options
        self._here: Held | None = None
        self._held: dict[str, Held] = {}  # by the broker's URL
        self._fetcher: Fetcher | None = None

    def connect(self, *, held: Collection[str]) -> tuple[int, int]:
        here = self._here = self._at(self._options.app.broker)
        for one in self._held.values():  # a broker that was left may answer again
            one.session.leases.keep({*held, *one.tags()})
        self._fetcher = Fetcher(session=here.session, queues=self._options.queues)
        return self._fetcher.begin(), 0

    def consume(self, queues: Sequence[str]) -> None:
        assert self._here is not None
        self._options.queues = tuple(queues)
        self.disconnect()
        self._fetcher = Fetcher(session=self._here.session, queues=self._options.queues)
        self._fetcher.begin()

    def _at(self, url: str) -> Held:
        """Return what is held at the broker `url`, kept for as long as the worker lives."""
        if url not in self._held:
            app = self._options.app
            session = StreamsSession(
                url=redis_url(url),
                options=streams_options(timeout_s=app.timeout_s)
                | {
                    "consumer": f"{app.name}.{self._options.worker}",
                    "on_lease_lost": self._options.on_lost,
                    "max_deliveries": MOST_DELIVERIES + SPARE_DELIVERIES,
                },
            )
            self._held[url] = Held(url=url, session=session, brokers=app.brokers)
        return self._held[url]

    def drain(self, timeout_s: float) -> None:
        """Deliver what there is, up to the room; where there is nothing, wait for some.

        Goes on waiting where there is room left: the sooner this thread sleeps, the sooner
        has the executor's the interpreter. So after one that came alone it does so at once:
        what it does to ask again would take longer than that thread takes to wake.
        """
        assert self._fetcher is not None
        options = self._options
        until_s = time.monotonic() + timeout_s
        left_s, is_first = timeout_s, True
        while is_first or (left_s > 0.0 and options.room() > 0 and not options.waiting()):
            room = max(1, min(MOST_AT_ONCE, options.room()))
            taken = self._fetcher.take(room=room, timeout_s=left_s)
            for claim, fields in taken:
                self._deliver(claim, fields)
            if len(taken) == 1 and left_s > 0.0:
                time.sleep(HAND_OVER_S)
            if not taken and is_first:
                raise TimeoutError
            if not taken:
                return
            is_first, left_s = False, until_s - time.monotonic()

    def _deliver(self, claim: Claim, fields: list[bytes]) -> None:
        try:
            limit_bytes = self._options.app.limit_bytes + HEAD_ROOM_BYTES
            message = open_message(claim, fields, head_limit_bytes=limit_bytes)
        except ValueError as error:
            self._dead_letter(claim, fields, error)
        else:
            self._options.on_message(message)

    def _dead_letter(self, claim: Claim, fields: list[bytes], error: ValueError) -> None:
        assert self._here is not None
        self._here.session.leases.dead_letter(claim.tag, f"undecodable: {error}")
        head = dict(zip(fields[::2], fields[1::2], strict=False)).get(HEAD, b"")
        self._options.on_unreadable(head, claim.queue.name, error)

    def delivery(self, message: Any) -> StreamsDelivery:
        assert self._here is not None
        return StreamsDelivery(claim=message.claim, held=self._here)

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
            return [
                self._refusal(ending, answer)
                for ending, answer in zip(endings, self._tell(endings, held), strict=True)
            ]

        told = held.tell([one.job.delivery.tag for one in endings], tell, otherwise=None)
        if told is not None:
            return told
        for ending in endings:
            if ending.record and app.completes_at_once and app.results is not None:
                app.results.write(ending.job.message.id, ending.record)
        return [""] * len(endings)

    def _tell(self, endings: Sequence[Ending], held: Held) -> list[int | str]:
        """Tell the server of ends; of those that complete a chord again, with its body."""
        ends = [self._end(one, held.session) for one in endings]
        told = iter(held.session.leases.end([one for one in ends if one is not None]))
        answers: list[int | str] = []
        for ending, end in zip(endings, ends, strict=True):
            answer = LOST if end is None else next(told)
            if isinstance(answer, list):
                answer = self._join(ending, answer, held)
            answers.append(answer)
        return answers

    def _join(self, ending: Ending, complete: Sequence[int], held: Held) -> int | str:
        """End a delivery whose parts complete chords, the bodies among what follows it."""
        from blimp.queue.canvas.chord_body import join

        assert ending.canvas is not None
        parts = [ending.canvas.parts[number] for number in complete]
        app = self._options.app
        joined = join(app, ending, parts, held.session.link.client)
        assert joined.canvas is not None
        if app.results is not None and not app.completes_at_once:
            app.results.write_many(joined.canvas.records)
        return self._tell([joined], held)[0]

    def _end(self, ending: Ending, session: StreamsSession) -> End | None:
        """Return what the server is to write, None where the lease is lost already."""
        app, tag, keys = self._options.app, ending.job.delivery.tag, session.keys
        claim = session.leases.claim(tag) if ending.acks else None
        if claim is None and ending.acks:
            return None
        puts = ending.next
        chorded = None
        if ending.canvas is not None:
            from blimp.queue.canvas.chords import chorded_of, puts_of

            puts, chorded = puts_of(ending), chorded_of(ending.canvas, app)
        return End(
            claim=claim,
            once=keys.once(tag) if puts or chorded else "",
            result=result_key(ending.job.message.id),
            record=ending.record if app.completes_at_once else b"",
            keep_s=app.results.keep_s if app.results else 0,
            puts=tuple(
                post(message, keys=keys, signer=app.signer, limit_bytes=app.limit_bytes)
                for message in puts
            ),
            reason=ending.dead if ending.acks else "",  # else its message is gone already
            chorded=chorded,
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
        return reason

    def wake(self) -> None:
        fetcher = self._fetcher
        if fetcher is not None:
            fetcher.interrupt()

    def probe(self) -> None:
        with self._options.app.broker_link.link():
            self._options.app.broker_link.client.ping()

    def disconnect(self) -> None:
        fetcher, self._fetcher = self._fetcher, None
        if fetcher is not None:
            fetcher.close()

    def close(self) -> None:
        self.disconnect()
        for held in self._held.values():
            held.close()


def _held(ending: Ending) -> Held:
    delivery = ending.job.delivery
    assert isinstance(delivery, StreamsDelivery)
    return delivery.held
