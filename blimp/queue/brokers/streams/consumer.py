"""A consumer of streams. Its leases outlive the connection that fetched the messages.

With several brokers, a task may end when its own is unreachable and another is in use. The worker
does not wait: its acknowledgement is deferred, and a thread repeats it until that broker answers.
Until then the message stays there unacknowledged, and if the worker dies meanwhile it runs again.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from blimp.errors import LinkError
from blimp.queue.brokers.base import MOST_DELIVERIES, BrokerLeft
from blimp.queue.brokers.streams.completion import CompletionArguments
from blimp.queue.brokers.streams.envelope import HEAD, Claim, open_message
from blimp.queue.brokers.streams.fetcher import Fetcher
from blimp.queue.brokers.streams.store import LOST
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.redis.client import streams_options
from blimp.queue.redis.urls import PASSING, hide_password, link_errors, redis_url
from blimp.queue.retry import RetryPolicy

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Completion, ConsumerOptions
    from blimp.queue.redis.urls import Brokers

T = TypeVar("T")

logger = logging.getLogger(__name__)

REPEATING = RetryPolicy(max_retries=None, interval_start=0.2, interval_step=0.4, interval_max=5.0)


class DeferredAcks:
    """The session at one broker of several, and what must still be sent to it. Thread-safe.

    Close is idempotent.
    """

    def __init__(self, *, url: str, session: StreamsSession, brokers: Brokers) -> None:
        self.url = url
        self.session = session
        self._brokers = brokers
        self._deferred: dict[int, tuple[Collection[str], Callable[[], object]]] = {}
        self._numbers = itertools.count()  # they are done in order: none replaces another
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def do(self, tags: Collection[str], step: Callable[[], T], *, otherwise: T) -> T:
        """Do `step`, which ends the deliveries `tags`; later if another broker is in use.

        Returns `otherwise` then. Raises LinkError if there is no other broker.
        """
        try:
            return self.do_now(step)
        except BrokerLeft:
            pass
        with self._lock:
            self._deferred[next(self._numbers)] = (tags, step)
            if self._thread is None:
                self._thread = threading.Thread(target=self._repeat, name="deferred", daemon=True)
                self._thread.start()
        return otherwise

    def do_now(self, step: Callable[[], T]) -> T:
        """Do `step` now or not at all: raises BrokerLeft if another broker is in use."""
        try:
            with link_errors(self.url, self._brokers.failed):
                return step()
        except LinkError as error:
            if self.url == self._brokers.current:
                raise
            raise BrokerLeft(str(error)) from None

    def probe(self) -> None:
        """Ask whether the broker is there. Raises LinkError."""
        with link_errors(self.url, self._brokers.failed):
            self.session.link.client.ping()

    def tags(self) -> set[str]:
        """Return the deliveries whose ends are deferred: they must not be put back."""
        with self._lock:
            return {tag for tags, _ in self._deferred.values() for tag in tags}

    def _repeat(self) -> None:
        waits = REPEATING.waits(chance=random.Random())
        while not self._closed.wait(next(waits)):
            with self._lock:
                if not self._deferred:
                    self._thread = None
                    return
                number, (_, step) = next(iter(self._deferred.items()))
            try:
                with link_errors(self.url):
                    step()
            except LinkError:
                continue
            except Exception:  # its message comes again; the other steps are done all the same
                logger.exception("deferred acknowledgement to %s", hide_password(self.url))
            waits = REPEATING.waits(chance=random.Random())
            with self._lock:
                self._deferred.pop(number)

    def close(self) -> None:
        self._closed.set()
        self.session.close()


HEAD_ROOM_BYTES = 16_384  # for what every message has in its headers

MOST_AT_ONCE = 128
SPARE_DELIVERIES = 3  # in which a worker may end what it does not run any more
HAND_OVER_S = 50e-6


class StreamsDelivery:
    """One delivery of a message. Raises LinkError while the broker is unreachable.

    An end that the server refuses, because the lease was lost, raises nothing: the consumer
    reports it, and the worker that has the message now completes it.
    """

    __slots__ = ("acks", "claim", "queue", "tag")

    def __init__(self, *, claim: Claim, acks: DeferredAcks) -> None:
        self.claim = claim
        self.tag = claim.tag
        self.queue = claim.queue.name
        self.acks = acks

    @property
    def over_delivery_limit(self) -> str:
        before = self.claim.fence - 1
        return (
            f"delivered {before} times without being completed" if before >= MOST_DELIVERIES else ""
        )

    def ack(self) -> None:
        """Raises BrokerLeft if the broker cannot be asked before the task would run."""
        leases = self.acks.session.leases
        was_held = self.tag in leases
        answer = self.acks.do_now(lambda: leases.ack(self.tag))
        if answer == LOST and not was_held:  # lost before its job was known
            self.acks.session.on_lease_lost(self.tag)

    def requeue(self, *, seen: bool = True) -> None:
        leases = self.acks.session.leases
        self.acks.do([self.tag], lambda: leases.release([self.tag], seen=seen), otherwise=0)

    def reject(self, reason: str) -> None:
        leases = self.acks.session.leases
        self.acks.do([self.tag], lambda: leases.dead_letter(self.tag, reason), otherwise=0)


class StreamsConsumer:
    def __init__(self, options: ConsumerOptions) -> None:
        self._options = options
        self._here: DeferredAcks | None = None
        self._held: dict[str, DeferredAcks] = {}  # by the broker's URL
        self._fetcher: Fetcher | None = None
        self._warned: set[str] = set()

    def connect(self, *, held: Collection[str]) -> tuple[int, int]:
        here = self._here = self._at(self._options.brokers.current)
        for one in self._held.values():  # a broker that was left may answer again
            one.session.leases.keep({*held, *one.tags()})
        self._fetcher = Fetcher(session=here.session, queues=self._options.queues)
        restored = self._fetcher.begin()
        for warning in self._fetcher.warnings:
            if warning not in self._warned:  # once, not at each reconnection
                self._warned.add(warning)
                self._options.log.warning(warning)
        return restored, 0

    def consume(self, queues: Sequence[str]) -> None:
        assert self._here is not None
        self._options.queues = tuple(queues)
        self.disconnect()
        self._fetcher = Fetcher(session=self._here.session, queues=self._options.queues)
        self._fetcher.begin()

    def _at(self, url: str) -> DeferredAcks:
        """Return what is held at the broker `url`; it lives as long as the worker."""
        if url not in self._held:
            options = self._options
            session = StreamsSession(
                url=redis_url(url),
                options=streams_options(timeout_s=options.timeout_s)
                | {
                    "consumer": options.name,
                    "on_lease_lost": options.on_lost,
                    "max_deliveries": MOST_DELIVERIES + SPARE_DELIVERIES,
                    "max_dead_letters": options.max_dead_letters,
                    "max_dead_letter_bytes": options.max_dead_letter_bytes,
                },
            )
            self._held[url] = DeferredAcks(url=url, session=session, brokers=options.brokers)
        return self._held[url]

    def drain(self, timeout_s: float) -> None:
        """Deliver what there is, up to the room; if there is nothing, wait for some.

        If there is room left it goes on waiting: the earlier this thread sleeps, the earlier
        a pool's thread gets the interpreter lock. So after a single message it sleeps at
        once: to ask the server again takes longer than that thread takes to wake.
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
            limit_bytes = self._options.limit_bytes + HEAD_ROOM_BYTES
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
        return StreamsDelivery(claim=message.claim, acks=self._here)

    def complete(self, completions: Sequence[Completion]) -> list[str]:
        places: dict[str, list[int]] = {}
        for number, one in enumerate(completions):
            places.setdefault(_held(one).url, []).append(number)
        refusals = [""] * len(completions)
        for numbers in places.values():
            at_one = [completions[number] for number in numbers]
            for number, refusal in zip(numbers, self._complete_at_one(at_one), strict=True):
                refusals[number] = refusal
        return refusals

    def _complete_at_one(self, completions: list[Completion]) -> list[str]:
        """Complete deliveries of one broker, or defer it if another is in use."""
        held, store = _held(completions[0]), self._options.store_result

        def step() -> list[str] | None:
            return [
                self._refusal(one, answer)
                for one, answer in zip(completions, self._write(completions, held), strict=True)
            ]

        refusals = held.do([one.delivery.tag for one in completions], step, otherwise=None)
        if refusals is not None:
            return refusals
        if self._options.completes_results and store is not None:
            for one in completions:
                if one.record:  # callers look for it at the broker in use
                    store(one.message.id, one.record)
        return [""] * len(completions)

    def _write(self, completions: Sequence[Completion], held: DeferredAcks) -> list[int | str]:
        """Have the server write completions; those that begin more again, with that."""
        leases = held.session.leases
        arguments = CompletionArguments(options=self._options, keys=held.session.keys)
        claims: list[Claim | None] = []
        written: list[int] = []
        answers: list[int | str] = [LOST] * len(completions)
        for number, one in enumerate(completions):
            claim = leases.claim(one.delivery.tag) if one.acks else None
            if claim is None and one.acks:
                continue  # its lease is lost already
            arguments.add(one, claim)
            claims.append(claim)
            written.append(number)
        if not written:
            return answers
        found = leases.complete(claims, arguments.keys, arguments.args)
        for number, answer in zip(written, found, strict=True):
            if isinstance(answer, list):
                answer = self._join(completions[number], answer, held)
            answers[number] = answer
        return answers

    def _join(
        self, completion: Completion, complete: Sequence[int], held: DeferredAcks
    ) -> int | str:
        """Write a completion of which `complete` were the last parts, and what begins with them."""
        join = self._options.join
        assert join is not None
        joined = join(completion, complete, held.session.link.client)
        assert joined.follow_up is not None
        store = self._options.store_result
        if store is not None and not self._options.completes_results:
            for id, record in joined.follow_up.records:
                store(id, record)
        return self._write([joined], held)[0]

    def _refusal(self, completion: Completion, answer: int | str) -> str:
        """Return why it was not written. Raises LinkError if it is to be repeated."""
        reason = "another worker has the message" if answer == LOST else ""
        if isinstance(answer, str):
            if answer.startswith(PASSING):
                raise LinkError(f"the broker does not write: {answer}")
            reason = f"its end cannot be written: {answer}"
            if completion.acks:
                completion.delivery.reject(reason)
        return reason

    def wake(self) -> None:
        fetcher = self._fetcher
        if fetcher is not None:
            fetcher.interrupt()

    def probe(self) -> None:
        self._at(self._options.brokers.current).probe()

    def is_shared(self, queue: str) -> bool:
        assert self._here is not None
        session = self._here.session
        with link_errors(self._here.url, self._options.brokers.failed):
            return session.store.is_shared(session.keys.queue(queue))

    def disconnect(self) -> None:
        fetcher, self._fetcher = self._fetcher, None
        if fetcher is not None:
            fetcher.close()

    def close(self) -> None:
        self.disconnect()
        for held in self._held.values():
            held.close()


def _held(completion: Completion) -> DeferredAcks:
    delivery = completion.delivery
    assert isinstance(delivery, StreamsDelivery)
    return delivery.acks
