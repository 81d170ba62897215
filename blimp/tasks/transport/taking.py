"""What whoever takes messages does alike: Taker for a worker, Pump for kombu."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import redis

from blimp.tasks.transport.keys import LANES

if TYPE_CHECKING:
    from blimp.tasks.transport.keys import QueueKeys
    from blimp.tasks.transport.reader import Entry
    from blimp.tasks.transport.store import Claim, Store, Taken

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
