"""What canvases cost, and chords whose workers are killed.

    python -m benchmarks.canvas [--parts N] [--chords N] [--kills N] [--json]

How many tasks a second one program sends: one by one, as a group, by `send_many`, and the entries
of these tasks by a bare pipeline of XADD, the floor; the medians of five rounds of each in turn.
One chord of N parts, and one group of 0.6 N that a worker starts in a single step: the time they
take, and the time of the server's longest command. Then many chords of four parts, whose worker is
killed at random moments. Each body must run once, counted by its marks in a file; a body that was
cut off and delivered again makes the same mark twice.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.figures import print_figures
from benchmarks.queue.server import Server
from blimp.queue import TaskApp, chord, group, signature
from blimp.queue.publish.publisher import AT_ONCE
from blimp.queue.redis.client import open_redis
from blimp.queue.redis.keys import Keys

DEADLINE_S = 300.0
PARTS_OF_EACH = 4
ROUNDS = 5


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


def longest_ms(client: Any) -> float:
    """Return the time of the server's longest command since the last call."""
    found = [one["duration"] for one in client.slowlog_get(1000)]
    client.slowlog_reset()
    return round(max(found, default=0) / 1000.0, 1)


def measure(app: TaskApp, client: Any, parts: int) -> dict[str, float]:
    """Send one large chord and one large group; return seconds, and the server's longest ms."""
    client.config_set("slowlog-log-slower-than", 1000)
    client.config_set("slowlog-max-len", 1000)
    client.slowlog_reset()
    began_s = time.monotonic()
    whole = chord(
        [signature("quick", (number,), app=app) for number in range(parts)],
        signature("quick", app=app),
    )()
    sent_s = time.monotonic()
    assert whole.get(timeout=DEADLINE_S) == list(range(parts))
    done_s = time.monotonic()
    found = {
        "parts": parts,
        "chord_sent_s": round(sent_s - began_s, 2),
        "chord_done_s": round(done_s - sent_s, 2),
        "chord_longest_ms": longest_ms(client),
    }
    links = parts * 6 // 10  # as many as one message holds
    began_s = time.monotonic()
    begun = (
        signature("quick", (1,), app=app) | group(signature("quick", app=app) for _ in range(links))
    ).apply_async()
    assert begun.get(timeout=DEADLINE_S) == [1] * links
    return found | {
        "links": links,
        "group_done_s": round(time.monotonic() - began_s, 2),
        "group_longest_ms": longest_ms(client),
    }


def rates(app: TaskApp, client: Any, count: int) -> dict[str, float]:
    """Return how many tasks a second are sent in each way, and the ratios to a bare pipeline."""
    app.send_task("quick", (0,))
    level = Keys().queue(app.queue).levels[2]
    ((_, entry),) = client.xrange(level)

    def pipeline() -> None:
        for start in range(0, count, AT_ONCE):
            with client.pipeline(transaction=False) as pipe:
                for _ in range(start, min(count, start + AT_ONCE)):
                    pipe.xadd(level, entry)
                pipe.execute()

    ways: dict[str, Callable[[], object]] = {
        "one_by_one": lambda: [app.send_task("quick", (number,)) for number in range(count)],
        "group": lambda: app.send_canvas(group(signature("quick", (n,)) for n in range(count))),
        "send_many": lambda: app.send_many(signature("quick", (n,)) for n in range(count)),
        "pipeline": pipeline,
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, send in ways.items():
            began_s = time.perf_counter()
            send()
            found[name].append(count / (time.perf_counter() - began_s))
            client.flushall()
    per_s = {name: statistics.median(each) for name, each in found.items()}
    ratios = {
        f"{name}_over_pipeline": round(
            statistics.median(
                one / floor for one, floor in zip(found[name], found["pipeline"], strict=True)
            ),
            2,
        )
        for name in ways
        if name != "pipeline"
    }
    return {f"{name}_per_s": round(rate) for name, rate in per_s.items()} | ratios


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
    parser.add_argument("--parts", type=int, default=10_000, help="default 10000")
    parser.add_argument("--chords", type=int, default=2000, help="default 2000")
    parser.add_argument("--kills", type=int, default=50, help="at most; default 50")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="canvas-") as name, Server(Path(name)) as server:
        client = open_redis(server.url, timeout_s=DEADLINE_S)
        with TaskApp("killed", broker=server.url, result_backend=server.url) as app:
            found: dict[str, Any] = rates(app, client, options.parts)
            worker = start(server.url, Path(name))
            try:
                found |= measure(app, client, options.parts)
            finally:
                worker.terminate()
                worker.wait()
            found |= fire(app, server.url, Path(name), chords=options.chords, kills=options.kills)
        client.close()
    if options.json:
        print_figures("benchmarks.canvas", found)
    else:
        for name, value in found.items():
            print(f"{name:20} {value}")
    return int(found["bodies_lost"] + found["bodies_too_many"] > 0)


if __name__ == "__main__":
    sys.exit(main())
