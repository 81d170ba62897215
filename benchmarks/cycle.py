"""What a cycle of the flight loop costs, against another commit: `python -m benchmarks.cycle`.

Both hold their place in gusts in lockstep, in turns of a tenth of a second of processor time in two
processes, so that a busy machine slows both; ratios are medians over the turns. Compute is all but
the devices' `read` and `drive`; bits are what a cycle has on the wires of the I2C bus, starts and
acknowledges included.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from time import thread_time
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BASE = "dab57a1"  # before sensors voted and trajectories were flown
BUS_HZ = 400_000
WIND_MPS = 0.3
SETTLE_S = 5.0  # after the take-off
TURN = 50  # cycles
# In the order of the loop: whose method, of the loop's own where no name is given.
STAGES = {
    "estimator": ("_estimator", "update"),
    "flags": ("", "_flags"),
    "supervisor and mode": ("_supervisor", "decide"),
    "controller": ("_actuation._controller", "update"),
    "mixer": ("_actuation._mixer", "allocate"),
    "effect check": ("_actuation", "watch"),
    "gate": ("_supervisor", "gate"),
    "record and snapshot": ("", "_report"),
}
PERIOD_S = 0.01


class Hover:
    """A ship that holds its place, and how long each part of its cycles takes.

    It has to fly with any commit, so it takes what it measures from outside.
    """

    def __init__(self, airframe: str) -> None:
        room = "ship" if find_spec("blimp.ship") else "sim"  # of an older commit
        lockstep = import_module(f"blimp.{room}.lockstep").Lockstep
        self.ship = ship = lockstep(airframe, seed=1, wind_mps=WIND_MPS)
        ship.command("arm")
        ship.complete("takeoff", within_s=60.0, altitude_m=3.0)
        ship.step(SETTLE_S)
        loop: Any = ship._ship.loop
        self._loop = loop
        self._took_s = dict.fromkeys(("devices", "cycle"), 0.0)
        self._time(loop._sensors, "read", "devices")
        self._time(loop._outputs, "drive", "devices")
        self._time(loop, "step", "cycle")

    def _time(self, owner: Any, name: str, part: str) -> None:
        """Let a method add the time that it takes to a part."""
        call, took_s = getattr(owner, name), self._took_s

        def timed(*arguments: Any, **named: Any) -> Any:
            began_s = thread_time()
            try:
                return call(*arguments, **named)
            finally:
                took_s[part] += thread_time() - began_s

        setattr(owner, name, timed)

    def turn(self) -> dict[str, float]:
        """Fly some cycles; return the mean of each part, ms."""
        self._took_s.update(dict.fromkeys(self._took_s, 0.0))
        began_s = thread_time()
        self.ship.step(TURN * PERIOD_S)
        whole_s = thread_time() - began_s
        devices_s, cycle_s = self._took_s["devices"], self._took_s["cycle"]
        parts = {
            "compute": cycle_s - devices_s,
            "devices": devices_s,
            "world": whole_s - cycle_s,
            "whole": whole_s,
        }
        return {name: 1e3 * seconds / TURN for name, seconds in parts.items()}

    def stages(self, turns: int) -> dict[str, float]:
        """Return the share of compute that each stage of a cycle takes, percent; the median."""
        for stage, (owner, name) in STAGES.items():
            self._took_s[stage] = 0.0
            self._time(attrgetter(owner)(self._loop) if owner else self._loop, name, stage)
        rows = []
        for _ in range(turns):
            compute_s = 1e-3 * TURN * self.turn()["compute"]
            shares = {stage: 100.0 * self._took_s[stage] / compute_s for stage in STAGES}
            rows.append({**shares, "rest": 100.0 - sum(shares.values())})
        return {stage: round(statistics.median(row[stage] for row in rows), 1) for stage in rows[0]}

    def bits(self, seconds: float) -> dict[str, float]:
        """What one cycle puts on the I2C buses."""
        counts, before = [], sum(self.ship.i2c_bits().values())
        for _ in range(round(seconds / PERIOD_S)):
            self.ship.step(PERIOD_S)
            after = sum(self.ship.i2c_bits().values())
            counts.append(after - before)
            before = after
        mean, worst = statistics.fmean(counts), max(counts)
        share = 100.0 / BUS_HZ / PERIOD_S
        return {
            "mean": round(mean, 1),
            "worst": worst,
            "mean_percent": round(share * mean, 1),
            "worst_percent": round(share * worst, 1),
        }


def serve(airframe: str) -> None:
    """The other end: fly a turn for each line that comes in, and answer with its parts."""
    hover = Hover(airframe)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(hover.turn()), flush=True)


class Peer:
    """A process that hovers with the code of one directory."""

    def __init__(self, code: Path, airframe: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", "--airframe", airframe],
            env={"PYTHONPATH": str(code), "PATH": "/usr/bin:/bin"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a peer has ended: see above")
        return line

    def turn(self) -> dict[str, float]:
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        answer: dict[str, float] = json.loads(self._read())
        return answer

    def close(self) -> None:
        self._process.communicate()


def compare(commit: str, airframe: str, turns: int) -> dict[str, Any]:
    """Return the medians of both, and of new over old turn by turn."""
    with tempfile.TemporaryDirectory(prefix="blimp-bench-") as directory:
        archive = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE
        ).stdout
        subprocess.run(["tar", "x", "-C", directory], input=archive, check=True)
        old, new = Peer(Path(directory), airframe), Peer(ROOT, airframe)
        rows = [(old.turn(), new.turn()) for _ in range(turns)]
        old.close()
        new.close()
    return {
        part: {
            "old_ms": round(statistics.median(row[0][part] for row in rows), 4),
            "new_ms": round(statistics.median(row[1][part] for row in rows), 4),
            "ratio": round(statistics.median(row[1][part] / row[0][part] for row in rows), 3),
        }
        for part in rows[0][0]
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cycle", description=__doc__)
    parser.add_argument("--against", default=BASE, metavar="COMMIT")
    parser.add_argument("--airframe", default="twin")
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.airframe)
        return
    from benchmarks.figures import print_figures

    ratios = compare(options.against, options.airframe, options.turns)
    hover = Hover(options.airframe)
    bits = hover.bits(20.0)
    stages = hover.stages(options.turns)
    print_figures(
        "benchmarks.cycle",
        {"against": options.against, "ms": ratios, "i2c_bits": bits, "stages_percent": stages},
        one_line=False,
    )  # fmt: skip


if __name__ == "__main__":
    main()
