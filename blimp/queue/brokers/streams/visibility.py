"""Leases: what one consumer holds. A thread of their own renews them, whatever the tasks do."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import redis

from blimp.queue.brokers.streams.store import DONE, LOST, SETTLED, UNKNOWN, Store
from blimp.queue.redis.client import Link, reset_after_fork
from blimp.queue.redis.keys import Keys

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.envelope import Claim

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
        self._later: deque[str] = deque()
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
        return self._settled(tag, self._complete([claim])[0])

    def ack_later(self, tag: str) -> None:
        """Complete a delivery with the next `flush`, or when leases are next renewed."""
        self._later.append(tag)

    def flush(self) -> None:
        """Complete in one step what `ack_later` gathered; call `on_lost` for what is lost."""
        tags: list[str] = []
        with contextlib.suppress(IndexError):  # the consuming thread and ours may flush at once
            while True:
                tags.append(self._later.popleft())
        claims = [claim for tag in tags if (claim := self._held.get(tag)) is not None]
        if claims:
            try:
                answers = self._complete(claims)
            except BaseException:
                self._later.extend(tags)
                raise
            for claim, answer in zip(claims, answers, strict=True):
                self._settled(claim.tag, answer)

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
        claim = self._held.get(tag)
        if claim is None:
            return SETTLED
        self._send([claim])
        return self._settled(tag, self._store.dead_letter(claim, reason))

    def _complete(self, claims: Sequence[Claim]) -> list[int]:
        """Acknowledge; SETTLED is only what an attempt of ours may have settled."""
        repeated = self._send(claims)
        try:
            answers = self._store.ack(claims)
        except redis.ConnectionError:  # idle, it had died; or its answer was lost
            return self._store.ack(claims)
        return [
            LOST if answer == SETTLED and claim.tag not in repeated else answer
            for claim, answer in zip(claims, answers, strict=True)
        ]

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
                if self._idle or not (self._held or self._later):
                    continue  # a new claim needs no renewal yet
            try:
                self.flush()
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


DEFAULT_LEASE_S = 2.0
DEFAULT_MAX_DELIVERIES = 20
DEFAULT_MAX_DEAD = 10_000
DEFAULT_MAX_DEAD_BYTES = 64_000_000


class StreamsSession:
    """Close is idempotent. Connects on first use.

    Transport options:
    consumer: its name; a unique one by default. A consumer that starts requeues what its name
        held. Of two consumers with one name the later one wins, and the earlier loses its leases.
    lease_s: how long after its holder's last renewal a message may be taken by others.
    max_deliveries: after so many it is a dead letter. max_dead_letters, max_dead_letter_bytes: kept
        per queue; the oldest go.
    key_prefix: of every key on the server. global_keyprefix: kombu's, stands before it.
    on_lease_lost: called with the delivery tag, from any thread.
    on_undecodable: called with the head of an entry that cannot be read, its queue, and why.
    """

    def __init__(self, *, url: str, options: dict[str, Any], ssl: Any = None) -> None:
        unique = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.consumer = str(options.get("consumer") or unique)
        self.lease_s = float(options.get("lease_s", DEFAULT_LEASE_S))
        self.link = Link(url=url, options=options, ssl=ssl)
        before, own = options.get("global_keyprefix") or "", options.get("key_prefix", "blimp")
        self.keys = Keys(prefix=f"{self.link.tag}{before}{own}")
        self.store = Store(
            link=self.link,
            keys=self.keys,
            consumer=self.consumer,
            lease_ms=int(self.lease_s * 1000),
            max_deliveries=int(options.get("max_deliveries", DEFAULT_MAX_DELIVERIES)),
            max_dead=int(options.get("max_dead_letters", DEFAULT_MAX_DEAD)),
            max_dead_bytes=int(options.get("max_dead_letter_bytes", DEFAULT_MAX_DEAD_BYTES)),
        )
        self.on_lease_lost: Callable[[str], None] = options.get("on_lease_lost") or _nothing
        self.on_undecodable: Callable[[bytes, str, Exception], None] = (
            options.get("on_undecodable") or _nothing
        )
        self.leases = Leases(
            store=self.store, lease_s=self.lease_s, on_lost=lambda tag: self.on_lease_lost(tag)
        )
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Make a forked child another consumer: its parent keeps what it holds."""
        self.link.after_fork()
        self.leases.forget()
        self.consumer = self.store.consumer = f"{self.consumer}.{os.getpid()}"

    def close(self) -> None:
        """Stop renewing; what is still held goes to others when its lease ends."""
        self.leases.close()
        self.link.close()


def _nothing(*_: object) -> None:
    return None
