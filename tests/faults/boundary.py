"""Every command boundary of a workload, one run each: `python -m tests.faults.boundary`.

`--target worker`: a worker runs one of everything (workload.py) through a proxy that knows each
command. Run by run it is killed before the n-th command reaches the server, or after its reply
was made and before it is delivered; then it is started again, and the workload must end: nothing
lost, nothing moved twice, nothing left. `--target server`: the server is killed there instead,
which writes its file before it answers (appendfsync always), is started on it again, and the
worker lives on. `--target client`: a client publishes one of everything (client.py) through the
proxy and is killed; a send that was confirmed to it runs exactly once, any other at most
once. `--target clients-server`: the server is killed at the client's commands.

The commands are numbered by runs without a fault. A number stands for the k-th command of
one kind, so that threads that pass one another do not change what it means, and what depends
on the clock is numbered last. `--at 37 --side before` plays one run again, and so does
`--at complete#7`; `--list` shows the numbers. `--crowd` has everything in flight at once: which
task a number hits is then chance. `--one-of-each` takes one boundary of each kind of command.

A single boundary may be missed, since some commands depend on the clock. That a kind of command
was never killed at fails the campaign. One JSON line at the end; exit status 1 if anything did
not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from tests.faults.proxy import Command
from tests.faults.run import ALONE, CROWD, TIMED, Runs, open_runs
from tests.faults.shot import SIDES, TARGETS, Coverage, Point, Side, Target

INSISTENT_TRIES = 25  # of the first command of a kind that no other run was killed at
PROGRESS_EVERY = 50


def points(
    commands: Sequence[Command], *, targets: Sequence[Target], sides: Sequence[Side] = SIDES
) -> list[Point]:
    return [
        Point(number=number, command=command, side=side, target=target)
        for target in targets
        for number, command in enumerate(commands, start=1)
        for side in sides
    ]


def one_of_each_kind(every: Sequence[Point]) -> list[Point]:
    """Return the middle one of the boundaries of each kind of command; sides take turns."""
    alike: dict[tuple[Target, str], list[Point]] = {}
    for point in every:
        alike.setdefault((point.target, point.command.kind), []).append(point)
    chosen = []
    for number, same in enumerate(alike.values()):
        side = [point for point in same if point.side == SIDES[number % 2]] or same
        chosen.append(side[len(side) // 2])
    return chosen


class Report(msgspec.Struct, kw_only=True):
    """failed: in words. missed: boundaries that no try reached. unkilled: kinds of commands
    that nothing was killed at."""

    boundaries: int = 0
    held: int = 0
    missed: int = 0
    failed: list[str] = []
    unkilled: list[str] = []
    took_s: float = 0.0

    @property
    def ok(self) -> bool:
        return self.held > 0 and not self.failed and not self.unkilled


def campaign(runs: Runs, chosen: Sequence[Point], *, crowd: bool, verbose: bool = False) -> Report:
    """Kill at each of these boundaries, one run each; return what became of them."""
    report, coverage, began_s = Report(boundaries=len(chosen)), Coverage(), time.monotonic()

    def kill_at(point: Point, **tries: int) -> None:
        complaints, fired = runs.run(point, **tries)
        coverage.add(point, fired=fired)
        if complaints and (fired or len(complaints) > 1):
            again = point.replay + (" --crowd" if crowd else "")
            report.failed.append(f"{point}: {'; '.join(complaints[:-1])}\n  again: {again}")
            print(report.failed[-1], file=sys.stderr, flush=True)
            if verbose:
                print(complaints[-1], runs.log, sep="\n", file=sys.stderr)
        elif fired:
            report.held += 1
        elif crowd or point.command.kind in TIMED:
            report.missed += 1
        else:
            report.failed.append(f"{point}: never reached")

    for count, point in enumerate(chosen, start=1):
        kill_at(point)
        if count % PROGRESS_EVERY == 0:
            print(f"{count} of {len(chosen)} …", file=sys.stderr, flush=True)
    for point in chosen:
        if not coverage.has(point):  # the first command of its kind comes soonest
            first = msgspec.structs.replace(point.command, ordinal=1)
            report.missed -= 1
            kill_at(msgspec.structs.replace(point, command=first), tries=INSISTENT_TRIES)
    report.unkilled = coverage.complaints()
    report.took_s = round(time.monotonic() - began_s, 1)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.boundary",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--at", metavar="N|KIND#K", help="this one only")
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument(
        "--target", choices=TARGETS, action="append", help="may be repeated; default: all"
    )
    parser.add_argument("--crowd", action="store_true", help="everything in flight at once")
    parser.add_argument("--one-of-each", action="store_true", help="one of each kind of command")
    parser.add_argument("--list", action="store_true", help="show the numbers and end")
    parser.add_argument("--verbose", action="store_true", help="the log of the processes, too")
    options = parser.parse_args()
    targets: list[Target] = options.target or list(TARGETS)
    with open_runs(CROWD if options.crowd else ALONE) as runs:
        every: list[Point] = []
        for clients in (False, True):
            mine = [one for one in targets if one.startswith("client") is clients]
            if mine:
                commands = runs.number(clients=clients)
                every += points(
                    commands, targets=mine, sides=(options.side,) if options.side else SIDES
                )
        if options.list:
            numbered = dict.fromkeys((one.is_clients, one.number, one.command) for one in every)
            for is_clients, number, command in numbered:
                print("client" if is_clients else "worker", number, command)
            return 0
        chosen = [
            point for point in every if options.at in (None, str(point.number), str(point.command))
        ]
        if options.one_of_each:
            chosen = one_of_each_kind(chosen)
        report = campaign(runs, chosen, crowd=options.crowd, verbose=options.verbose)
    found: dict[str, Any] = msgspec.to_builtins(report)
    print(json.dumps({
        "command": " ".join(["python -m tests.faults.boundary", *sys.argv[1:]]),
        "ok": report.ok, "targets": targets, **found,
    }))  # fmt: skip
    return int(not report.ok)


if __name__ == "__main__":
    sys.exit(main())
