"""Taking messages for one consumer of some queues, past kombu's channels and callbacks.

What whoever takes messages does alike: Taker for a worker, Pump for kombu.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import redis

from blimp.queue.brokers.streams.reader import Reader
from blimp.queue.brokers.streams.visibility import ERRORS
from blimp.queue.redis.keys import GROUP, LANES

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.reader import Entry
    from blimp.queue.brokers.streams.session import StreamsSession
    from blimp.queue.brokers.streams.store import Claim, Store, Taken
    from blimp.queue.redis.keys import QueueKeys

AT_ONCE_S = 0.001


class Fetcher:
    """Takes in batches, and blocks only where there is nothing. One thread's, but for `wake`.

    Everything it returns is held, and its lease renewed. Raises redis-py's errors and
    OSError; close and make another then.
    """

    def __init__(self, *, session: StreamsSession, queues: Sequence[str]) -> None:
        self._session = session
        self._queues = [session.keys.queue(name) for name in queues]
        self._about = {
            stream: (queue, lane)
            for queue in self._queues
            for lane, stream in enumerate((*queue.lanes, queue.bell))
        }
        self._reader = Reader(session.link)
        self._asked = Asked(lease_s=session.lease_s)
        self._look_s = 0.0  # when it is time to look for what no answer shows
        self._interrupted = False
        self.warnings: tuple[str, ...] = ()  # about the server's settings

    def begin(self) -> int:
        """Take back what this name left in the queues; return how much that was.

        Raises ConfigError if the server is too old, or evicts messages.
        """
        self.warnings = self._session.link.check_server()
        if not self._queues:
            return 0
        return self._session.store.begin(self._queues, known=self._session.leases.claims())

    def take(self, *, room: int, timeout_s: float) -> list[Delivered]:
        """Return up to about `room` messages, lane by lane; none after `timeout_s` or `interrupt`.

        In a lane the queues take turns to be first.
        Where it had to wait it returns one of a lane at most: call again.
        """
        question = self._reader.messages
        if not self._queues:
            self._reader.wait(timeout_s)
            self._interrupted = False
            return []
        if not question.asked:
            if time.monotonic() >= self._look_s:
                found = self._look(room)
                if found:
                    return found
            if timeout_s <= 0.0:
                return []
            self._ask()
        if self._interrupted:
            self._interrupted = False
            return []
        return self._read() if question in self._reader.wait(timeout_s) else []

    def _look(self, room: int) -> list[Delivered]:
        """Take what is there: new, due, put back or left by the dead."""
        self._asked.now()
        taken = take_good(self._session.store, self._queues, room=room)
        until_s = self._asked.at_s + idle_s(taken, lease_s=self._session.lease_s)
        # Less than was asked for is all there is: what comes next is waited for.
        self._look_s = until_s if len(taken.deliveries) < room else 0.0
        if len(taken.deliveries) >= room:
            self._queues.append(self._queues.pop(0))  # or the first could have all of each
        return self._hold(taken.deliveries)

    def _ask(self) -> None:
        """Have the server say when something comes, up to when it is time to look again."""
        block_s = max(0.001, self._look_s - time.monotonic())
        self._asked.now(block_s=block_s)
        block_ms = math.ceil(block_s * 1000)
        command = (
            "XREADGROUP", "GROUP", GROUP, self._session.consumer, "COUNT", 1, "BLOCK", block_ms,
            "STREAMS", *self._about, *(">" for _ in self._about),
        )  # fmt: skip
        self._reader.messages.ask(command, block_ms=block_ms)

    def interrupt(self) -> None:
        """Have a `take` that waits return now. Any thread."""
        self._interrupted = True
        self._reader.wake()

    def close(self) -> None:
        """Put back what an open question brings, and let the connection go. Idempotent."""
        question = self._reader.messages
        with contextlib.suppress(*ERRORS, ValueError):
            if question.asked:
                unseen = claimed(self._session.store, question.withdraw(), self._about)
                self._session.leases.hold([claim for claim, _ in unseen])
                self._session.leases.release([claim.tag for claim, _ in unseen], seen=False)
        self._reader.close()

    def _read(self) -> list[Delivered]:
        question = self._reader.messages
        try:
            entries = question.answer()
        except redis.ResponseError as error:
            make_groups(self._session.store, self._queues, error)
            self._look_s = 0.0
            return []
        found = claimed(self._session.store, entries, self._about)
        if len(found) < len(entries) or time.monotonic() - self._asked.at_s < AT_ONCE_S:
            self._look_s = 0.0  # the bell rang, or there was something before it was asked for
        return self._hold(found)

    def _hold(self, deliveries: list[Delivered]) -> list[Delivered]:
        """Renew from now on; return those that are still ours."""
        if not deliveries:
            return deliveries
        leases = self._session.leases
        leases.hold([claim for claim, _ in deliveries])
        if self._asked.is_late():  # the answer lay here unrenewed: some may be another's by now
            leases.renew([claim for claim, _ in deliveries])
            return [one for one in deliveries if one[0].tag in leases]
        return deliveries


SWEEPS_PER_LEASE = 3  # while idle: looks for the dead and the due this often

Delivered = tuple["Claim", list[bytes]]  # and the fields of its entry


class Asked:
    """When the server was asked, and for how long it may have waited with its answer."""

    def __init__(self, *, lease_s: float) -> None:
        self._patience_s = lease_s / SWEEPS_PER_LEASE
        self._block_s = 0.0
        self.at_s = 0.0  # on time.monotonic()

    def now(self, *, block_s: float = 0.0) -> None:
        self.at_s, self._block_s = time.monotonic(), block_s

    def is_late(self) -> bool:
        """Say whether an answer lay unread for so long that its leases may have ended."""
        return time.monotonic() - self.at_s - self._block_s > self._patience_s


def take_good(store: Store, queues: Sequence[QueueKeys], *, room: int, early_ms: int = 0) -> Taken:
    """Take what there is room for; `expired` counts all that were found too old on the way."""
    taken = store.take(queues, room=room, early_ms=early_ms)
    expired = taken.expired
    while taken.expired and not taken.deliveries:  # more of them may hide what is good
        taken = store.take(queues, room=room, early_ms=early_ms)
        expired += taken.expired
    return taken if expired == taken.expired else msgspec.structs.replace(taken, expired=expired)


def idle_s(taken: Taken, *, lease_s: float) -> float:
    """Return how long there is nothing to look for but what the server tells of."""
    wait_s = lease_s / SWEEPS_PER_LEASE
    if taken.next_due_ms is None:
        return wait_s
    # The next one due is waited for, its server's milliseconds rounded up.
    return min(wait_s, (taken.next_due_ms + 1) / 1000.0)


def claimed(
    store: Store, entries: Iterable[Entry], about: Mapping[str, tuple[QueueKeys, int]]
) -> list[Delivered]:
    """Return what an answer brought, lane by lane; `about`: of each stream its queue and lane."""
    found: list[Delivered] = []
    for stream, id, fields in entries:
        queue, lane = about[stream]
        if lane < LANES:  # else the bell: it only wakes
            found.append((store.claim(queue, lane, id, 1), fields))
    found.sort(key=lambda one: one[0].lane)
    return found


def make_groups(store: Store, queues: Iterable[QueueKeys], error: redis.ResponseError) -> None:
    """Have the groups again whose absence is `error`; raise any other."""
    if not str(error).startswith("NOGROUP"):
        raise error
    for queue in queues:  # the server was emptied, or the queue deleted
        store.make_group(queue)
