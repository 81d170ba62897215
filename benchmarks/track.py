"""The eight reference paths that a GT-MAB flew in a hall, flown here: `python -m benchmarks.track`.

The shapes are those of Tao et al.'s ship in the flights published at github.com/evannsm/blimp_work
(Trajectories.py), recomputed from their radii, heights and periods. The best of the three published
controllers, in metres after 20 s, is what each row is compared with. A reference waits for a ship
that cannot turn as fast; the most seconds are printed. Beside the errors: their ratio to the
estimate's own, the goal with a tag is 1.25.
Simulated: a ship whose drag, thrust and weight are not those that its control knows.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from multiprocessing import Pool
from random import Random
from typing import Any

import msgspec

from blimp.service.tune.track import Plant, Tracking, track
from ground_station.trajectory import ReferenceCurve

RATE_HZ = 40.0
SETTLE_S = 2.2  # at the end of each flight the reference stands still
GRAM_N = 0.00980665
TURN = 2.0 * math.pi

Shape = Callable[[float], tuple[float, float, float, float]]


def circle(radius: float, period: float, turns: float = 0.0) -> Shape:
    def at(t: float) -> tuple[float, float, float, float]:
        a = TURN * t / period
        return radius * math.cos(a), radius * math.sin(a), -1.3, turns * TURN * t / 45.0

    return at


def vertical_circle(t: float) -> tuple[float, float, float, float]:
    a = TURN * t / 35.0
    return 0.6 * math.cos(a), 0.0, -1.0 + 0.6 * math.sin(a), 0.0


def eight(t: float) -> tuple[float, float, float, float]:
    a = TURN * t / 60.0
    return 0.6 * math.sin(2.0 * a), 0.6 * math.sin(a), -1.1, 0.0


def eight_short(t: float) -> tuple[float, float, float, float]:
    a = TURN * t / 60.0
    return 0.6 * math.sin(a), 0.0, -1.07 + 0.6 * math.sin(2.0 * a), 0.0


def eight_tall(t: float) -> tuple[float, float, float, float]:
    a = TURN * t / 60.0
    return 0.4 * math.sin(2.0 * a), 0.0, -0.81 + 0.4 * math.sin(a), 0.0


def helix(turns: float = 0.0) -> Shape:
    def at(t: float) -> tuple[float, float, float, float]:
        a = TURN * t / 60.0
        yaw = turns * a
        return 0.5 * math.cos(2.0 * a), 0.5 * math.sin(2.0 * a), -1.04 + 0.4 * math.sin(a), yaw

    return at


# Name: shape, seconds of it, best published error in m (see the docstring).
REFERENCES: dict[str, tuple[Shape, float, float]] = {
    "circle": (circle(0.8, 45.0), 45.0, 0.053),
    "circle_spin": (circle(0.8, 45.0, 3.0), 45.0, 0.083),
    "vertical_circle": (vertical_circle, 45.0, 0.042),
    "eight": (eight, 60.0, 0.088),
    "eight_short": (eight_short, 60.0, 0.041),
    "eight_tall": (eight_tall, 60.0, 0.053),
    "helix": (helix(), 60.0, 0.038),
    "helix_spin": (helix(3.0), 60.0, 0.081),
}


def reference(name: str) -> ReferenceCurve:
    shape, seconds, _ = REFERENCES[name]
    count = round((seconds + SETTLE_S) * RATE_HZ)
    times = [k / RATE_HZ for k in range(count + 1)]
    return ReferenceCurve([(t, *shape(min(t, seconds))) for t in times])


def plant(seed: int) -> Plant:
    """Return a ship that is not the model: drag x 0.5-2, thrust x 0.8-1.2, 1 g either way."""
    chance = Random(f"track:{seed}")
    return Plant(
        seed=seed,
        drag_scale=2.0 ** chance.uniform(-1.0, 1.0),
        thrust_scale=chance.uniform(0.8, 1.2),
        heaviness_n=chance.uniform(-GRAM_N, GRAM_N),
        gust_mps=0.1,
    )


def fly(job: tuple[str, int, str]) -> Tracking:
    name, seed, sensor = job
    return track(
        reference(name), plant=plant(seed), pose_sensor="mocap" if sensor == "mocap" else "tag"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.track", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="fly seeds 1 to N")
    parser.add_argument("--pose-sensor", choices=["mocap", "tag"], default="mocap")
    parser.add_argument("--row", action="append", choices=list(REFERENCES), help="else all")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", help="JSON file to write")
    options = parser.parse_args()
    names, seeds = options.row or list(REFERENCES), range(1, options.seeds + 1)
    jobs = [(name, seed, options.pose_sensor) for name in names for seed in seeds]
    rows: dict[str, Any] = {}
    with Pool(options.processes) as pool:
        flights = pool.imap(fly, jobs)
        for name in names:
            flown = [next(flights) for _ in seeds]
            errors = [flight.rmse_3d_m for flight in flown]
            best = REFERENCES[name][2]
            rows[name] = {
                "best_published_m": best,
                "worst_m": max(errors),
                "worst_seed": 1 + errors.index(max(errors)),
                "median_m": round(statistics.median(errors), 5),
                "over_estimate": round(
                    statistics.median(one.rmse_3d_m / one.estimate_3d_m for one in flown), 3
                ),
                "most_behind_s": max(one.behind_s for one in flown),
                "flights": [msgspec.to_builtins(flight) for flight in flown],
            }
            print(
                f"{name:16} best published {best:.3f}  worst {max(errors):.4f} (seed "
                f"{rows[name]['worst_seed']})  median {statistics.median(errors):.4f} m, "
                f"{rows[name]['over_estimate']:.2f} of the estimate's  at most "
                f"{rows[name]['most_behind_s']:.1f} s behind  compute "
                f"{statistics.mean(f.step_ms['compute_mean'] for f in flown):.3f} ms",
                flush=True,
            )
    if options.out:
        command = "python -m benchmarks.track " + " ".join(sys.argv[1:])
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"command": command, "simulated": True, "rows": rows}, file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
