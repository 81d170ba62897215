"""Events under load.

    python -m benchmarks.events [--tasks 100000] [--carrier streams|redis] [--write]

For each executor so many tasks wait in a queue; a worker runs them, 20,000 without events first
and then all with them, and Celery's own receiver, in Celery's environment, counts what it is told.
One JSON object: events lost and out of order, and tasks a second without and with events. The
two rates are taken in turn on the same machine; their ratio is what is to be looked at.
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
from benchmarks.queue.server import Server
from blimp.processes import Child
from blimp.queue import TaskApp
from blimp.queue.brokers.streams.envelope import post
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.redis.keys import Keys

PROJECT = Path(__file__).parents[1]
PYTHON = PROJECT / ".venv-celery" / "bin" / "python"
RESULTS = PROJECT / "benchmarks" / "results" / "events.json"
EXECUTORS = ("threads", "loops", "processes")
TRANSPORT = "blimp.queue.kombu_transport:Transport"
BROKER, CARRIER = "EVENTS_BROKER", "EVENTS_CARRIER"
NAME = "pad"
DEADLINE_S = 600.0
ENOUGH = 20_000  # tasks to measure a rate with

app = TaskApp(
    "events",
    broker=os.environ.get(BROKER, "redis://localhost/0"),
    transport=os.environ.get(CARRIER, "streams"),
)


@app.task(name="threads", ignore_result=True)
def threads() -> None: ...


@app.task(name="loops", ignore_result=True)
async def loops() -> None: ...


@app.task(name="processes", ignore_result=True, cpu_bound=True)
def processes() -> None: ...


class Run:
    """One worker on one queue of tasks, of one executor."""

    def __init__(self, server: Server, *, executor: str, tasks: int, carrier: str) -> None:
        self._server = server
        self._executor = executor
        self._tasks = tasks
        self._carrier = carrier

    def rate(self, *, events: bool) -> tuple[float, dict[str, Any]]:
        """Return tasks a second, from ready to the last, and what the receiver has to say."""
        self._server.clear()
        self._fill()
        receiver = self._receiver() if events else None
        worker = Child(
            name="worker",
            arguments=[
                *f"{sys.executable} -m blimp.queue worker -A benchmarks.events:app".split(),
                *["--name", NAME],
                *(["--events"] if events else []),
            ],
            environment={BROKER: self._server.url, CARRIER: self._carrier},
            stderr=subprocess.DEVNULL,
        )
        try:
            began_s = self._wait_below(self._tasks)
            took_s = self._wait_below(1) - began_s
            heard = (
                {} if receiver is None else json.loads(receiver.communicate(timeout=DEADLINE_S)[0])
            )
        finally:
            worker.end(within_s=10.0)
        return self._tasks / took_s, heard

    def _fill(self) -> None:
        """Have all the tasks in the queue."""
        if self._carrier != "streams":
            with TaskApp("events", broker=self._server.url, transport=self._carrier) as sender:
                for _ in range(self._tasks):
                    sender.send_task(self._executor, ignore_result=True)
            return
        blank = str(uuid.uuid4())  # the entries are a sender's, but for their ids
        message = TaskMessage(id=blank, task=self._executor, queue="events", ignore_result=True)
        entry = post(message, keys=Keys())
        pipe = self._server.client.pipeline(transaction=False)
        for number in range(self._tasks):
            head = entry.head.replace(blank.encode(), str(uuid.uuid4()).encode())
            pipe.xadd(entry.queue.lanes[entry.lane], {"h": head, "b": entry.body})
            if number % 1000 == 999:
                pipe.execute()
        pipe.execute()

    def _receiver(self) -> subprocess.Popen[str]:
        words = [
            str(PYTHON),
            "-m",
            "benchmarks.events_receiver",
            self._server.url,
            str(self._tasks),
        ]
        receiver = subprocess.Popen(
            [*words, *([TRANSPORT] if self._carrier == "streams" else [])],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "listening\n"
        return receiver

    def _wait_below(self, count: int) -> float:
        """Return when fewer than `count` tasks were left."""
        until_s = time.monotonic() + DEADLINE_S
        while self._left() >= count:
            assert time.monotonic() < until_s, "the worker does not get on"
            time.sleep(0.02)
        return time.monotonic()

    def _left(self) -> int:
        """Return how many tasks the server has, those in hand included."""
        if self._carrier == "streams":
            return int(self._server.client.xlen("blimp:queue:events:lane:2"))
        client = self._server.client
        waiting = client.llen("events") + client.llen("events\x06\x166")
        return int(waiting) + int(client.hlen(f"blimp.unacked.events.{NAME}"))


def campaign(
    *,
    tasks: int,
    carrier: str = "streams",
    executors: Sequence[str] = EXECUTORS,
    both: bool = True,
) -> dict[str, Any]:
    """Return what became of the events of `tasks` tasks on each executor.

    both: measure the rate without events, too, with ENOUGH tasks.
    """
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="events-") as name, Server(Path(name)) as server:
        for executor in executors:
            print_progress(f"{executor}: {tasks} tasks")
            without = None
            if both:
                fewer = min(tasks, ENOUGH)
                quiet = Run(server, executor=executor, tasks=fewer, carrier=carrier)
                without, _ = quiet.rate(events=False)
            run = Run(server, executor=executor, tasks=tasks, carrier=carrier)
            told, heard = run.rate(events=True)
            found[executor] = heard | {"tasks_per_s": {"events": round(told)}}
            if without is not None:
                found[executor]["tasks_per_s"]["no_events"] = round(without)
                found[executor]["ratio"] = round(told / without, 3)
    return {"tasks": tasks, "carrier": carrier, "executors": found}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.events", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000, metavar="N", help="default 100,000")
    parser.add_argument("--carrier", choices=("streams", "redis"), default="streams")
    parser.add_argument("--executor", action="append", choices=EXECUTORS, help="default: all")
    parser.add_argument("--json", action="store_true", help="on one line")
    parser.add_argument("--write", action="store_true", help=f"into {RESULTS.name}")
    options = parser.parse_args()
    found = campaign(
        tasks=options.tasks,
        carrier=options.carrier,
        executors=options.executor or EXECUTORS,
    )
    text = print_figures("benchmarks.events", found, one_line=options.json)
    if options.write:
        RESULTS.write_text(text + "\n")
    lost = sum(one["lost"] + one["out_of_order"] for one in found["executors"].values())
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
