"""Events under load.

    python -m benchmarks.events [--tasks 100000] [--pool threads] [--write]

For each kind of pool so many tasks wait in a queue; a worker runs them, and Celery's own receiver,
in Celery's environment, counts the events. One JSON object: events lost and out of order.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import print_figures, print_progress
from blimp.processes import Child
from blimp.queue import TaskApp
from blimp.queue.brokers.streams.envelope import post
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.redis.keys import Keys
from tests.redis_server import RedisServer

PROJECT = Path(__file__).parents[1]
PYTHON = PROJECT / ".venv-celery" / "bin" / "python"
RESULTS = PROJECT / "benchmarks" / "results" / "events.json"
POOLS = ("threads", "loops", "processes")
TRANSPORT = "blimp.queue.kombu_transport:Transport"
BROKER = "EVENTS_BROKER"
NAME = "pad"
DEADLINE_S = 600.0

app = TaskApp("events", broker=os.environ.get(BROKER, "redis://localhost/0"))


@app.task(name="threads", ignore_result=True)
def threads() -> None: ...


@app.task(name="loops", ignore_result=True)
async def loops() -> None: ...


@app.task(name="processes", ignore_result=True, cpu_bound=True)
def processes() -> None: ...


class Run:
    """One worker on one queue of tasks of one kind."""

    def __init__(self, server: RedisServer, *, pool: str, tasks: int) -> None:
        self._url, self._client = server.url, server.client()
        self._pool = pool
        self._tasks = tasks

    def report(self) -> dict[str, Any]:
        """Run the tasks; return the receiver's report, and how many tasks a second ran."""
        self._client.flushall()
        self._fill()
        receiver = self._receiver()
        worker = Child(
            name="worker",
            arguments=[
                *(sys.executable, "-m", "blimp.queue", "worker", "-A", "benchmarks.events:app"),
                *("--name", NAME, "--events"),
            ],
            environment={BROKER: self._url},
            stderr=subprocess.DEVNULL,
        )
        try:
            began_s = self._wait_below(self._tasks)
            took_s = self._wait_below(1) - began_s
            report: dict[str, Any] = json.loads(receiver.communicate(timeout=DEADLINE_S)[0])
        finally:
            worker.end(within_s=10.0)
        return report | {"tasks_per_s": round(self._tasks / took_s)}

    def _fill(self) -> None:
        """Have all the tasks in the queue."""
        blank = str(uuid.uuid4())  # the entries differ only in their ids
        message = TaskMessage(id=blank, task=self._pool, queue="events", ignore_result=True)
        entry, queue = post(message), Keys().queue("events")
        pipe = self._client.pipeline(transaction=False)
        for number in range(self._tasks):
            head = entry.head.replace(blank.encode(), str(uuid.uuid4()).encode())
            pipe.xadd(queue.levels[entry.level], {"h": head, "b": entry.body})
            if number % 1000 == 999:
                pipe.execute()
        pipe.execute()

    def _receiver(self) -> subprocess.Popen[str]:
        words = [
            str(PYTHON),
            "-m",
            "benchmarks.events_receiver",
            self._url,
            str(self._tasks),
            TRANSPORT,
        ]
        receiver = subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "listening\n"
        return receiver

    def _wait_below(self, count: int) -> float:
        """Return when fewer than `count` tasks were left."""
        until_s = time.monotonic() + DEADLINE_S
        while self._left() >= count:
            assert time.monotonic() < until_s, "the worker makes no progress"
            time.sleep(0.02)
        return time.monotonic()

    def _left(self) -> int:
        """Return how many tasks the server has, those in flight included."""
        return int(self._client.xlen("blimp:queue:events:level:2"))


def campaign(*, tasks: int, pools: Sequence[str] = POOLS) -> dict[str, Any]:
    """Return what became of the events of `tasks` tasks on each kind of pool."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="events-") as name, RedisServer(Path(name)) as server:
        for pool in pools:
            print_progress(f"{pool}: {tasks} tasks")
            found[pool] = Run(server, pool=pool, tasks=tasks).report()
    return {"tasks": tasks, "pools": found}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.events", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000, metavar="N", help="default 100,000")
    parser.add_argument("--pool", action="append", choices=POOLS, help="default: all")
    parser.add_argument("--json", action="store_true", help="on one line")
    parser.add_argument("--write", action="store_true", help=f"into {RESULTS.name}")
    options = parser.parse_args()
    found = campaign(tasks=options.tasks, pools=options.pool or POOLS)
    text = print_figures("benchmarks.events", found, one_line=options.json)
    if options.write:
        RESULTS.write_text(text + "\n")
    lost = sum(one["lost"] + one["out_of_order"] for one in found["pools"].values())
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
