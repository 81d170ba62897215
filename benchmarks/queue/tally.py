"""What runs inside every task: it counts, and times, into a file that the benchmark reads.

The same for all peers, free of locks, a fraction of a microsecond. A file per process, since
some peers fork; a row per thread, since some have several.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import threading
import time
from pathlib import Path

DIRECTORY = "QUEUE_BENCH_TALLY"
URL = "QUEUE_BENCH_URL"
QUEUE = "queue-bench"

ROWS = 64  # count, first and last time for each thread
TIMES = 16_384  # latencies, ns
_HEAD = 3 * ROWS
_CELLS = _HEAD + TIMES


class Tally:
    """Nanoseconds are those of the monotonic clock, which all processes share."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self._opening = threading.Lock()
        self._cells: memoryview | None = None
        self._rows = itertools.count()
        self._timed = itertools.count()

    def ran(self, sent_ns: int) -> None:
        """Count one execution, and its latency where `sent_ns` is not 0."""
        now_ns = time.monotonic_ns()
        try:
            cells, row = self._mine.place
        except AttributeError:
            cells, row = self._mine.place = self._open()
            cells[row + 1] = now_ns
        if sent_ns:
            cells[_HEAD + next(self._timed) % TIMES] = now_ns - sent_ns
        cells[row + 2] = now_ns
        cells[row] += 1

    def _open(self) -> tuple[memoryview, int]:
        with self._opening:
            if self._cells is None:
                path = Path(os.environ[DIRECTORY]) / str(os.getpid())
                with path.open("w+b") as file:
                    file.truncate(8 * _CELLS)
                    self._cells = memoryview(mmap.mmap(file.fileno(), 8 * _CELLS)).cast("q")
        return self._cells, 3 * (next(self._rows) % ROWS)


ran = Tally().ran


class Reading:
    """All that the processes of one worker have counted so far."""

    def __init__(self, directory: Path) -> None:
        self.count = 0
        self.latencies_ms: list[float] = []
        first_ns, last_ns = [], []
        for path in directory.iterdir():
            data = path.read_bytes()
            if len(data) != 8 * _CELLS:
                continue  # being made at this moment
            cells = struct.unpack(f"{_CELLS}q", data)
            for row in range(0, _HEAD, 3):
                if cells[row]:
                    self.count += cells[row]
                    first_ns.append(cells[row + 1])
                    last_ns.append(cells[row + 2])
            self.latencies_ms += [one / 1e6 for one in cells[_HEAD:] if one]
        self.span_s = (max(last_ns) - min(first_ns)) / 1e9 if first_ns else 0.0
