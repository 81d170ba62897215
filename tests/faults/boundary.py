"""Every command boundary of a workload, one run each: `python -m tests.faults.boundary`.

A worker does one of everything (workload.py) through a proxy that knows each command. Run by
run it is killed before the n-th command reaches the server, or after its reply was made and
before it is delivered; then it is started again, and the workload must end: nothing lost,
nothing moved twice, nothing left. With `--target server` the server is killed there instead,
which writes its file before it answers, is started on it again, and the worker lives on.

The commands are numbered by runs without a fault. A number stands for the k-th command of
one kind, so that threads that pass one another do not change what it means, and what depends
on the clock is numbered last. `--at 37 --side before` plays one run again, and so does
`--at complete#7`; `--list` shows the numbers. `--crowd` has everything in hand at once: which
task a number hits is then chance.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.faults.proxy import Command
from tests.faults.run import ALONE, CROWD, NEVER, TIMED, range_of_runs
from tests.faults.shot import SIDES, TARGETS, Point, Side, Target


def points(
    commands: Sequence[Command], *, targets: Sequence[Target], sides: Sequence[Side] = SIDES
) -> list[Point]:
    return [
        Point(number=number, command=command, side=side, target=target)
        for target in targets
        for number, command in enumerate(commands, start=1)
        for side in sides
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.boundary",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--at", metavar="N|KIND#K", help="this one only")
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--target", choices=TARGETS)
    parser.add_argument("--crowd", action="store_true", help="everything in hand at once")
    parser.add_argument("--list", action="store_true", help="show the numbers and end")
    parser.add_argument("--verbose", action="store_true", help="the workers' own words too")
    options = parser.parse_args()
    with range_of_runs(CROWD if options.crowd else ALONE) as runs:
        commands = runs.number()
        if options.list:
            print("\n".join(f"{n} {command}" for n, command in enumerate(commands, start=1)))
            return 0
        chosen = [
            point
            for point in points(
                commands,
                targets=(options.target,) if options.target else TARGETS,
                sides=(options.side,) if options.side else SIDES,
            )
            if options.at in (None, str(point.number), str(point.command))
        ]
        failed, missed = 0, 0
        began_s = time.monotonic()
        for count, point in enumerate(chosen, start=1):
            complaints = runs.run(point)
            by_chance = options.crowd or point.command.kind in TIMED
            if by_chance and complaints[:1] == [NEVER]:
                missed += 1
            elif complaints:
                failed += 1
                *words, story = complaints
                again = point.replay + (" --crowd" if options.crowd else "")
                print(f"{point}: {'; '.join(words)}\n  again: {again}", flush=True)
                if options.verbose:
                    print(story)
            if options.verbose:
                print(runs.log)
            if count % 50 == 0:
                print(f"{count - failed - missed} of {count} …", file=sys.stderr, flush=True)
        took_s = time.monotonic() - began_s
    held = len(chosen) - failed - missed
    print(
        f"{held} of {len(chosen) - missed} boundaries hold ({took_s:.0f} s)"
        + (f", {missed} were not reached" if missed else "")
    )
    return int(bool(failed) or not held)


if __name__ == "__main__":
    sys.exit(main())
