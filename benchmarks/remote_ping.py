"""How long `inspect ping` takes by a Celery client: our worker, and Celery's, in one run.

    python -m benchmarks.remote_ping [--count N] [--rounds N] [--environment DIR] [--json]

Both on this project's transport, each on a server of its own, in turns. Then emergency
broadcasts to our worker, at rest and in a flood of commands: the time until their handler runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.celery_suite import PROJECT
from benchmarks.queue.server import Server
from blimp.queue import TaskApp, Worker
from blimp.queue.log import stderr_logger

CLIENT = "benchmarks.celery_ping"
TRANSPORT = "blimp.queue.kombu_transport:Transport"
BROADCASTS = 60


class Working:
    """A worker of ours in a thread. received: set when a broadcast reaches its handler."""

    def __init__(self, url: str) -> None:
        self.app = TaskApp("remote_ping", broker=url, result_backend=url)
        self.received = threading.Event()
        self.app.on_broadcast("stop")(self._receive)
        self._worker = Worker(app=self.app, name="w@here", log=stderr_logger(level="error"))
        self._thread = threading.Thread(target=self._worker.run, daemon=True)

    def _receive(self, _: Any) -> dict[str, Any]:
        self.received.set()
        return {}

    def __enter__(self) -> Working:
        self._thread.start()
        assert self._worker.ready.wait(15.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.stop()
        self._thread.join(15.0)
        self.app.close()

    def broadcast_ms(self) -> list[float]:
        """Return how long each of some broadcasts took to the handler."""
        took = []
        for _ in range(BROADCASTS):
            self.received.clear()
            began_s = time.perf_counter()
            self.app.broadcast("stop")
            assert self.received.wait(15.0), "no broadcast arrives"
            took.append((time.perf_counter() - began_s) * 1000.0)
            time.sleep(0.02)
        return sorted(took)


def ping_ms(python: Path, url: str, *, count: int, worker: bool) -> float:
    """Return the median by a Celery client. worker: of Celery's own, which it starts."""
    words = [str(python), "-m", CLIENT, url, str(count), TRANSPORT]
    if not worker:
        words.append("--no-worker")
    done = subprocess.run(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def measure(python: Path, *, count: int) -> dict[str, float]:
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="ping-") as name:
        with Server(Path(name)) as server:
            found["celery"] = ping_ms(python, server.url, count=count, worker=True)
        directory = Path(name) / "ours"
        directory.mkdir()
        with Server(directory) as server, Working(server.url) as working:
            found["ours"] = ping_ms(python, server.url, count=count, worker=False)
            rest_ms = working.broadcast_ms()
            flood = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.remote_ping", "--flood", server.url],
                cwd=PROJECT,
            )
            time.sleep(1.0)
            flooded_ms = working.broadcast_ms()
            flood.terminate()
            flood.wait(10.0)
    for label, took_ms in (("rest", rest_ms), ("flooded", flooded_ms)):
        found[f"stop at {label}, p50"] = statistics.median(took_ms)
        found[f"stop at {label}, worst"] = took_ms[-1]
    return found


def flood(url: str) -> None:
    """Publish commands without waiting for answers, as fast as one process can, until ended."""
    from kombu import Exchange, Producer

    from blimp.queue.broadcast.listener import EXCHANGE
    from blimp.queue.celery.kombu_transport import connect

    exchange = Exchange(EXCHANGE, type="fanout", durable=False)
    with connect(url, timeout_s=2.0) as connection:
        producer = Producer(connection.channel())
        while True:
            producer.publish({"method": "stats"}, exchange=exchange, declare=[exchange])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remote_ping", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--environment", type=Path, default=PROJECT / ".venv-celery", metavar="DIR")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--flood", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        flood(options.flood)
    python = options.environment / "bin" / "python"
    rounds = [measure(python, count=options.count) for _ in range(options.rounds)]
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    if options.json:
        load = os.getloadavg()[0]
        print(json.dumps({"rounds": rounds, "medians_ms": medians, "load": load}))
        return
    print(", ".join(f"{name} {ms:.2f} ms" for name, ms in medians.items()))


if __name__ == "__main__":
    main()
