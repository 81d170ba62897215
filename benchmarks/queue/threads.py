"""What the interpreter lock costs plain tasks: `python -m benchmarks.queue.threads`.

One worker with two threads, one broker, one process. Two tasks that only compute run one after the
other, then both at once; then a backlog of tasks that do nothing. Run it with each interpreter that
is to be compared, on a machine that does nothing else; with a free-threaded one under PYTHON_GIL=0,
see docs/decisions/0049-free-threading.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec

from benchmarks.figures import print_figures
from blimp.queue import TaskApp, Worker
from blimp.queue.worker import interpreter
from blimp.queue.worker.shutdown import MEGABYTE, resident_bytes
from tests.broker import EmbeddedBroker

TURNS = 10_000_000  # a third of a second and more, beside a few ms on the way
BACKLOG = 20_000
DEADLINE_S = 120.0

counted = 0


class Round(msgspec.Struct, frozen=True, kw_only=True):
    one_after_the_other_s: float
    at_once_s: float
    executed_per_s: float
    memory_mb: float

    @property
    def ratio(self) -> float:
        return self.one_after_the_other_s / self.at_once_s


def compute(turns: int) -> int:
    total = 0
    for number in range(turns):
        total += number & 7
    return total


def run_round(url: str, *, turns: int, backlog: int) -> Round:
    """Measure with workers of its own."""
    done = threading.Event()
    left = [backlog]
    counting = threading.Lock()

    with TaskApp("threads", broker=url, result_backend=url) as app:
        app.log_level = "error"
        heavy = app.task(name="heavy")(compute)

        @app.task(name="nothing", ignore_result=True)
        def nothing() -> None:
            with counting:
                left[0] -= 1
                if not left[0]:
                    done.set()

        worker = Worker(app=app, sync_workers=2, loop_workers=1)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            assert worker.ready.wait(DEADLINE_S)
            heavy.delay(turns).get(DEADLINE_S)  # what is loaded with the first task
            began_s = time.perf_counter()
            for _ in range(2):
                heavy.delay(turns).get(DEADLINE_S)
            after_each_other_s = time.perf_counter() - began_s
            began_s = time.perf_counter()
            for one in [heavy.delay(turns) for _ in range(2)]:
                one.get(DEADLINE_S)
            at_once_s = time.perf_counter() - began_s
        finally:
            worker.stop()
            thread.join(DEADLINE_S)
        for _ in range(backlog):
            nothing.delay()
        worker = Worker(app=app, sync_workers=2, loop_workers=1)
        thread = threading.Thread(target=worker.run)
        began_s = time.perf_counter()
        thread.start()
        try:
            assert done.wait(DEADLINE_S)
            took_s = time.perf_counter() - began_s
            memory_mb = resident_bytes() / MEGABYTE
        finally:
            worker.stop()
            thread.join(DEADLINE_S)
    return Round(
        one_after_the_other_s=after_each_other_s,
        at_once_s=at_once_s,
        executed_per_s=backlog / took_s,
        memory_mb=memory_mb,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue.threads", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=TURNS, help="of the loop in one heavy task")
    parser.add_argument("--backlog", type=int, default=BACKLOG, help="tasks that do nothing")
    parser.add_argument("--least", type=float, default=0.0, help="ratio below which it fails")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedBroker(directory=Path(name) / "b") as broker,
    ):
        rounds = [
            run_round(broker.url, turns=options.turns, backlog=options.backlog)
            for _ in range(options.rounds)
        ]
    python = interpreter.described()
    ratio = statistics.median(one.ratio for one in rounds)
    figures = {"python": python, "ratio": round(ratio, 2), "rounds": msgspec.to_builtins(rounds)}
    print_figures("benchmarks.queue.threads", figures)
    return int(ratio < options.least)


if __name__ == "__main__":
    sys.exit(main())
