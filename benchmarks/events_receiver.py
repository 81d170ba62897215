"""Celery's own receiver of events, which counts the events of each task.

    python -m benchmarks.events_receiver URL TASKS [TRANSPORT]

Prints "listening" when it does, and ends when so many tasks have succeeded, or no event of a
task arrived for QUIET_S. Prints one JSON object. Run by events.py in an environment with Celery.
"""

import contextlib
import json
import os
import resource
import sys
import time
from collections import Counter
from typing import Any

import celery
from celery.events import EventReceiver

QUIET_S = 20.0
STEPS = {"task-received": 1, "task-started": 2, "task-succeeded": 3}


class Receiver(EventReceiver):  # type: ignore[misc]
    def on_consume_ready(self, connection: Any, *_: Any, **__: Any) -> None:
        with contextlib.suppress(TimeoutError):  # subscribes
            connection.drain_events(timeout=0.1)
        print("listening", flush=True)


class Tally:
    """The events of each task. out_of_order: a step that arrived before or without an earlier
    one, or with a logical clock that is not above the previous one.
    """

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._steps: dict[str, int] = {}
        self._clock = 0
        self._whole = 0  # tasks all of whose events arrived, in order
        self.counts: Counter[str] = Counter()
        self.received_s = time.monotonic()

    def receive(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        self.counts[kind] += 1
        if event["clock"] <= self._clock:
            self.counts["clock_back"] += 1
        self._clock = event["clock"]
        if not kind.startswith("task-"):
            return
        self.received_s = time.monotonic()
        step, before = STEPS.get(kind, 0), self._steps.get(event["uuid"], 0)
        if step <= before:
            self.counts["twice"] += 1
        elif step != before + 1:
            self.counts["out_of_order"] += 1
        elif step == len(STEPS):
            self._whole += 1
        self._steps[event["uuid"]] = step

    def is_over(self) -> bool:
        return self._whole >= self._tasks or time.monotonic() - self.received_s > QUIET_S

    def report(self) -> dict[str, Any]:
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {
            "received": self.counts["task-received"],
            "started": self.counts["task-started"],
            "succeeded": self.counts["task-succeeded"],
            "lost": self._tasks - self._whole,
            "out_of_order": self.counts["out_of_order"] + self.counts["clock_back"],
            "twice": self.counts["twice"],
            "receiver_mb": kilobytes // 1024,
        }


def main() -> None:
    url, tasks, *transport = sys.argv[1:]
    app: Any = celery.Celery("events_receiver", broker=url)
    app.conf.broker_transport = "".join(transport) or None
    tally = Tally(int(tasks))
    with app.connection() as connection:
        receiver: Any = Receiver(connection, handlers={"*": tally.receive}, app=app)
        with contextlib.suppress(TimeoutError):
            for _ in receiver.itercapture(limit=None, timeout=QUIET_S, wakeup=False):
                if tally.is_over():
                    break
    print(json.dumps(tally.report()))
    sys.stdout.flush()
    os._exit(0)  # without waiting for kombu's threads


if __name__ == "__main__":
    main()
