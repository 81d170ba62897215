"""What being watched costs a worker: each way beside the one without, in the same run.

    python -m benchmarks.observe [--rounds N] [--messages N] [--json]

Ratios are of processor time per task and of tasks per second, from a backlog of no-op tasks;
memory is resident, of an idle worker, in MB of 10^6 bytes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks.queue.bench import Backlog, Bench, Idle
from benchmarks.queue.catalogue import PEERS, Peer
from benchmarks.queue.server import Server

WORKER = ("python", "-m", "blimp.queue", "worker", "-A", f"{PEERS}.blimp:app")
OFF = "off"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observe", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Server(Path(directory)) as server:
        bench = Bench(server=server, guests=Path(sys.prefix))
        ways = _ways(Path(directory) / "trace.jsonl")
        idle: dict[str, list[Idle]] = {name: [] for name in ways}
        work: dict[str, list[Backlog]] = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, peer in ways.items():
                idle[name].append(bench.idle_and_paced(peer, messages=1)[0])
                work[name].append(bench.backlog(peer, messages=options.messages))
    if options.json:
        print(json.dumps(msgspec.to_builtins({"idle": idle, "work": work})))
        return 0
    print(f"{'':10} {'idle MB':>8} {'wakes/s':>8} {'tasks/s':>8} {'ratio':>6} {'cpu/task':>9}")
    base = work[OFF]
    for name, found in work.items():
        rates = [one.executed_per_s / b.executed_per_s for one, b in zip(found, base, strict=True)]
        costs = [one.processor_us / b.processor_us for one, b in zip(found, base, strict=True)]
        memory_mb = statistics.median(one.memory_mb for one in idle[name])
        wakes = statistics.median(one.wake_ups_per_s for one in idle[name])
        rate = statistics.median(one.executed_per_s for one in found)
        print(
            f"{name:10} {memory_mb:8.1f} {wakes:8.1f} {rate:8.0f}"
            f" {statistics.median(rates):6.2f} {statistics.median(costs):9.2f}"
        )
    return 0


def _ways(trace: Path) -> dict[str, Peer]:
    quiet = ("--log-level", "warning")
    ways = {
        OFF: quiet,
        "metrics": (*quiet, "--metrics-port", "0"),
        "json logs": (*quiet, "--log-format", "json"),
    }
    found = {name: _peer(name, *WORKER, *words) for name, words in ways.items()}
    program = f"""
import os, sys
os.environ["BLIMP_TRACE_FILE"] = {str(trace)!r}
from blimp.queue.cli.main import main
sys.exit(main({[*WORKER[3:], *quiet]!r}))
"""
    return found | {"traced": _peer("traced", "python", "-c", program)}


def _peer(name: str, *words: str) -> Peer:
    return Peer(name=name, family="blimp", module=f"{PEERS}.blimp", worker=words, guest=False)


if __name__ == "__main__":
    sys.exit(main())
