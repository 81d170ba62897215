"""How a delivery ends: everything that the server writes in the one step that ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from blimp.queue.redis.keys import QueueKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blimp.queue.brokers.streams.store import Claim


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """One message on its way into a queue. due_ms: on the server's clock, 0 for now."""

    queue: QueueKeys
    lane: int
    due_ms: int
    head: bytes
    body: bytes


class Chorded(msgspec.Struct, frozen=True, kw_only=True):
    """What chords add to an end; see complete.lua.

    parts: the five keys of a chord, and member, place and entry. bodies: the five keys.
    records: key and JSON, kept for `records_keep_s`. begun: key and number of parts. keep_s:
    what chords are.
    """

    parts: tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...] = ()
    bodies: tuple[tuple[str, ...], ...] = ()
    records: tuple[tuple[str, bytes], ...] = ()
    begun: tuple[tuple[str, int], ...] = ()
    records_keep_s: int = 0
    keep_s: int = 0
    done_s: int = 0

    def arguments(self) -> tuple[list[str], list[Any]]:
        """Return its keys and arguments."""
        keys: list[str] = []
        args: list[Any] = [len(self.parts), len(self.bodies), len(self.records), len(self.begun)]
        args.append(self.keep_s)
        for names, words in self.parts:
            keys += names
            args += words
        for names in self.bodies:
            keys += names
            args.append(self.done_s)
        for key, record in self.records:
            keys.append(key)
            args += (record, self.records_keep_s)
        for key, size in self.begun:
            keys.append(key)
            args.append(size)
        return keys, args


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How one delivery ends.

    claim: None where it was acknowledged before it ran. Then once: a key of its own, so that
        an end whose answer was lost is not written twice; "" where nothing follows.
    result, record, keep_s: the key of a task's result, its JSON, and how long it is kept.
    puts: the messages that follow. reason: why it becomes a dead letter.
    chorded: None for most.
    """

    claim: Claim | None = None
    once: str = ""
    result: str = ""
    record: bytes = b""
    keep_s: int = 0
    puts: tuple[Put, ...] = ()
    reason: str = ""
    chorded: Chorded | None = None


def arguments(ends: Sequence[End]) -> tuple[list[str], list[Any]]:
    """Return the keys and arguments of `complete.lua`, without the first three."""
    keys: list[str] = []
    args: list[Any] = []
    for end in ends:
        claim = end.claim
        if claim is None:
            keys += (end.once, "", end.result)
            args += ("", 0, 0)
        else:
            keys += (claim.stream, claim.queue.dead, end.result)
            args += (claim.id, claim.fence, claim.lane)
        count = len(end.puts) if end.chorded is None else f"+{len(end.puts)}"
        args += (end.reason, end.record, end.keep_s, count)
        for put in end.puts:
            keys += (put.queue.lanes[put.lane], put.queue.later, put.queue.bell)
            args += (put.lane, put.due_ms, put.head, put.body)
        if end.chorded is not None:
            more_keys, more_args = end.chorded.arguments()
            keys += more_keys
            args += more_args
    return keys, args
