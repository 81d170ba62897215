"""Taking messages for one consumer of some queues, past kombu's channels and callbacks."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import redis

from blimp.tasks.transport.keys import GROUP, LANES
from blimp.tasks.transport.leases import ERRORS
from blimp.tasks.transport.reader import Entry, Reader

if TYPE_CHECKING:
    from blimp.tasks.transport.holder import Holder
    from blimp.tasks.transport.store import Claim

SWEEPS_PER_LEASE = 3  # while idle: looks for the dead and the due this often
AT_ONCE_S = 0.001

Delivered = tuple["Claim", list[bytes]]  # and the fields of its entry


class Taker:
    """Takes in batches, and blocks only where there is nothing. One thread's, but for `wake`.

    Everything it returns is held, and its lease renewed. Raises redis-py's errors and
    OSError; close and make another then.
    """

    def __init__(self, *, holder: Holder, queues: Sequence[str]) -> None:
        self._holder = holder
        self._queues = [holder.keys.queue(name) for name in queues]
        self._about = {
            stream: (queue, lane)
            for queue in self._queues
            for lane, stream in enumerate((*queue.lanes, queue.bell))
        }
        self._reader = Reader(holder.link)
        self._asked_s = 0.0
        self._block_s = 0.0
        self._look_s = 0.0  # when it is time to look for what no answer shows
        self._interrupted = False

    def begin(self) -> int:
        """Take back what this name left in the queues; return how much that was.

        Raises ConfigError where the server is too old.
        """
        self._holder.link.check_version()
        if not self._queues:
            return 0
        return self._holder.store.begin(self._queues, known=self._holder.leases.claims())

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
        store = self._holder.store
        self._asked_s, self._block_s = time.monotonic(), 0.0
        taken = store.take(self._queues, room=room)
        while taken.expired and not taken.deliveries:  # more of them may hide what is good
            taken = store.take(self._queues, room=room)
        wait_s = self._holder.lease_s / SWEEPS_PER_LEASE
        if taken.next_due_ms is not None:
            # The next one due is waited for, its server's milliseconds rounded up.
            wait_s = min(wait_s, (taken.next_due_ms + 1) / 1000.0)
        # Less than was asked for is all there is: what comes next is waited for.
        self._look_s = self._asked_s + wait_s if len(taken.deliveries) < room else 0.0
        if len(taken.deliveries) >= room:
            self._queues.append(self._queues.pop(0))  # or the first could have all of each
        return self._hold(taken.deliveries)

    def _ask(self) -> None:
        """Have the server say when something comes, up to when it is time to look again."""
        self._asked_s = time.monotonic()
        self._block_s = max(0.001, self._look_s - self._asked_s)
        block_ms = math.ceil(self._block_s * 1000)
        command = (
            "XREADGROUP", "GROUP", GROUP, self._holder.consumer, "COUNT", 1, "BLOCK", block_ms,
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
                unseen = self._claims(question.withdraw())
                self._holder.leases.hold([claim for claim, _ in unseen])
                self._holder.leases.release([claim.tag for claim, _ in unseen], seen=False)
        self._reader.close()

    def _read(self) -> list[Delivered]:
        question = self._reader.messages
        try:
            entries = question.answer()
        except redis.ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            for queue in self._queues:  # the server was emptied, or the queue deleted
                self._holder.store.make_group(queue)
            self._look_s = 0.0
            return []
        found = self._claims(entries)
        if len(found) < len(entries) or time.monotonic() - self._asked_s < AT_ONCE_S:
            self._look_s = 0.0  # the bell rang, or there was something before it was asked for
        return self._hold(found)

    def _claims(self, entries: Sequence[Entry]) -> list[Delivered]:
        found: list[Delivered] = []
        for stream, id, fields in entries:
            queue, lane = self._about[stream]
            if lane < LANES:  # else the bell: it only wakes
                found.append((self._holder.store.claim(queue, lane, id, 1), fields))
        found.sort(key=lambda one: one[0].lane)
        return found

    def _hold(self, deliveries: list[Delivered]) -> list[Delivered]:
        """Renew from now on; return those that are still ours."""
        if not deliveries:
            return deliveries
        leases = self._holder.leases
        leases.hold([claim for claim, _ in deliveries])
        late_s = time.monotonic() - self._asked_s - self._block_s
        if late_s > self._holder.lease_s / SWEEPS_PER_LEASE:
            # The answer lay here unread, unrenewed: some may be another's by now.
            leases.renew([claim for claim, _ in deliveries])
            return [one for one in deliveries if one[0].tag in leases]
        return deliveries
