"""The queue beside its peers: `python -m benchmarks.queue [--peers floor,celery,…] [--json]`.

Peers take turns, round by round, on one embedded Valkey over loopback TCP. A table of medians
is printed, or with --json all that was measured. `make bench` installs the peers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.figures import make_parser
from benchmarks.queue.bench import Bench, Stalled
from benchmarks.queue.catalogue import (
    CATALOGUE,
    FAMILIES,
    ROOT,
    Peer,
)
from benchmarks.queue.report import LEAST_WORK_S, Rounds, summarise, table
from blimp.distribution import build
from tests.redis_server import RedisServer

MEASUREMENTS = ("paced", "backlog")
GUESTS = ROOT / ".venv-peers" / "bin"
SPARE = 1.6  # times what takes 3 s: the next round may be quicker, and a shorter one is dropped


def main() -> int:
    options = _parser().parse_args()
    families = options.peers.split(",") if options.peers else list(FAMILIES)
    names = options.only.split(",") if options.only else None
    peers = [
        one for one in CATALOGUE if one.family in families and (not names or one.name in names)
    ]
    if set(families) - set(FAMILIES):
        print(f"error: --peers {options.peers}: choose from {','.join(FAMILIES)}", file=sys.stderr)
        return 2
    if not peers:
        known = ", ".join(one.name for one in CATALOGUE if one.family in families)
        print(f"error: --only {options.only}: choose from {known}", file=sys.stderr)
        return 2
    if set(options.measure.split(",")) - set(MEASUREMENTS):
        known = ",".join(MEASUREMENTS)
        print(f"error: --measure {options.measure}: choose from {known}", file=sys.stderr)
        return 2
    if any(one.guest for one in peers) and not (GUESTS / "python").exists():
        print(
            f"error: no peers in {GUESTS.parent}: run  make .venv-peers/installed", file=sys.stderr
        )
        return 2
    measured = {peer.name: Rounds() for peer in peers}
    loads: list[float] = []
    with tempfile.TemporaryDirectory() as directory, RedisServer(Path(directory)) as server:
        bench = Bench(server=server, guests=GUESTS)
        for number in range(options.rounds):
            loads.append(os.getloadavg()[0])
            # Every other round is in reverse, so that a drift of the machine favours nobody.
            for peer in peers if number % 2 == 0 else reversed(peers):
                print(f"round {number + 1} of {options.rounds}: {peer.name}", file=sys.stderr)
                try:
                    _measure(bench, peer, measured[peer.name], options)
                except Stalled as error:
                    print(f"error: {error}", file=sys.stderr)
        machine = _machine(server.client().info("server"), loads)
    lines = [summarise(name, rounds) for name, rounds in measured.items()]
    if options.json:
        document = {
            "machine": machine,
            "rounds": options.rounds,
            "lines": lines,
            "measured": {
                name: {"idle": rounds.idle, "backlogs": rounds.backlogs}
                for name, rounds in measured.items()
            },
        }
        print(json.dumps(msgspec.to_builtins(document), indent=1))
    else:
        print(table(lines))
    return 0


def _measure(bench: Bench, peer: Peer, rounds: Rounds, options: argparse.Namespace) -> None:
    if "paced" in options.measure:
        idle, latencies_ms = bench.idle_and_paced(peer, messages=options.paced)
        rounds.idle.append(idle)
        rounds.latencies_ms.append(latencies_ms)
    if "backlog" in options.measure:
        size = peer.first
        if rounds.backlogs:
            fastest = max(one.executed_per_s for one in rounds.backlogs)
            size = math.ceil(fastest * LEAST_WORK_S * SPARE)
        rounds.backlogs.append(bench.backlog(peer, messages=size))


def _machine(server: dict[str, Any], loads: list[float]) -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "server": f"{server['server_name']} {server['valkey_version']}",
        "commit": build().commit[:12],
        "load_before_each_round": loads,  # of others, too, where the machine is shared
    }


def _parser() -> argparse.ArgumentParser:
    parser = make_parser("benchmarks.queue", __doc__)
    parser.add_argument(
        "--peers",
        metavar="A,B",
        help=f"of {', '.join(FAMILIES)}; default: all",
    )
    parser.add_argument(
        "--only", metavar="NAME,NAME", help="some lines of these peers, named as in the table"
    )
    parser.add_argument("--json", action="store_true", help="print all figures, in JSON")
    parser.add_argument(
        "--rounds", type=int, default=4, help="default 4; the first sizes the backlogs"
    )
    parser.add_argument(
        "--paced", type=int, default=200, help="paced messages a round; default 200"
    )
    parser.add_argument(
        "--measure",
        default=",".join(MEASUREMENTS),
        metavar="A,B",
        help="paced (and idle), backlog; default both",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
