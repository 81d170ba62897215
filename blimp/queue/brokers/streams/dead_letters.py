"""The dead letters of a queue: shown, put back, dropped. Tested by test_dead_letters.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import NotGenuine
from blimp.nesting import shallow
from blimp.queue.brokers.streams import envelope as wire
from blimp.queue.protocol.message import LIFE

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.store import Store
    from blimp.queue.protocol.signing import Signer
    from blimp.queue.redis.keys import QueueKeys

MOST_LIVES = 2**31 - 1  # of a message; a reader accepts no more


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """id: of the letter, its time of death in ms on the server's clock before the dash.
    entry: the message's own id, the time it came. headers and body: None if unreadable.
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

    def requeue(
        self, id: str, *, forgetting: Sequence[str] = (), signer: Signer | None = None
    ) -> bool:
        """Put it at the end of its level, as if it had never been delivered; False if gone.

        forgetting: the keys of what its first life left behind. A worker would take its old
        result for its end. signer: signs it again, if it is genuine: else a worker that had it
        before may take it for a copy.
        """
        found: Any = self._store.link.client.xrange(self._keys.dead, min=id, max=id)
        head = b""
        if found:
            fields = found[0][1]
            again = partial(_sign_again, signer, fields.get(wire.BODY, b""), self._keys.name)
            head = _sent_again(fields.get(wire.HEAD, b""), again)
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


def _sent_again(head: bytes, sign: Callable[[dict[str, Any]], bool]) -> bytes:
    """Return `head` without its count of earlier deliveries; nothing if it stays as it is.

    That of a task counts its lives.
    """
    try:
        document = json.loads(shallow(head))
        headers = document["headers"]
        is_counted = headers.pop("blimp_delivery", None) is not None
        is_task = "task" in headers
        if is_task:
            life = headers.get(LIFE)
            headers[LIFE] = life + 1 if type(life) is int and 0 < life < MOST_LIVES else 1
        if not sign(headers) and not is_counted and not is_task:
            return b""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return b""
    return json.dumps(document).encode()


def _sign_again(signer: Signer | None, body: bytes, queue: str, headers: dict[str, Any]) -> bool:
    try:
        if signer is None:
            return False
        signer.check(headers, body, queue=queue)
    except NotGenuine:
        return False
    signer.sign_again(headers, body, queue=queue)
    return True
