"""How many times faster than real time one core flies: `python -m benchmarks.lockstep`.

A ship that holds its place in gusts, with every chip and driver; then the same number of
physics steps alone, the floor that no driver or control can get under.
"""

import argparse
import json
import statistics
import time

from blimp import airframe as airframes
from blimp.sim.lockstep import Lockstep
from blimp.sim.physics import Physics

STEP_S = 0.005


def full_stack(seconds: float) -> float:
    with Lockstep("twin", seed=1, wind_mps=0.3) as ship:
        ship.command("arm")
        ship.complete("takeoff", within_s=60.0, altitude_m=3.0)
        began_s = time.perf_counter()
        ship.step(seconds)
        return seconds / (time.perf_counter() - began_s)


def physics_alone(seconds: float) -> float:
    frame = airframes.load("twin")
    physics = Physics(airframe=frame, seed=1, wind_mps=0.3)
    throttles, servos = [0.3] * len(frame.thruster), [0.5] * len(frame.servo)
    began_s = time.perf_counter()
    for _ in range(round(seconds / STEP_S)):
        physics.step(STEP_S, throttles, servos)
    return seconds / (time.perf_counter() - began_s)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lockstep", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="simulated, per run")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    pairs = [
        (full_stack(options.seconds), physics_alone(options.seconds)) for _ in range(options.runs)
    ]
    stack = statistics.median(pair[0] for pair in pairs)
    floor = statistics.median(pair[1] for pair in pairs)
    print(
        json.dumps(
            {
                "full_stack_x_real_time": round(stack, 1),
                "physics_alone_x_real_time": round(floor, 1),
                "share_of_the_floor": round(stack / floor, 3),
                "runs": options.runs,
            }
        )
    )


if __name__ == "__main__":
    main()
