"""Many messages at once, beside a bare pipeline: `python -m benchmarks.queue.bulk [--rounds N]`.

Four publishers take turns on one server: `send_many` of signatures, a pipeline of XADD of a like
message, `delay`, and a bare XADD of a small one. The ratios of the medians are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.queue.server import Server
from blimp.queue import TaskApp

BULK, ONE, PART = 20_000, 5_000, 200  # messages, and how many go in one pipeline


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue.bulk", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory, Server(Path(directory)) as server:
        publishers, rates = _publishers(server), dict[str, list[float]]()
        for _ in range(rounds):
            for name, (count, send) in publishers.items():
                began_s = time.perf_counter()
                send()
                rates.setdefault(name, []).append(count / (time.perf_counter() - began_s))
                server.clear()
    found = {name: statistics.median(some) for name, some in rates.items()}
    for name, rate in found.items():
        print(f"{name:10} {rate:9,.0f}/s")
    print(f"bulk / pipeline {found['send_many'] / found['pipeline']:.2f}")
    print(f"one by one / floor {found['delay'] / found['XADD']:.2f}, load {os.getloadavg()[0]:.1f}")
    return 0


def _publishers(server: Server) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Return how many messages each sends, and the call that does."""
    app, client = TaskApp("bulk", broker=server.url), server.client
    add = app.task(name="add", ignore_result=True)(lambda a, b: a + b)
    signatures = [add.s(number, 1) for number in range(BULK)]
    app.send_many(signatures[:1])  # connects
    streams = [key for key in client.scan_iter() if client.type(key) == b"stream"]
    ((_, like),) = (entry for stream in streams for entry in client.xrange(stream))

    def pipeline() -> None:
        for _ in range(BULK // PART):
            with client.pipeline(transaction=False) as pipe:
                for _ in range(PART):
                    pipe.xadd("like", like)
                pipe.execute()

    return {
        "send_many": (BULK, lambda: app.send_many(signatures)),
        "pipeline": (BULK, pipeline),
        "delay": (ONE, lambda: [add.delay(number, 1) for number in range(ONE)]),
        "XADD": (ONE, lambda: [client.xadd("small", {"sent_ns": 0}) for _ in range(ONE)]),
    }


if __name__ == "__main__":
    sys.exit(main())
