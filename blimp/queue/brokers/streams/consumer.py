"""A consumer of streams. Its leases outlive the connection that fetched the messages."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import NoPermissionError

from blimp.errors import LinkError, ResultError
from blimp.queue.brokers.base import MARK_KEEP_S, MOST_DELIVERIES
from blimp.queue.brokers.streams.envelope import HEAD, Claim, open_message, post
from blimp.queue.brokers.streams.fetcher import Fetcher
from blimp.queue.brokers.streams.store import LOST, StreamsOptions
from blimp.queue.brokers.streams.unique_claims import UniqueClaims
from blimp.queue.brokers.streams.visibility import DeferredAcks, StreamsSession
from blimp.queue.redis.keys import result_key
from blimp.queue.redis.urls import PASSING, is_refusal, link_errors, redis_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blimp.queue.brokers.base import Aside, Completion, ConsumerOptions
    from blimp.queue.brokers.streams.envelope import Claim, Envelope
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.protocol.unique import UniqueClaim
    from blimp.queue.redis.keys import Keys, QueueKeys


T = TypeVar("T")

logger = logging.getLogger(__name__)

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
        before = self.claim.counted - 1
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

    def requeue(self, *, seen: bool = True, aside: Aside | None = None) -> None:
        leases = self.acks.session.leases

        def put_back() -> int:
            if aside is not None:
                return leases.set_aside(self.claim, aside)
            return leases.release([self.tag], seen=seen)

        self.acks.do([self.tag], put_back, otherwise=0)

    def free(self, claim: UniqueClaim, id: str) -> None:
        """Raises BrokerLeft if the broker cannot be asked now.

        A claim that this user may not touch is not its task's: a stranger wrote its name.
        """

        def free() -> None:
            with contextlib.suppress(NoPermissionError):
                UniqueClaims(self.acks.session.store).free(claim, id)

        self.acks.do_now(free)

    def step(
        self, message: TaskMessage, keep_s: int, name: str = "", result: bytes = b""
    ) -> dict[str, bytes] | None:
        """Raises BrokerLeft if another broker is in use, ResultError if the server refuses it."""
        session = self.acks.session
        key = session.keys.steps(message.id, message.nesting)
        one = (name, result) if name else ()

        def ask() -> dict[str, bytes] | None:
            try:
                return session.store.step(self.claim, key, keep_s, *one)
            except Exception as error:
                if is_refusal(error):  # to ask again does not help
                    what = (
                        f"step {name!r} of {message.task}" if name else f"steps of {message.task}"
                    )
                    raise ResultError(f"{what}: the broker refuses {key}: {error}") from None
                raise

        return self.acks.do_now(ask)

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
        self._fetcher = self._fetcher_of(here)
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
        self._fetcher = self._fetcher_of(self._here)
        self._fetcher.begin()

    def _fetcher_of(self, here: DeferredAcks) -> Fetcher:
        options = self._options
        return Fetcher(session=here.session, queues=options.queues, knows=options.knows)

    def _at(self, url: str) -> DeferredAcks:
        """Return what is held at the broker `url`; it lives as long as the worker."""
        if url not in self._held:
            options = self._options
            session = StreamsSession(
                url=redis_url(url),
                options=StreamsOptions(
                    consumer=options.name,
                    on_lease_lost=options.on_lost,
                    max_deliveries=MOST_DELIVERIES + SPARE_DELIVERIES,
                    broker=options.broker,
                ),
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
            limit_bytes = self._options.broker.limit_bytes + HEAD_ROOM_BYTES
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


class CompletionArguments:
    """Gathers the keys and arguments of several completions."""

    def __init__(self, *, options: ConsumerOptions, keys: Keys) -> None:
        self._options = options
        self._keys = keys
        self.keys: list[str] = []
        self.args: list[Any] = []

    def add(self, completion: Completion, claim: Claim | None) -> None:
        """Add one. claim: None if it was acknowledged before it ran.

        Raises MessageError, ResultError if JSON cannot hold what follows.
        """
        options, follow_up = self._options, completion.follow_up
        if claim is not None and not (
            follow_up is not None
            or completion.next
            or completion.dead
            or completion.mark
            or completion.forgets_steps
            or completion.frees
            or (completion.record and options.completes_results)
        ):
            self.keys.append(claim.stream)
            self.args += ("", claim.id, claim.fence)
            return
        following = () if follow_up is not None and follow_up.is_silent else completion.next
        puts = [
            (
                self._keys.queue(one.queue),
                post(one, signer=options.signer, limit_bytes=options.broker.limit_bytes),
            )
            for one in following
        ]
        update = None if follow_up is None else follow_up.arguments(options)
        marks = [(completion.mark, MARK_KEEP_S)] if completion.mark else []
        if completion.forgets_steps:
            message = completion.message
            marks.append((self._keys.steps(message.id, message.nesting), 0))
        # Without a pending entry, a key of its own identifies a repetition.
        needs_key = claim is None and (puts or update)
        self.write(
            claim=claim,
            once=self._keys.once(completion.delivery.tag) if needs_key else "",
            result=result_key(completion.message.id),
            record=completion.record if options.completes_results else b"",
            keep_s=options.result_keep_s,
            puts=puts,
            reason=completion.dead if claim is not None else "",
            frees=completion.frees,
            id=completion.message.id,
            marks=marks,
            update=update,
        )

    def write(
        self,
        *,
        claim: Claim | None = None,
        once: str = "",
        result: str = "",
        record: bytes = b"",
        keep_s: int = 0,
        puts: Sequence[tuple[QueueKeys, Envelope]] = (),
        reason: str = "",
        frees: UniqueClaim | None = None,
        id: str = "",
        marks: Sequence[tuple[str, int]] = (),
        update: tuple[list[str], list[Any]] | None = None,
    ) -> None:
        """Add what complete.lua reads of one. id: of the task whose claim is freed."""
        signs = "!" * (frees is not None) + "*" * len(marks) + "+" * (update is not None)
        count = f"{signs}{len(puts)}"
        if claim is None:
            self.keys += (once, "", result)
            self.args += (count, "", 0, 0)
        else:
            self.keys += (claim.stream, claim.queue.dead, result)
            self.args += (count, claim.id, claim.fence, claim.level)
        self.args += (reason, record, keep_s)
        if frees is not None:
            queue = self._keys.queue(frees.queue)
            self.args += (queue.unique, queue.unique_ends, frees.digest, id)
        for mark, keep in marks:
            self.keys.append(mark)
            self.args.append(keep)
        for queue, put in puts:
            self.keys += (queue.levels[put.level], queue.later, queue.bell)
            self.args += (put.level, put.due_ms, put.head, put.body, put.tenant)
        if update is not None:
            self.keys += update[0]
            self.args += update[1]
