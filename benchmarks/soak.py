"""Many mixed tasks with random kills: `python -m benchmarks.soak --tasks 200000`.

Three workers, two of which are killed in turn and started again, drawn from the seed; the third
lives through it all, and its memory and the server's are looked at every two seconds. The
sender of a task takes its result off the server, as a program does that runs for ever. One JSON
object at the end.

growth: the median of the last quarter by that of the second one; 1.0 is flat. It is judged for
the worker that lives through. The server's goes with how much is under way; judged is what it
says that it uses, before the first task and after the last.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.figures import print_figures, print_progress
from blimp.queue.redis.keys import result_key
from tests.faults.ground import Ground, WorkerUnderFire, proving_ground
from tests.faults.load import QUICK_MIX, Sender, draw_orders
from tests.faults.motor import Heard, What
from tests.faults.server_side import Finals, ServerSide
from tests.faults.tasks import APP, make_app

OPTIONS = "--sync-workers 8 --loop-concurrency 16 --prefetch 32"
BACKLOG = 2000  # tasks under way at most
SAMPLE_S = 2.0
SHOWN = 60  # samples in the report
FORGET_AFTER_S = 10.0  # a result is taken off the server so long after it came
QUIET_S = 20.0
FLAT = 1.1
LEAK_MB = 3.0  # scripts and clients take one; 20 bytes a task would be 4


class Memory:
    """Resident memory of some processes over time, in MB."""

    def __init__(self, **pids: int) -> None:
        self._pids = pids
        self.samples: dict[str, list[float]] = {name: [] for name in pids}

    def sample(self) -> None:
        for name, pid in self._pids.items():
            status = Path(f"/proc/{pid}/status").read_text()
            kilobytes = int(status.partition("VmRSS:")[2].split()[0])
            self.samples[name].append(round(kilobytes / 1024.0, 1))

    def report(self) -> dict[str, Any]:
        return {
            name: {
                "growth": growth(samples),
                "max_mb": max(samples),
                "mb": thin(samples),
            }
            for name, samples in self.samples.items()
        }


def thin(samples: list[float]) -> list[float]:
    return samples[:: max(1, math.ceil(len(samples) / SHOWN))]


def growth(samples: list[float]) -> float | None:
    """Return how the last quarter stands to the second; None where there is too little."""
    quarter = len(samples) // 4
    if not quarter:
        return None
    second = statistics.median(samples[quarter : 2 * quarter])
    return round(statistics.median(samples[-quarter:]) / second, 3)


class Soak:
    def __init__(self, ground: Ground, *, tasks: int, kills: int, seed: int) -> None:
        self._ground = ground
        self._tasks = tasks
        self._chance = random.Random(seed)
        self._app = make_app(ground.url)
        orders = draw_orders(tasks, seed=seed, mix=QUICK_MIX)
        self._silent = {order.id for order in orders if order.task == "silent"}
        self._sender = Sender(app=self._app, orders=orders)
        self._side = ServerSide(ground.url, queue=APP)
        self._finals = Finals(ground.url)
        self._workers = [ground.worker(f"w{n}", options=OPTIONS) for n in range(3)]
        self._kill_at = deque(sorted(self._chance.sample(range(tasks), kills)))
        self._kills = 0
        self._bodies: Counter[tuple[str, int]] = Counter()
        self._applied: dict[str, list[tuple[int, Heard]]] = {}
        self._effects = 0
        self._done: set[str] = set()
        self._to_forget: deque[tuple[float, str]] = deque()

    def run(self) -> dict[str, Any]:
        began_s = time.monotonic()
        for worker in self._workers:
            worker.start()
        memory = Memory(worker=self._workers[0].pid, server=self._ground.broker.pid)
        before_mb = self._side.used_mb()
        self._sender.start()
        moved_s = sampled_s = time.monotonic()
        while len(self._done) < self._tasks and time.monotonic() < moved_s + QUIET_S:
            if self._advance():
                moved_s = time.monotonic()
            self._sender.allow(len(self._done) + BACKLOG)
            if self._kill_at and len(self._done) >= self._kill_at[0]:
                self._kill_at.popleft()
                self._kill(self._chance.choice(self._workers[1:]))
            if time.monotonic() > sampled_s + SAMPLE_S:
                sampled_s = time.monotonic()
                memory.sample()
                if len(memory.samples["worker"]) % 10 == 0:
                    print_progress(f"{len(self._done)} of {self._tasks}")
            time.sleep(0.01)
        took_s = time.monotonic() - began_s
        self._sender.join()
        for worker in self._workers:
            worker.end()
        self._advance()
        self._forget(after_s=0.0)
        return self._report(took_s) | {
            "memory": memory.report(),
            "server_data_mb": {"before": before_mb, "after": self._side.used_mb()},
        }

    def close(self) -> None:
        self._finals.close()
        self._side.close()
        self._app.close()

    def _kill(self, worker: WorkerUnderFire) -> None:
        worker.kill()
        worker.start()
        self._kills += 1

    def _advance(self) -> bool:
        """Take in what the motor and the server reported; say whether that was anything."""
        new = self._ground.journal.read()
        self._ground.journal.heard.clear()
        for one in new:
            if one.what is What.BEGAN:
                self._bodies[one.id, one.retries] += 1
            elif one.what is What.ENDED and one.id in self._silent:
                self._done.add(one.id)
            elif one.applied:
                self._effects += 1
                self._applied.setdefault(one.id, []).append((self._effects, one))
        now_s = time.monotonic()
        before = len(self._done)
        while self._finals.order:
            id = self._finals.order.popleft()
            self._done.add(id)
            self._to_forget.append((now_s, id))
        self._forget(after_s=FORGET_AFTER_S)
        return bool(new) or len(self._done) > before

    def _forget(self, *, after_s: float) -> None:
        ids = []
        while self._to_forget and time.monotonic() > self._to_forget[0][0] + after_s:
            ids.append(self._to_forget.popleft()[1])
        keys = [result_key(id) for id in ids]
        keys += [f"blimp-began-{id}-0" for id in ids if id.startswith("step-")]
        if keys:
            self._side.client.unlink(*keys)

    def _report(self, took_s: float) -> dict[str, Any]:
        missing = [order.id for order in self._sender.sent if order.id not in self._done]
        twice = [id for id, times in dict(self._finals.count).items() if times > 1]
        moved_twice = [times for times in self._applied.values() if len(times) > 1]
        left = self._side.messages_left()
        strange = self._side.strange_keys()
        kept = self._side.client.keys("celery-task-meta-*")
        return {
            "tasks": self._tasks,
            "sent": len(self._sender.sent),
            "kills": self._kills,
            "lost": len(missing) + len(twice),
            "ran_twice": sum(times > 1 for times in self._bodies.values()),
            "effects_twice": len(moved_twice),
            "left_in_broker": left + len(strange),
            "results_left": len(kept),
            "tasks_per_s": round(self._tasks / took_s, 1),
            "took_s": round(took_s, 1),
            "lost_ids": (missing + twice)[:20],
            "moved_twice": msgspec.to_builtins(moved_twice[:20]),
            "strange_keys": strange[:20],
            "keys_left": self._side.client.dbsize(),
            "tries": sum(self._bodies.values()),
        }


def soak(*, tasks: int, kills: int, seed: int) -> dict[str, Any]:
    with proving_ground() as ground:
        run = Soak(ground, tasks=tasks, kills=kills, seed=seed)
        try:
            return run.run() | {"seed": seed}
        finally:
            run.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tasks", type=int, default=200_000, help="default 200000")
    parser.add_argument("--kills", type=int, help="default: one for 2,000 tasks")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--json", action="store_true", help="on one line")
    options = parser.parse_args()
    kills = options.tasks // 2000 if options.kills is None else options.kills
    report = soak(tasks=options.tasks, kills=kills, seed=options.seed)
    print_figures("benchmarks.soak", report, one_line=options.json)
    grown, data_mb = report["memory"]["worker"]["growth"], report["server_data_mb"]
    bad = report["lost"] or report["effects_twice"] or report["left_in_broker"]
    leaks = grown is None or grown > FLAT or data_mb["after"] > data_mb["before"] + LEAK_MB
    return int(bool(bad) or leaks)


if __name__ == "__main__":
    sys.exit(main())
