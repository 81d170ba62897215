"""Chords whose workers are killed.

    python -m benchmarks.canvas [--chords N] [--kills N] [--json]

Many chords of four parts, whose worker is killed at random moments. Each body must run once, by its
marks in a file; a body that was cut off and delivered again makes the same mark twice.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.figures import print_figures
from blimp.queue import TaskApp, chord, signature
from tests.redis_server import RedisServer

DEADLINE_S = 300.0
PARTS_OF_EACH = 4


def start(url: str, directory: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "blimp.queue", "worker", "-A", "tests.queue.killed_app:app",
         "--name", "w"],
        env=os.environ
        | {
            "KILLED_BROKER": url,
            "KILLED_RESULTS": url,
            "KILLED_DIRECTORY": str(directory),
            "KILLED_TRANSPORT": "streams",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def fire(app: TaskApp, url: str, directory: Path, *, chords: int, kills: int) -> dict[str, Any]:
    """Kill the worker of many chords at random moments; count the bodies that ran."""
    chance = random.Random(1)
    sent = [
        chord(
            [signature("chord.part", (number + place,), app=app) for place in range(PARTS_OF_EACH)],
            signature("chord.body", (number,), app=app),
        )()
        for number in range(chords)
    ]
    killed = 0
    worker = start(url, directory)
    try:
        while killed < kills and not sent[-1].ready():
            time.sleep(chance.uniform(0.4, 1.2))
            worker.kill()
            worker.wait()
            killed += 1
            worker = start(url, directory)
        states = [handle.wait(DEADLINE_S).state.value for handle in sent]
    finally:
        worker.terminate()
        worker.wait()
    lines = [tuple(one.split()) for one in (directory / "followed").read_text().splitlines()]
    expected = {("body", str(number), handle.id) for number, handle in enumerate(sent)}
    return {
        "chords": chords,
        "kills": killed,
        "succeeded": states.count("SUCCESS"),
        "bodies_lost": len(expected - set(lines)),
        "bodies_too_many": len(set(lines) - expected),
        "bodies_begun_again": len(lines) - len(set(lines)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.canvas")
    parser.add_argument("--chords", type=int, default=2000, help="default 2000")
    parser.add_argument("--kills", type=int, default=50, help="at most; default 50")
    parser.add_argument("--json", action="store_true", help="on one line")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="canvas-") as name,
        RedisServer(Path(name)) as server,
        TaskApp("killed", broker=server.url, result_backend=server.url) as app,
    ):
        found = fire(app, server.url, Path(name), chords=options.chords, kills=options.kills)
    print_figures("benchmarks.canvas", found, one_line=options.json)
    return int(found["bodies_lost"] + found["bodies_too_many"] > 0)


if __name__ == "__main__":
    sys.exit(main())
