"""The claims of unique tasks on the server: see shared.lua. Tested by test_unique.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.envelope import Envelope, Stamp
    from blimp.queue.brokers.streams.store import Store
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.protocol.unique import UniqueClaim


class HeldClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim and the task that has it. left_s: None if it lasts until that begins or ends."""

    id: str
    task: str
    left_s: float | None


class UniqueClaims:
    """Thread-safe. Raises redis-py's errors."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(
        self, message: TaskMessage, envelope: Envelope, claim: UniqueClaim, *, stamp: Stamp
    ) -> str:
        """Put a message and give it its claim; return the id of the task that has that now."""
        queue = self._store.keys.queue(message.queue)
        keys = [stamp.key, queue.levels[envelope.level], queue.later, queue.bell]
        args = [
            stamp.number, stamp.remember_ms, envelope.level, envelope.due_ms, envelope.head,
            envelope.body, envelope.tenant, claim.digest, claim.lasts, message.id, message.task,
        ]  # fmt: skip
        id: bytes = self._store.run("put_unique", [*keys, *self._keys(claim.queue)], args)
        return id.decode()

    def free(self, claim: UniqueClaim, id: str) -> None:
        """Free a claim if task `id` has it."""
        self._store.run("free_claim", self._keys(claim.queue), [claim.digest, id])

    def free_all_of(self, queue: str, id: str) -> bool:
        """Free what task `id` has in `queue`; return whether it had any."""
        found = [digest for digest, one in self._held(queue) if one.id == id]
        for digest in found:
            self._store.run("free_claim", self._keys(queue), [digest, id])
        return bool(found)

    def held(self, queue: str, *, limit: int) -> list[HeldClaim]:
        """Return up to `limit` claims, those that end first before the others."""
        found = [one for (_, one), _ in zip(self._held(queue), range(limit), strict=False)]
        return sorted(found, key=lambda one: (one.left_s is None, one.left_s, one.id))

    def _held(self, queue: str) -> Iterator[tuple[bytes, HeldClaim]]:
        client = self._store.link.client
        seconds, microseconds = client.time()
        now_s = seconds + microseconds / 1e6
        for digest, text in client.hscan_iter(self._keys(queue)[0], count=1000):
            head, _, task = text.decode(errors="replace").partition("\n")
            ends_ms, _, id = head.partition(" ")
            left_s = None if ends_ms == "0" else int(ends_ms) / 1e3 - now_s
            if left_s is None or left_s > 0.0:
                yield digest, HeldClaim(id=id, task=task, left_s=left_s)

    def _keys(self, queue: str) -> list[str]:
        keys = self._store.keys.queue(queue)
        return [keys.unique, keys.unique_ends]
