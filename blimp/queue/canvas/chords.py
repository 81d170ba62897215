"""Counting the parts of chords on a Redis server, in the keys that Celery uses.

Where results are kept on a Redis server it is that one, since Celery's clients write a chord's
size there; otherwise the broker, where that is one. It is the broker itself in the usual case.

A canvas in the one step that ends a delivery on streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import ResultError
from blimp.queue.redis.keys import chord_keys, chord_size_key, group_key
from blimp.queue.redis.urls import is_refusal

if TYPE_CHECKING:
    from blimp.queue.brokers.base import ChordPart
    from blimp.queue.redis.server import RedisServer

DONE_S = 3600  # that a body has begun is remembered, for a part that is told again
NO_REDIS = "chords need a Redis server to count on: as the broker, or for the results"

# Calls of the functions in chords.lua, each a script of its own.
BEGIN = "for n, key in ipairs(KEYS) do begin_chord(key, ARGV[n + 1], ARGV[1]) end"
COUNT = "return count_part(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], unpack(ARGV))"
JOIN = "join_parts(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1])"


def read_entries(client: Any, group_id: str) -> list[tuple[str, str, Any]]:
    """Return id, state and value of each part, in order. Raises ResultError, redis-py's errors."""
    found = []
    for raw in _asked(lambda: client.zrange(chord_keys(group_id)[0], 0, -1)):
        try:
            _, id, state, value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
            raise ResultError(f"a part of chord {group_id} cannot be read: {error}") from None
        found.append((str(id), str(state), value))
    return found


def read_shape(client: Any, group_id: str) -> Any:
    """Return Celery's `as_tuple` of a header that has groups in it, None for any other."""
    try:
        raw = _asked(lambda: client.get(group_key(group_id)))
        return None if raw is None else msgspec.json.decode(raw)["result"]
    except (ResultError, msgspec.DecodeError, KeyError, TypeError, RecursionError):
        return None


class Chords:
    """The steps of a chord where they are steps of their own. Raises LinkError."""

    def __init__(self, *, link: RedisServer, keep_s: int) -> None:
        self.link = link
        self.keep_s = keep_s

    def begin(self, sizes: Sequence[tuple[str, int]]) -> None:
        """Write the number of parts of each chord. Call it before any part is sent."""
        keys = [chord_size_key(group_id) for group_id, _ in sizes]
        self._run(BEGIN, keys, [self.keep_s, *(size for _, size in sizes)])

    def count(self, part: ChordPart) -> bool:
        """Count one part; return whether all have ended now and this one starts the body."""
        words = [*part.arguments(), self.keep_s]
        return bool(self._run(COUNT, chord_keys(part.group_id), words) == 2)

    def joined(self, part: ChordPart) -> None:
        """Mark the body of the part's chord as started."""
        self._run(JOIN, chord_keys(part.group_id), [DONE_S])

    def _run(self, call: str, keys: Sequence[str], words: list[Any]) -> Any:
        text = functions() + call
        return self.link.ask(
            lambda client: _asked(lambda: client.eval(text, len(keys), *keys, *words))
        )


def _asked(function: Callable[[], Any]) -> Any:
    """Call `function`. Raises ResultError where a key is not what it should be."""
    from redis import ResponseError

    try:
        return function()
    except ResponseError as error:
        if is_refusal(error):
            raise ResultError(f"a chord cannot be counted: {error}") from None
        raise


@cache
def functions() -> str:
    """Return the Lua functions that count chords."""
    return (files(__package__) / "chords.lua").read_text()
