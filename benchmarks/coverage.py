"""Do the intervals of `blimp identify` hold? `python -m benchmarks.coverage --flights 60`.

Ships whose truth is known fly eight legs of 14 s in still air, and are identified from their logs,
by turns `gtmab` with motion capture, `twin` and `hobby` with their own sensors. Mass, added mass,
inertia and balance are drawn by the priors; thrust x 0.70-1.28, drag x 0.5-2, lag x 0.5-2.
Counted is how often the 90 % interval of a parameter that is not "unknown" holds the truth.
Simulated.
"""

import argparse
import sys
import tempfile
from collections import Counter
from math import exp
from pathlib import Path
from random import Random

from blimp import airframe as airframes
from blimp.service.tune.identify import identify, knobs
from blimp.service.tune.track import with_pose_sensor
from blimp.ship import Lockstep
from blimp.sim.fit import Knob, turned

SHIPS = ("gtmab", "twin", "hobby")
LEGS, LEG_S = 8, 14.0


def draw(chance: Random, knob: Knob) -> float:
    """Return a true value, in deviations of the prior."""
    if knob.name == "heaviness":
        return chance.gauss(0.0, 0.3)
    if knob.name.startswith("thrust_") and knob.name != "thrust_lag":
        return chance.uniform(-0.35, 0.25) / knob.prior
    if knob.name.startswith(("thrust_lag", "drag", "fin")):
        return chance.uniform(-0.7, 0.7) / knob.prior
    return chance.gauss(0.0, 1.0)


def fly(name: str, seed: int, log: Path) -> dict[str, float]:
    """Fly one ship, recorded, and return its true parameters as `identify` counts them."""
    chance = Random(f"coverage:{name}:{seed}")
    ship = airframes.load(name)
    if name == "gtmab":
        ship = with_pose_sensor(ship, "mocap")
    turns = knobs(ship)
    values = [draw(chance, knob) for knob in turns]
    reach_m = min(6.0, 12.0 * ship.limits.speed_mps)
    with Lockstep(ship, seed=seed, plant=turned(ship, turns, values), log=log) as flight:
        flight.command("arm")
        flight.complete("takeoff", altitude_m=2.5, within_s=90.0, check=False)
        for _ in range(LEGS):
            flight.command(
                "goto",
                check=False,
                north_m=chance.uniform(-reach_m, reach_m),
                east_m=chance.uniform(-reach_m, reach_m),
                altitude_m=chance.uniform(1.5, 4.0),
                yaw_deg=chance.uniform(-180.0, 180.0),
            )
            flight.step(LEG_S)
    return {
        knob.name: 1e3 * (ship.mass.heaviness_kg + knob.prior * value)
        if knob.shift
        else exp(knob.prior * value)
        for knob, value in zip(turns, values, strict=True)
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--flights", type=int, default=60)
    parser.add_argument("--first-seed", type=int, default=601)
    options = parser.parse_args()
    known, held = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as directory:
        for number in range(options.flights):
            name, seed = SHIPS[number % len(SHIPS)], options.first_seed + number // len(SHIPS)
            log = Path(directory) / f"{name}-{seed}.mcap"
            truth = fly(name, seed, log)
            found = identify([log])
            log.unlink()
            missed = []
            for one in found.parameters:
                if one.excited:
                    holds = one.low <= truth[one.name] <= one.high
                    known[name] += 1
                    held[name] += holds
                    if not holds:
                        missed.append(
                            f"{one.name} {one.low}-{one.high}, true {truth[one.name]:.3f}"
                        )
            print(f"{name} seed {seed}: missed {'; '.join(missed) or 'none'}", flush=True)
    for name in known:
        print(f"{name}: {held[name]} of {known[name]} intervals hold the truth")
    print(f"all: {sum(held.values()) / max(1, sum(known.values())):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
