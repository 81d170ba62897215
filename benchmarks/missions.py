"""The default mission over many seeds of wind and noise: `python -m benchmarks.missions`.

Simulated, in Lockstep: chips, drivers, estimator and control as they fly. Exit status: 1 if one
was not flown, or if `twin` in its default wind left the limits of tests/sim/test_missions.py.
"""

import argparse
import json
import sys
from collections.abc import Callable

import msgspec

from blimp.service.tune.sortie import fly
from blimp.ship.lockstep import Lockstep
from ground_station.mission_file import load_mission


def dies(motor: str) -> Callable[[Lockstep, int], None]:
    """Return what makes a motor stand still for good as the third leg begins."""

    def before_leg(ship: Lockstep, leg: int) -> None:
        if leg == 3:
            outputs = {row.name: row.outputs for row in ship.airframe.device}
            device = next(name for name, all in outputs.items() if motor in all.values())
            ship.fault(device, "stuck", channel=motor, value=0.0)

    return before_leg


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.missions", description=__doc__)
    parser.add_argument("--mission", default="square")
    parser.add_argument("--airframe", default="twin")
    parser.add_argument("--wind", type=float, default=0.3, help="mean wind, m/s")
    parser.add_argument("--seeds", type=int, default=20, help="fly seeds 1 to N")
    parser.add_argument("--dead", metavar="MOTOR", help="dies as leg 3 begins")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    mission = load_mission(options.mission)
    sorties = []
    for seed in range(1, options.seeds + 1):
        sortie = fly(
            mission, airframe=options.airframe, seed=seed, wind_mps=options.wind,
            before_leg=dies(options.dead) if options.dead else None,
        )  # fmt: skip
        sorties.append(sortie)
        if options.json:
            print(json.dumps(msgspec.to_builtins(sortie)), flush=True)
        else:
            print(
                f"seed {seed:3}  {sortie.duration_s:6.1f} s  cross-track "
                f"{sortie.max_cross_track_m:5.2f} m  landing {sortie.landing_error_m:5.2f} m  "
                f"touchdown {sortie.touchdown_mps:4.2f} m/s  {sortie.failure or 'flown'}",
                flush=True,
            )
    flown = [sortie for sortie in sorties if sortie.flown]
    print(
        f"{options.airframe}, {mission.name}, wind {options.wind} m/s (simulated): "
        f"{len(flown)} of {len(sorties)} flown; worst cross-track "
        f"{max(s.max_cross_track_m for s in sorties):.2f} m, landing "
        f"{max(s.landing_error_m for s in sorties):.2f} m, touchdown "
        f"{max(s.touchdown_mps for s in sorties):.2f} m/s",
        file=sys.stderr,
    )
    is_default = not options.dead and (options.mission, options.airframe, options.wind) == (
        "square",
        "twin",
        0.3,
    )
    is_within = not is_default or all(
        one.max_cross_track_m <= 1.0 and one.landing_error_m <= 1.0 and one.touchdown_mps <= 0.5
        for one in flown
    )
    return 0 if len(flown) == len(sorties) and is_within else 1


if __name__ == "__main__":
    sys.exit(main())
