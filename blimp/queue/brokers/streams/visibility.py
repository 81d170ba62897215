"""Leases: what one consumer holds, and what it must still end. Threads of their own keep both."""

from __future__ import annotations

import itertools
import logging
import os
import random
import socket
import threading
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import redis

from blimp.errors import LinkError
from blimp.queue.brokers.base import BrokerLeft
from blimp.queue.brokers.streams.store import (
    DONE,
    LOST,
    SETTLED,
    UNKNOWN,
    Store,
    StreamsOptions,
)
from blimp.queue.redis.client import Link
from blimp.queue.redis.forks import reset_after_fork
from blimp.queue.redis.keys import Keys
from blimp.queue.redis.urls import hide_password, link_errors
from blimp.queue.retry import RetryPolicy

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Aside
    from blimp.queue.brokers.streams.envelope import Claim
    from blimp.queue.redis.urls import Brokers

T = TypeVar("T")

RENEWALS_PER_LEASE = 4
PERIODS_TO_IDLE = 4
ERRORS = (redis.RedisError, OSError)

logger = logging.getLogger(__name__)


class Leases:
    """The claims of one consumer. Thread-safe; close is idempotent.

    on_lost: called, from any thread, with the tag of a delivery that another consumer has
        now: stop its work; its acknowledgement is refused. The same if another has ended
        it. What it raises is logged.
    The thread starts with the first claim and sleeps while there has been none for a while.
    """

    def __init__(self, *, store: Store, lease_s: float, on_lost: Callable[[str], None]) -> None:
        self._store = store
        self._period_s = lease_s / RENEWALS_PER_LEASE
        self._on_lost = on_lost
        self._closed = False
        self.forget()

    def forget(self) -> None:
        """Hold nothing, and report nothing: for a forked child, which does not have the thread."""
        self._held: dict[str, Claim] = {}
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._idle = True
        self._thread: threading.Thread | None = None
        self._sent: set[str] = set()  # tags whose end was sent, and not answered yet

    # --- what is held ------------------------------------------------------------------------

    def hold(self, claims: Sequence[Claim]) -> None:
        if not claims:
            return
        with self._lock:
            for claim in claims:
                self._held[claim.tag] = claim
                self._sent.discard(claim.tag)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._serve, name="leases", daemon=True)
                self._thread.start()
            elif self._idle:
                self._changed.notify()

    def keep(self, tags: Collection[str]) -> None:
        """Forget all but `tags`: no job works on the rest, and it may be put back."""
        kept = set(tags)
        with self._lock:
            for tag in [tag for tag in self._held if tag not in kept]:
                del self._held[tag]
            self._sent.intersection_update(kept)

    def claim(self, tag: str) -> Claim | None:
        return self._held.get(tag)

    def claims(self) -> list[Claim]:
        with self._lock:
            return list(self._held.values())

    def __contains__(self, tag: str) -> bool:
        return tag in self._held

    # --- how a delivery ends -----------------------------------------------------------------

    def ack(self, tag: str) -> int:
        """Complete a delivery; return DONE, SETTLED (by us, before) or LOST (to another)."""
        claim = self._held.get(tag)
        if claim is None:
            with self._lock:
                was_sent = tag in self._sent
                self._sent.discard(tag)
            return SETTLED if was_sent else LOST
        return self._settled(tag, self._complete(claim))

    def release(self, tags: Sequence[str], *, seen: bool = True) -> int:
        """Put deliveries back in their place; return how many were still held."""
        claims = [claim for tag in tags if (claim := self._held.get(tag)) is not None]
        if not claims:
            return 0
        self._send(claims)
        answers = self._store.release(claims, seen=seen)
        return sum(
            self._settled(one.tag, answer) == DONE
            for one, answer in zip(claims, answers, strict=True)
        )

    def complete(
        self, claims: Sequence[Claim | None], keys: list[str], args: list[Any]
    ) -> list[int | str | list[int]]:
        """Complete deliveries, each in one step; see `Store.complete`.

        claims: None for one that was acknowledged before it ran.
        """
        self._send([claim for claim in claims if claim is not None])
        answers = self._store.complete(keys, args)
        lost = []
        with self._lock:
            for claim, answer in zip(claims, answers, strict=True):
                if claim is None:
                    continue
                self._sent.discard(claim.tag)
                if isinstance(answer, int):
                    held = self._held.pop(claim.tag, None)
                    if answer == LOST and held is not None:
                        lost.append(claim.tag)
        for tag in lost:
            self._report_lost(tag)
        return answers

    def dead_letter(self, tag: str, reason: str) -> int:
        """Make a delivery a dead letter; return DONE, SETTLED or LOST."""
        return self._move(tag, lambda claim: self._store.dead_letter(claim, reason))

    def set_aside(self, claim: Claim, aside: Aside) -> int:
        """Have a delivery wait for a consumer that knows its task; return as `dead_letter` does."""
        return self._move(claim.tag, lambda _: self._store.set_aside(claim, aside))

    def _move(self, tag: str, move: Callable[[Claim], int]) -> int:
        claim = self._held.get(tag)
        if claim is None:
            return SETTLED
        self._send([claim])
        return self._settled(tag, move(claim))

    def _complete(self, claim: Claim) -> int:
        """Acknowledge; SETTLED is only what an attempt of ours may have settled."""
        was_sent = bool(self._send([claim]))
        try:
            (answer,) = self._store.ack([claim])
        except redis.ConnectionError:  # idle, it had died; or its answer was lost
            return self._store.ack([claim])[0]
        return LOST if answer == SETTLED and not was_sent else answer

    def _send(self, claims: Sequence[Claim]) -> set[str]:
        """Note that these are about to end; return the tags that were noted before."""
        tags = {claim.tag for claim in claims}
        with self._lock:
            repeated = tags & self._sent
            self._sent |= tags
        return repeated

    def _settled(self, tag: str, answer: int) -> int:
        with self._lock:
            held = self._held.pop(tag, None)
            self._sent.discard(tag)
        if answer == LOST and held is not None:
            self._report_lost(tag)
        return answer

    def _report_lost(self, tag: str) -> None:
        try:
            self._on_lost(tag)
        except Exception:  # the other leases must live on
            logger.exception("on_lost: %s", tag)

    # --- staying alive -----------------------------------------------------------------------

    def renew(self, claims: Sequence[Claim] | None = None) -> None:
        """Renew now, all by default; call `on_lost` for what is lost. Raises ERRORS."""
        claims = self.claims() if claims is None else claims
        if not claims:
            return
        for claim, answer in zip(claims, self._store.renew(claims), strict=True):
            if answer != DONE:
                self._gone(claim.tag, answer)

    def _gone(self, tag: str, answer: int) -> None:
        """Drop what is no longer held: completed here, or taken over by another consumer."""
        with self._lock:
            held = self._held.pop(tag, None)
            if answer == UNKNOWN or (answer == SETTLED and tag in self._sent):
                return  # no other has it; or the thread that ended it gets the answer
            self._sent.discard(tag)
        if held is not None:
            self._report_lost(tag)

    def _serve(self) -> None:
        empty = 0  # periods in a row without a claim
        while True:
            with self._lock:
                # Not after the first: a single message now and then must not wake it each time.
                # Nor with a claim that came since the last look: it would never be renewed.
                self._idle = empty >= PERIODS_TO_IDLE and not self._held
                if not self._closed:  # or a close before this thread ran would wait a period
                    self._changed.wait(timeout=None if self._idle else self._period_s)
                if self._closed:
                    return
                empty = empty + 1 if not self._held and not self._idle else 0
                if self._idle or not self._held:
                    continue  # a new claim needs no renewal yet
            try:
                self.renew()
            except ERRORS:
                continue  # the reading thread reconnects; the claims stay
            except Exception:
                logger.exception("renewing leases")

    def close(self) -> None:
        """Stop renewing. What is still held goes to others when its lease ends."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=self._period_s)


DEFAULTS = StreamsOptions()


class StreamsSession:
    """Close is idempotent. Connects on first use.

    link: one that others use too, instead of one of its own: it is not closed with this.
    """

    def __init__(
        self, *, url: str, options: StreamsOptions = DEFAULTS, link: Link | None = None
    ) -> None:
        unique = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.consumer = options.consumer or unique
        self.lease_s = options.lease_s
        self.link = link or Link(
            url=url, timeout_s=options.broker.timeout_s, options=options.client
        )
        self._own_link = None if link else self.link
        self.keys = Keys(prefix=f"{self.link.tag}{options.prefix}")
        self.store = Store(link=self.link, keys=self.keys, consumer=self.consumer, options=options)
        self.on_lease_lost = options.on_lease_lost
        self.leases = Leases(
            store=self.store, lease_s=self.lease_s, on_lost=lambda tag: self.on_lease_lost(tag)
        )
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Make a forked child another consumer: its parent keeps what it holds."""
        self.leases.forget()
        self.consumer = self.store.consumer = f"{self.consumer}.{os.getpid()}"

    def close(self) -> None:
        """Stop renewing; what is still held goes to others when its lease ends."""
        self.leases.close()
        if self._own_link is not None:
            self._own_link.close()


# With several brokers, a task may end when its own is unreachable and another is in use. The worker
# does not wait: its acknowledgement is deferred, and a thread repeats it until that broker answers.
# Until then the message stays there unacknowledged, and if the worker dies meanwhile it runs again.

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
