"""Revoked tasks: which there are, kept on the server and known in every worker.

The server keeps each for `KEEP_S`, for workers that were cut off or start later. A broadcast
reaches the others at once. A message that waits is marked, too: the worker that receives it
needs neither. With a signing key each is signed, in all three places.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from blimp.errors import MessageError
from blimp.queue.brokers.base import MOST_SEARCHED
from blimp.queue.protocol.message import MAX_NAME_LENGTH
from blimp.queue.redis.keys import revoked_key

if TYPE_CHECKING:
    from blimp.queue.protocol.signing import Signer
    from blimp.queue.redis.client import RedisServer

KEEP_S = 86_400
MOST = 50_000  # known at once; the oldest are forgotten
BROADCAST = "blimp.revoke"
SEPARATOR = "\n"  # no id has one


class Revocation(StrEnum):
    """What `TaskApp.revoke` found. In each case the revocation itself is in force."""

    REVOKED = "revoked: it had not begun, and never runs"
    IN_FLIGHT = "in flight: its worker was asked to revoke it"
    ENDED = "has ended already"
    UNKNOWN = "unknown: nothing of it was found; it will not begin if it is sent within a day"
    NOT_SEARCHED = (
        f"not among the first {MOST_SEARCHED} messages of its queue: the workers were asked to "
        "revoke it"
    )
    SENT = "sent to the workers: the broker cannot say whether it waits"


class Revocations:
    """Thread-safe. Methods that ask the server raise LinkError.

    link: None without a server: then only the broadcast carries a revocation.
    signer: None if everybody who reaches the server may revoke.
    """

    def __init__(self, *, link: RedisServer | None, app: str, signer: Signer | None) -> None:
        self._link = link
        self._signer = signer
        self._key = revoked_key(app)
        self._lock = threading.Lock()
        self._count: object = None  # of the revocations that are known
        self._known: OrderedDict[str, bool] = OrderedDict()  # id: terminate

    def keep(self, id: str, *, terminate: bool, now_s: float) -> None:
        """Store that `id` is revoked. Raises MessageError for what is no id."""
        if not 0 < len(id) <= MAX_NAME_LENGTH or not id.isprintable():
            raise MessageError(f"id {id!r:.80}: must be 1 to {MAX_NAME_LENGTH} printable letters")
        if self._link is not None:
            self._count = None
            member = self._write(id, terminate=terminate)

            def write(client: Any) -> None:
                with client.pipeline() as pipe:
                    pipe.zremrangebyscore(self._key, "-inf", now_s)
                    pipe.zadd(self._key, {member: now_s + KEEP_S})
                    pipe.zremrangebyrank(self._key, 0, -MOST - 1)
                    pipe.expire(self._key, KEEP_S)
                    pipe.incr(self._key + ":count")
                    pipe.expire(self._key + ":count", KEEP_S)
                    pipe.execute()

            self._link.ask(write)
        self.add(id, terminate=terminate)

    def mark(self, id: str) -> bytes:
        """Return what is added to the message of `id`, for the worker that receives it."""
        return self._write(id, terminate=False).encode()

    def accept(self, id: str, mark: bytes) -> bool:
        """Add the one that `mark` on the message of `id` says; return False if it is not valid."""
        found = _read(mark)
        if found is None or found[0] != id or not self._is_signed(id, found[2], terminate=found[1]):
            return False
        self.add(id, terminate=False)
        return True

    def add(self, id: str, *, terminate: bool) -> None:
        """Add one that came by broadcast."""
        with self._lock:
            self._known[id] = terminate or self._known.pop(id, False)
            while len(self._known) > MOST:
                self._known.popitem(last=False)

    def load(self, *, now_s: float) -> dict[str, bool]:
        """Add those on the server; return the new ones, with whether to end a running task."""
        if self._link is None:
            return {}
        link = self._link
        count = (link.brokers.current, link.ask(lambda client: client.get(self._key + ":count")))
        if count == self._count:
            return {}
        members: Any = link.ask(lambda client: client.zrangebyscore(self._key, now_s, "+inf"))
        self._count = count
        with self._lock:
            known = dict(self._known)
        found: dict[str, bool] = {}
        for id, terminate, signature in filter(None, map(_read, members)):
            is_known = id in known and known[id] >= terminate
            if is_known or self._is_signed(id, signature, terminate=terminate):
                found[id] = terminate or found.get(id, False)
        new = {id: end for id, end in found.items() if id not in known or end > known[id]}
        for id, terminate in new.items():
            self.add(id, terminate=terminate)
        return new

    def _write(self, id: str, *, terminate: bool) -> str:
        member = ("!" if terminate else "-") + id
        if self._signer is None:
            return member
        document = _document(id, terminate=terminate)
        return member + SEPARATOR + self._signer.sign_document(document, place=self._key)

    def _is_signed(self, id: str, signature: str, *, terminate: bool) -> bool:
        if self._signer is None:
            return True
        document = _document(id, terminate=terminate)
        try:
            self._signer.check_document(document, signature, place=self._key)
        except MessageError:
            return False
        return True

    def ids(self) -> list[str]:
        """Return the ids of all that are known."""
        with self._lock:
            return list(self._known)

    def __contains__(self, id: str) -> bool:
        return id in self._known


def _read(member: bytes) -> tuple[str, bool, str] | None:
    """Return an id, whether to end its task, and a signature; None for a damaged member."""
    try:
        id, _, signature = member[1:].decode().partition(SEPARATOR)
    except UnicodeDecodeError:
        return None
    return (id, member[:1] == b"!", signature) if id else None


def _document(id: str, *, terminate: bool) -> dict[str, Any]:
    return {"id": id, "name": BROADCAST, "payload": {"terminate": terminate}}
