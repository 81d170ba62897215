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
from blimp.queue.brokers.streams.completion import Chorded
from blimp.queue.canvas.follow import Part
from blimp.queue.protocol.message import to_json
from blimp.queue.results.redis_backend import GROUP_PREFIX, is_refusal, result_key

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.canvas.follow import Canvas
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.redis.server import RedisServer
    from blimp.queue.results.base import ResultBackend
    from blimp.queue.worker.job import Ending

KEEP_S = 86_400  # at least: a part may take longer than results are kept
DONE_S = 3600  # that a body has begun is remembered, for a part that is told again
NO_REDIS = "chords need a Redis server to count on: as the broker, or for the results"
LAST = "+inf"  # the place of a part that has none

# Calls of the functions in chords.lua, each a script of its own.
BEGIN = "for n, key in ipairs(KEYS) do begin_chord(key, ARGV[n + 1], ARGV[1]) end"
COUNT = "return count_part(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], unpack(ARGV))"
JOIN = "join_parts(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1])"


def keys_of(group_id: str) -> tuple[str, ...]:
    """Return the five keys of one chord; see chords.lua."""
    return tuple(f"{GROUP_PREFIX}{group_id}.{letter}" for letter in "jtsdc")


def size_key(group_id: str) -> str:
    return keys_of(group_id)[2]


def words_of(part: Part) -> tuple[str, str | int, bytes]:
    """Return the arguments of `count_part`. Raises ResultError if JSON cannot hold them."""
    place: str | int = LAST if part.index is None else part.index
    try:
        entry = to_json(part.entry)
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError(f"a chord's part is what JSON cannot hold: {error}") from None
    return f"{part.id}:{place}", place, entry


def read_entries(client: Any, group_id: str) -> list[tuple[str, str, Any]]:
    """Return id, state and value of each part, in order. Raises ResultError, redis-py's errors."""
    found = []
    for raw in _asked(lambda: client.zrange(keys_of(group_id)[0], 0, -1)):
        try:
            _, id, state, value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
            raise ResultError(f"a part of chord {group_id} cannot be read: {error}") from None
        found.append((str(id), str(state), value))
    return found


def read_shape(client: Any, group_id: str) -> Any:
    """Return Celery's `as_tuple` of a header that has groups in it, None for any other."""
    try:
        raw = _asked(lambda: client.get(GROUP_PREFIX + group_id))
        return None if raw is None else msgspec.json.decode(raw)["result"]
    except (ResultError, msgspec.DecodeError, KeyError, TypeError, RecursionError):
        return None


def chord_keep_s(results: ResultBackend | None) -> int:
    """Return for how many seconds after its last part was told a chord is kept, 0 for ever."""
    if results is not None and not results.keep_s:
        return 0
    return max(KEEP_S, results.keep_s if results is not None else 0)


class Chords:
    """The steps of a chord where they are steps of their own. Raises LinkError."""

    def __init__(self, *, link: RedisServer, keep_s: int) -> None:
        self.link = link
        self.keep_s = keep_s

    def begin(self, sizes: Sequence[tuple[str, int]]) -> None:
        """Write the number of parts of each chord. Call it before any part is sent."""
        keys = [size_key(group_id) for group_id, _ in sizes]
        self._run(BEGIN, keys, [self.keep_s, *(size for _, size in sizes)])

    def count(self, part: Part) -> bool:
        """Count one part; return whether all have ended now and this one starts the body."""
        words = [*words_of(part), self.keep_s]
        return bool(self._run(COUNT, keys_of(part.group_id), words) == 2)

    def joined(self, part: Part) -> None:
        """Mark the body of the part's chord as started."""
        self._run(JOIN, keys_of(part.group_id), [DONE_S])

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


def puts_of(ending: Ending) -> tuple[TaskMessage, ...]:
    """Return what is sent with `ending`: nothing that was sent when its result was written."""
    canvas = ending.canvas
    if canvas is not None and canvas.settled and not canvas.joined:
        return ()
    return ending.next


def chorded_of(canvas: Canvas, app: TaskApp) -> Chorded:
    """Return what complete.lua is told of `canvas`."""
    is_silent = canvas.settled and not canvas.joined
    here = app.chords_end_at_once
    return Chorded(
        parts=tuple((keys_of(one.group_id), words_of(one)) for one in canvas.parts if here),
        bodies=tuple(keys_of(one.group_id) for one in canvas.joined if here),
        records=tuple((result_key(id), data) for id, data in canvas.records)
        if app.completes_at_once and not is_silent
        else (),
        begun=tuple((size_key(group_id), size) for group_id, size in canvas.sizes)
        if here and not is_silent
        else (),
        records_keep_s=app.results.keep_s if app.results is not None else 0,
        keep_s=chord_keep_s(app.results),
        done_s=DONE_S,
    )
