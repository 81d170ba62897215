"""How far a ship strays from where it holds, in wind: `python -m benchmarks.hold`.

Simulated, in Lockstep: chips, drivers, estimator and control as they fly. Exit status: 1 if one
did not take off, or strayed by more than 0.25 m RMS.
"""

import argparse
import json
import math
import statistics
import sys
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from blimp.ship.lockstep import Lockstep
from blimp.types import OutcomeState

_LIMIT_M = 0.25
_ARM_S = 60.0  # wind moves it on its pad: its gyro takes a while
_BRAKE_S = 10.0  # a HOLD stops the ship first, then stays where it has stopped


def hold(seed: int, *, airframe: str, wind_mps: float, seconds: float = 60.0) -> dict[str, Any]:
    """Take off to 3 m, hold, and return the true distances from the mean place, in m."""
    with Lockstep(airframe, seed=seed, wind_mps=wind_mps, held=True) as ship:
        ship.hold(False)  # laid down, kept still until its gyro is measured, and let go of
        until_s = ship.now_s + _ARM_S
        while ship.command("arm", check=ship.now_s > until_s).state is OutcomeState.REFUSED:
            ship.step(1.0)
        outcome = ship.complete("takeoff", within_s=90.0, check=False, altitude_m=3.0)
        if outcome.state is not OutcomeState.DONE:
            return {"seed": seed, "failure": f"takeoff: {outcome.state} {outcome.reason}"}
        ship.command("hold")
        ship.step(_BRAKE_S)
        places, full = [], 0
        for _ in range(round(10.0 * seconds)):
            ship.step(0.1)
            places.append(ship.truth.position_ned_m[:2])
            outputs = ship.world.outputs
            full += max(abs(outputs[name]) for name in ship.airframe.thruster_names) > 0.995
        mode = ship.snapshot().mode
    north, east = (statistics.fmean(axis) for axis in zip(*places, strict=True))
    strayed = [math.hypot(n - north, e - east) for n, e in places]
    return {
        "seed": seed,
        "mode": mode,
        "rms_m": round(math.sqrt(statistics.fmean(d * d for d in strayed)), 3),
        "max_m": round(max(strayed), 3),
        "saturated_fraction": round(full / len(places), 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hold", description=__doc__)
    parser.add_argument("--airframe", default="twin")
    parser.add_argument("--wind", type=float, default=0.5, help="mean wind, m/s")
    parser.add_argument("--seeds", type=int, default=20, help="fly seeds 1 to N")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    flown = []
    with Pool(options.processes) as pool:
        one = partial(hold, airframe=options.airframe, wind_mps=options.wind)
        for found in pool.imap(one, range(1, options.seeds + 1)):
            flown.append(found)
            print(json.dumps(found), flush=True)
    held = [found for found in flown if "failure" not in found]
    rms = [found["rms_m"] for found in held]
    print(
        f"{options.airframe}, {options.wind:g} m/s (simulated): {len(held)} of {len(flown)} held; "
        f"RMS median {statistics.median(rms):.3f} m, worst {max(rms):.3f} m; farthest "
        f"{max(found['max_m'] for found in held):.3f} m",
        file=sys.stderr,
    )
    if options.out:
        command = "python -m benchmarks.hold " + " ".join(sys.argv[1:])
        options.out.write_text(
            json.dumps({"command": command, "simulated": True, "flights": flown}, indent=1) + "\n",
            encoding="utf-8",
        )
    return int(len(held) < len(flown) or max(rms) > _LIMIT_M)


if __name__ == "__main__":
    sys.exit(main())
