"""Revocations: tasks that are sent and are not to run.

The server keeps each for `KEEP_S`, for workers that were cut off or start later. A broadcast
reaches the others at once. A message that waits is marked, too: the worker that receives it needs
neither. With a signing key each is signed, in all three places.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from blimp.errors import MessageError, Revoked
from blimp.queue.brokers.base import MOST_SEARCHED, Found
from blimp.queue.protocol.message import check_name
from blimp.queue.protocol.record import Record, State, fault_of
from blimp.queue.redis.keys import revoked_key

if TYPE_CHECKING:
    from blimp.queue.protocol.signing import Signer
    from blimp.queue.redis.client import RedisServer

KEEP_S = 86_400
MOST = 50_000  # known at once; the oldest are forgotten
BROADCAST = "blimp.revoke"


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
    signer: None if every program that reaches the server may revoke.
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
        check_name(id, "id")
        if self._link is not None:
            self._count = None
            member = self._member(id, terminate=terminate)

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

    def revoke_waiting(
        self,
        id: str,
        *,
        queues: Iterable[str | None],
        mark_message: Callable[[str, str, bytes], Found] | None,
        results: Any,
        wall_s: float,
    ) -> Revocation:
        """Mark the message of `id` if it waits; only then its state is REVOKED: it can run no more.

        mark_message: `Publisher.revoke`; None if the broker finds none. results: may be None.
        Raises LinkError, ResultError.
        """
        record = Record(id=id, state=State.PENDING) if results is None else results.get(id)
        if record.final:
            return Revocation.REVOKED if record.state is State.REVOKED else Revocation.ENDED
        if mark_message is None:
            return Revocation.SENT
        mark, found = self._member(id, terminate=False).encode(), Found.ABSENT
        for queue in filter(None, queues):
            answer = mark_message(queue, id, mark)
            if answer is not Found.ABSENT:
                found = answer
            if answer in (Found.MARKED, Found.IN_FLIGHT):
                break
        if found is Found.ABSENT:
            # It may have ended between the two looks, and then both have missed it.
            record = record if results is None else results.get(id)
            if record.final:
                return Revocation.REVOKED if record.state is State.REVOKED else Revocation.ENDED
            has_begun = record.state is not State.PENDING
            return Revocation.IN_FLIGHT if has_begun else Revocation.UNKNOWN
        if found is not Found.MARKED:
            return Revocation[found.name]
        if results is not None:
            revoked = Record(
                id=id,
                state=State.REVOKED,
                fault=fault_of(Revoked("revoked before it began")),
                date_done=datetime.fromtimestamp(wall_s, UTC).isoformat(),
            )
            if not results.store(revoked) and results.get(id).state is not State.REVOKED:
                return Revocation.ENDED
        return Revocation.REVOKED

    def accept(self, id: str, mark: bytes) -> bool:
        """Add the one that `mark` on the message of `id` says; return False if it is not valid."""
        is_valid = self._read(mark) == (id, False)
        if is_valid:
            self.add(id, terminate=False)
        return is_valid

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
        new: dict[str, bool] = {}
        for id, terminate in filter(None, (self._read(one, known) for one in members)):
            if id not in known or terminate > known[id]:
                new[id] = terminate or new.get(id, False)
        for id, terminate in new.items():
            self.add(id, terminate=terminate)
        return new

    def _member(self, id: str, *, terminate: bool) -> str:
        """Return a revocation as it is stored: "!" or "-", the id and, after a newline, who."""
        signature = ""
        if self._signer is not None:
            signature = "\n" + self._signer.sign_document(_document(id, terminate), place=self._key)
        return ("!" if terminate else "-") + id + signature

    def _read(self, member: bytes, known: Mapping[str, bool] = {}) -> tuple[str, bool] | None:
        """Return an id, and whether to end its task; None for one that is damaged or forged.

        known: those whose signature need not be checked again.
        """
        with contextlib.suppress(UnicodeDecodeError, MessageError):
            id, _, signature = member[1:].decode().partition("\n")
            terminate = member[:1] == b"!"
            if self._signer is not None and not known.get(id, -1) >= terminate:
                document = _document(id, terminate)
                self._signer.check_document(document, signature, place=self._key)
            return (id, terminate) if id else None
        return None

    def ids(self) -> list[str]:
        """Return the ids of all that are known."""
        with self._lock:
            return list(self._known)

    def __contains__(self, id: str) -> bool:
        return id in self._known


def _document(id: str, terminate: bool) -> dict[str, Any]:
    return {"id": id, "name": BROADCAST, "payload": {"terminate": terminate}}
