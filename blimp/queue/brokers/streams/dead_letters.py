"""Dead letters: what was given up, why, and what a person may do about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.queue.brokers.streams import envelope as wire
from blimp.queue.redis.keys import QueueKeys

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.store import Store


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """id: of the letter, its time of death in ms on the server's clock before the dash.
    entry: the message's own id, the time it came. headers and body: None where unreadable.
    """

    id: str
    queue: str
    reason: str
    deliveries: int
    entry: str
    headers: dict[str, Any] | None = None
    body: str | bytes | None = None


class DeadLetters:
    """The dead letters of one queue. Raises redis-py's errors."""

    def __init__(self, *, store: Store, queue: str) -> None:
        self._store = store
        self._keys: QueueKeys = store.keys.queue(queue)

    def __len__(self) -> int:
        return int(self._store.link.client.xlen(self._keys.dead))

    def list(self, *, limit: int = 100, after: str | None = None) -> list[DeadLetter]:
        """Return up to `limit`, oldest first, those after the letter id `after`."""
        first = "-" if after is None else f"({after}"
        found: Any = self._store.link.client.xrange(self._keys.dead, min=first, count=limit)
        return [self._read(id, fields) for id, fields in found]

    def show(self, id: str) -> DeadLetter | None:
        found: Any = self._store.link.client.xrange(self._keys.dead, min=id, max=id)
        return self._read(*found[0]) if found else None

    def requeue(self, id: str, *, forgetting: Sequence[str] = ()) -> bool:
        """Put it at the end of its lane, as if it had never been delivered; False if gone.

        forgetting: the keys of what its first life left behind. Whoever runs it would take
        its old result for its end.
        """
        found: Any = self._store.link.client.xrange(self._keys.dead, min=id, max=id)
        head = _undelivered(found[0][1].get(wire.HEAD, b"")) if found else b""
        return self._store.requeue_dead(self._keys, id, head=head, forgetting=forgetting)

    def drop(self, id: str) -> bool:
        """Forget it; False if it was gone."""
        return bool(self._store.link.client.xdel(self._keys.dead, id))

    def _read(self, id: bytes, fields: dict[bytes, bytes]) -> DeadLetter:
        try:
            payload = wire.unpack([part for pair in fields.items() for part in pair])
        except ValueError:
            payload = {}
        return DeadLetter(
            id=id.decode(),
            queue=self._keys.name,
            reason=fields[b"reason"].decode(errors="replace"),
            deliveries=int(fields[b"deliveries"]),
            entry=fields[b"entry"].decode(),
            headers=payload.get("headers"),
            body=payload.get("body"),
        )


def _undelivered(head: bytes) -> bytes:
    """Return `head` without its count of earlier deliveries; nothing where it has none."""
    try:
        document = json.loads(head)
        del document["headers"]["blimp_delivery"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return b""
    return json.dumps(document).encode()
