"""Waiting for several tasks at once, whatever keeps their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blimp.closing import Closing

if TYPE_CHECKING:
    from blimp.tasks.results.backend import ResultBackend, ResultWatch
    from blimp.tasks.results.record import Record


def watch_all(results: ResultBackend, ids: Sequence[str]) -> ResultWatch:
    """Return what tells of all `ids` as they come; by one subscription where there are such."""
    from blimp.tasks.results.redis import RedisResults

    if isinstance(results, RedisResults):
        return results.watch_many(ids)
    return OneByOne(results=results, ids=ids)


class OneByOne(Closing):
    """Tells of each task when those before it have ended: no more than one is watched at once."""

    def __init__(self, *, results: ResultBackend, ids: Sequence[str]) -> None:
        self._results = results
        self._left = list(reversed(ids))
        self._watch: ResultWatch | None = None

    def next(self, *, timeout_s: float) -> Record | None:
        if not self._left:
            return None
        if self._watch is None:
            self._watch = self._results.watch(self._left[-1])
        record = self._watch.next(timeout_s=timeout_s)
        if record is not None and record.final:
            self._left.pop()
            self.close()
        return record

    def close(self) -> None:
        """Idempotent."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
