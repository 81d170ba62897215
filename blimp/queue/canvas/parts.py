"""Parts of chords: what a task reports of itself, and how it is counted on a Redis server.

Tested by test_chords.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import ResultError
from blimp.queue.protocol.message import to_json
from blimp.queue.protocol.record import CELERY_STATUS, State
from blimp.queue.redis.client import type_checked
from blimp.queue.redis.keys import chord_keys, chord_size_key, result_key
from blimp.queue.redis.scripts import Script, read_functions

if TYPE_CHECKING:
    from blimp.queue.brokers.base import ConsumerOptions
    from blimp.queue.protocol.embed import Signature
    from blimp.queue.protocol.signing import Signer
    from blimp.queue.redis.client import RedisServer

LAST = "+inf"  # the place of a part that has none
DONE_S = 3600  # how long it is known that a body has started, for a part that comes again
# Calls of the functions in results.lua, each a script of its own.
BEGIN = "for n, key in ipairs(KEYS) do begin_chord(key, ARGV[n + 1], ARGV[1]) end"
COUNT = "return count_part(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], unpack(ARGV))"
JOIN = "join_parts(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1])"


def part_place(group_id: str, place: float) -> str:
    """Return what the signature of a chord's part is for: its chord, and its place there."""
    return f"part {place!r} of chord {group_id}"


class ChordPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one task reports to the chord that it is a part of.

    body: what follows when all parts are reported. index: its place, None if it has none.
    """

    group_id: str
    id: str
    index: int | None
    state: State
    value: Any
    body: Signature

    @property
    def entry(self) -> list[Any]:
        """What Celery stores of it until all parts are there."""
        return [1, self.id, CELERY_STATUS.get(self.state, self.state.value), self.value]

    def words(self, signer: Signer | None) -> tuple[str, str | int, bytes]:
        """Return member, place and entry for Lua. Raises ResultError if JSON cannot hold it."""
        place: str | int = LAST if self.index is None else self.index
        try:
            entry = to_json(self.entry)
        except (TypeError, ValueError, RecursionError) as error:
            raise ResultError(f"a chord's part is what JSON cannot hold: {error}") from None
        if signer is not None:
            entry = signer.append_to(entry, place=part_place(self.group_id, float(place)))
        return f"{self.id}:{place}", place, entry


class ChordUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What a completion writes of chords.

    parts: to be counted; if one completes its chord, the body has to be added first.
    joined: the parts that did, and whose body is among the messages that follow.
    records: results of tasks that can run no more, by id. sizes: of chords that begin, by group.
    settled: the task's result stood already; what follows it is only sent if the worker that
        wrote the result did not, to begin a body.
    """

    parts: tuple[ChordPart, ...] = ()
    joined: tuple[ChordPart, ...] = ()
    records: tuple[tuple[str, bytes], ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    settled: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether nothing follows: it was sent when the result was written."""
        return self.settled and not self.joined

    def arguments(self, options: ConsumerOptions) -> tuple[list[str], list[Any]]:
        """Return keys and arguments for complete.lua. Raises ResultError if JSON cannot hold it."""
        here = options.completes_follow_ups
        parts = self.parts if here else ()
        joined = self.joined if here else ()
        records = self.records if options.completes_results and not self.is_silent else ()
        sizes = self.sizes if here and not self.is_silent else ()
        keys: list[str] = []
        args: list[Any] = [len(parts), len(joined), len(records), len(sizes)]
        args.append(options.follow_up_keep_s)
        for part in parts:
            keys += chord_keys(part.group_id)
            args += part.words(options.signer)
        for part in joined:
            keys += chord_keys(part.group_id)
            args.append(DONE_S)
        for id, record in records:
            keys.append(result_key(id))
            args += (record, options.result_keep_s)
        for group_id, size in sizes:
            keys.append(chord_size_key(group_id))
            args.append(size)
        return keys, args


class Chords:
    """Counts chords in steps of their own. Raises LinkError, ResultError."""

    def __init__(self, *, link: RedisServer, keep_s: int, signer: Signer | None = None) -> None:
        self.link = link
        self.signer = signer
        self.keep_s = keep_s

    def begin(self, sizes: Sequence[tuple[str, int]]) -> None:
        """Write the number of parts of each chord. Call it before any part is sent."""
        keys = [chord_size_key(group_id) for group_id, _ in sizes]
        self._run(BEGIN, keys, [self.keep_s, *(size for _, size in sizes)])

    def count(self, part: ChordPart) -> bool:
        """Count one part; return whether all have ended now and this one starts the body."""
        words = [*part.words(self.signer), self.keep_s]
        return bool(self._run(COUNT, chord_keys(part.group_id), words) == 2)

    def joined(self, part: ChordPart) -> None:
        """Mark the body of the part's chord as started."""
        self._run(JOIN, chord_keys(part.group_id), [DONE_S])

    def _run(self, call: str, keys: Sequence[str], words: list[Any]) -> Any:
        script = _script(call)
        return self.link.ask(lambda client: type_checked(lambda: script.run(client, keys, words)))


@cache
def _script(call: str) -> Script:
    """Return the script that makes `call` of the functions in results.lua."""
    return Script(read_functions("results.lua") + call)
