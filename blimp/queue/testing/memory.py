"""What a server keeps beside messages, in memory: results, marks, chords, the newest of a key.

Who waits for a result lets time pass: what is due meanwhile runs.

Tested by test_backend_contract.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from blimp.errors import ConfigError, ResultError
from blimp.queue.canvas.parts import Chords
from blimp.queue.protocol.record import Record, decode
from blimp.queue.publish.coalescing import NUMBER, REMEMBER
from blimp.queue.redis.keys import chord_keys
from blimp.queue.results.backend import GrowingWatch, ResultBackend
from blimp.queue.testing.in_process import ENDLESS, MOST, InProcess
from blimp.queue.worker.completions import FAILED
from blimp.queue.worker.pools import drive

if TYPE_CHECKING:
    from blimp.clock import ManualClock
    from blimp.queue.app import TaskApp
    from blimp.queue.canvas.parts import ChordPart
    from blimp.queue.redis.scripts import Script

T = TypeVar("T")

LOOK_S = 0.001  # between looks at what runs elsewhere
NO_POOLS = "resource pools need a server"


class InMemoryServer:
    """What of a RedisServer is used for marks, coalescing and schedules: a client of itself."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._kept: dict[str, Any] = {}
        self._ends_s: dict[str, float] = {}
        self.parts: dict[str, dict[str, tuple[float, bytes]]] = {}  # of chords, by key and member

    client = property(lambda self: self)

    def ask(self, function: Callable[[Any], T]) -> T:
        return function(self)

    def link(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None: ...

    def get(self, key: str) -> bytes | None:
        if self._ends_s.get(key, math.inf) <= self._clock.now_s():
            self.delete(key)
        found: bytes | None = self._kept.get(key)
        return found

    def set(
        self, key: str, value: Any, *, nx: bool = False, px: float = math.inf, get: bool = False
    ) -> Any:
        last = self.get(key)
        is_set = last is None or not nx
        if is_set:
            self._kept[key] = value if isinstance(value, bytes) else str(value).encode()
            self._ends_s[key] = self._clock.now_s() + px / 1e3
        return last if get else is_set

    def delete(self, key: str) -> None:
        self._kept.pop(key, None)

    def expire(self, key: str, seconds: float) -> None: ...

    @contextlib.contextmanager
    def pipeline(self, **_: object) -> Iterator[InMemoryServer]:
        yield self

    def execute(self) -> None: ...

    def sadd(self, key: str, member: str) -> None:
        self._kept.setdefault(key, set()).add(member)

    def srem(self, key: str, member: str) -> None:
        self._kept.get(key, set()).discard(member)

    def sismember(self, key: str, member: str) -> bool:
        return member in self._kept.get(key, ())

    def zrange(self, key: str, *_: object, **__: object) -> list[tuple[bytes, float]]:
        found = sorted(self.parts.get(key, {}).values())
        return [(entry, place) for place, entry in found]

    def run(self, script: Script, keys: Sequence[str], words: Sequence[Any]) -> Any:
        if script is NUMBER:
            return self._number(keys[0])
        if script is REMEMBER:
            return self._remember(keys[0], words)
        raise ConfigError(NO_POOLS)

    def execute_command(self, *_: object) -> Any:
        raise ConfigError(NO_POOLS)

    def _number(self, key: str) -> int:
        number = max(int(self._clock.wall_s() * 1e6), int(self.get(key) or 0) + 1)
        self.set(key, number)
        return number

    def _remember(self, key: str, words: Sequence[Any]) -> None:
        known = self.get(key)
        if known is None or int(known.split()[0]) < words[0]:
            self.set(key, f"{words[0]} {words[1]}")


class InMemoryChords(Chords):
    """Counts as the scripts of results.lua do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._sizes: dict[str, int] = {}
        self._starts: dict[str, str] = {}

    def begin(self, sizes: Sequence[tuple[str, int]]) -> None:
        for group_id, size in sizes:
            self._sizes.setdefault(group_id, size)

    def count(self, part: ChordPart) -> bool:
        member, place, entry = part.words(self.signer)
        group_id, server = part.group_id, self._server
        if self._starts.get(group_id, member) != member:
            return False
        parts = server.parts.setdefault(chord_keys(group_id)[0], {})
        parts.setdefault(member, (float(place), entry))
        if group_id not in self._sizes or len(parts) < self._sizes[group_id]:
            return False
        self._starts[group_id] = member
        return True

    def joined(self, part: ChordPart) -> None:
        self._starts[part.group_id] = "done"
        self._server.parts.pop(chord_keys(part.group_id)[0], None)

    @property
    def _server(self) -> InMemoryServer:
        server: Any = self.link
        return server  # type: ignore[no-any-return]


class InMemoryResults(ResultBackend):
    """queue: what runs while somebody waits."""

    queue: InProcess

    def __init__(self, **options: Any) -> None:
        super().__init__(keep_s=0, **options)
        self._records: dict[str, bytes] = {}
        self._groups: dict[str, dict[str, Any]] = {}
        self.watches: list[_Watch] = []
        self._lock = threading.Lock()

    def write(self, id: str, data: bytes) -> bool:
        with self._lock:
            if id in self._records and decode(self._records[id]).final:
                return False
            self._records.pop(id, None)  # the newest is the last
            self._records[id] = data
            for watch in self.watches:
                watch.hear(id, data)
            return True

    def write_many(self, records: Sequence[tuple[str, bytes]]) -> list[bool | ResultError]:
        return [self.write(id, data) for id, data in records]

    def read(self, id: str) -> bytes | None:
        return self._records.get(id)

    def failures(self, *, limit: int, names: Container[str] | None = None) -> list[Record]:
        newest = map(decode, reversed(self._records.values()))
        found = (one for one in newest if one.state in FAILED and one.is_of(names))
        return list(itertools.islice(found, limit))

    def forget(self, id: str) -> None:
        self._records.pop(id, None)

    def watch(self, *ids: str) -> _Watch:
        return _Watch(self, ids)

    def save_group(self, id: str, document: dict[str, Any]) -> None:
        self._groups[id] = document

    def group(self, id: str) -> dict[str, Any] | None:
        return self._groups.get(id)

    def forget_group(self, id: str) -> None:
        self._groups.pop(id, None)

    def close(self) -> None: ...


class _Watch(GrowingWatch):
    def __init__(self, results: InMemoryResults, ids: Sequence[str]) -> None:
        self._results = results
        self._ids = set(ids)
        self._news: deque[bytes] = deque()
        results.watches.append(self)
        for id in ids:
            if (data := results.read(id)) is not None:
                self._news.append(data)

    def hear(self, id: str, data: bytes) -> None:
        if id in self._ids:
            self._news.append(data)

    def add(self, *ids: str) -> None:
        self._ids.update(ids)

    def discard(self, *ids: str) -> None:
        self._ids.difference_update(ids)

    def next(self, *, timeout_s: float) -> Record | None:
        end_s = self._results.clock.now_s() + timeout_s
        found: Record | None = drive(self.next_in(end_s, awaits=False))
        return found

    async def next_in(self, end_s: float, *, awaits: bool) -> Record | None:
        """Return the next record, None if none comes until `end_s`.

        Raises TimeoutError if none can come. awaits: as of `InProcess.step_in`.
        """
        queue = self._results.queue
        for _ in range(MOST):
            while not self._news and not await queue.step_in(awaits=awaits):
                if not queue.runs_elsewhere:
                    break
                if awaits:
                    await asyncio.sleep(LOOK_S)
                else:
                    time.sleep(LOOK_S)
            if self._news:
                return decode(self._news.popleft())
            if queue.is_due:
                continue
            if math.isinf(end_s) and not queue.has_later:
                raise TimeoutError("there is no result, and nothing waits in the queue")
            if not queue.pass_time(end_s):
                return None
        raise RuntimeError(f"{MOST} {ENDLESS}")

    def close(self) -> None:
        self._ids.clear()
        with contextlib.suppress(ValueError):
            self._results.watches.remove(self)


class InMemoryAwaiting:
    """What coroutines ask of an app: they run what is due themselves."""

    def __init__(self, app: TaskApp) -> None:
        self._app = app

    async def call(self, function: Callable[[], T]) -> T:
        return await asyncio.to_thread(function)

    def wait(self, ids: Sequence[str], timeout: float | None = None) -> Iterator[Record]:
        results: Any = self._app.results
        end_s = results.clock.now_s() + (math.inf if timeout is None else timeout)
        left = set(ids)
        with results.watch(*ids) as watch:
            while left:
                record = watch.next(timeout_s=max(0.0, end_s - results.clock.now_s()))
                if record is None:
                    raise TimeoutError
                if record.final:
                    left.discard(record.id)
                yield record

    async def records(
        self, ids: Sequence[str], timeout: float | None = None
    ) -> AsyncIterator[Record]:
        results: Any = self._app.results
        end_s = results.clock.now_s() + (math.inf if timeout is None else timeout)
        left = set(ids)
        with results.watch(*ids) as watch:
            while left:
                record = await watch.next_in(end_s, awaits=True)
                if record is None:
                    raise TimeoutError
                if record.final:
                    left.discard(record.id)
                yield record

    def close(self) -> None: ...
