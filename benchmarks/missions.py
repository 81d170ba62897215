"""The default mission over many seeds of wind and noise: `python -m benchmarks.missions`.

Simulated, in Lockstep: chips, drivers, estimator and control as they fly. Exit status: 1 if one
was not flown, or if `twin` in its default wind left the limits of tests/sim/test_missions.py.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from math import hypot

import msgspec

from blimp.errors import BlimpError
from blimp.ship.lockstep import Lockstep
from ground_station.mission_file import Mission, load_mission
from ground_station.ship import Ship
from ground_station.track import cross_track_m

LOOK_S = 0.1  # how often the true position is sampled


class Sortie(msgspec.Struct, frozen=True, kw_only=True):
    """How one simulated mission went. Distances are true ones, over ground. failure: "" if none."""

    seed: int
    failure: str
    duration_s: float
    max_cross_track_m: float
    landing_error_m: float
    touchdown_mps: float
    armed_at_end: bool


def fly(
    mission: Mission,
    *,
    airframe: str = "twin",
    seed: int = 1,
    wind_mps: float = 0.3,
    on_leg: Callable[[Lockstep, int], object] = lambda *_: None,
) -> Sortie:
    """Fly `mission` once, as every client does. on_leg: may make something fail before a leg."""
    track, leg, worst_m = mission.track(), 0, 0.0
    with Lockstep(airframe, seed=seed, wind_mps=wind_mps) as simulated:

        def begin(number: int) -> None:
            nonlocal leg
            leg = number
            on_leg(simulated, number)

        async def flown() -> str:
            nonlocal worst_m
            async with Ship.lockstep(simulated) as ship:
                flying = asyncio.create_task(ship.mission(mission, on_leg=begin))
                while not flying.done():
                    await ship.sleep(LOOK_S)
                    if leg in track:
                        off_m = cross_track_m(track[leg], simulated.truth.position_ned_m)
                        worst_m = max(worst_m, off_m)
                try:
                    await flying
                except BlimpError as error:
                    return f"leg {leg}: {error}"
            return ""

        began_s = simulated.now_s
        failure = asyncio.run(flown())
        north_m, east_m, _ = simulated.truth.position_ned_m
        end = track[max(track)].end if track else (0.0, 0.0, 0.0)
        return Sortie(
            seed=seed,
            failure=failure,
            duration_s=simulated.now_s - began_s,
            max_cross_track_m=worst_m,
            landing_error_m=hypot(north_m - end[0], east_m - end[1]),
            touchdown_mps=simulated.world.physics.touchdown_speed_mps,
            armed_at_end=simulated.snapshot().armed,
        )


def dies(motor: str) -> Callable[[Lockstep, int], None]:
    """Return what makes a motor stand still for good as the third leg begins."""

    def on_leg(ship: Lockstep, leg: int) -> None:
        if leg == 3:
            outputs = {row.name: row.outputs for row in ship.airframe.device}
            device = next(name for name, all in outputs.items() if motor in all.values())
            ship.fault(device, "stuck", channel=motor, value=0.0)

    return on_leg


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
            on_leg=dies(options.dead) if options.dead else lambda *_: None,
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
    flown = [sortie for sortie in sorties if not sortie.failure]
    print(
        f"{options.airframe}, {mission.name}, wind {options.wind} m/s (simulated): "
        f"{len(flown)} of {len(sorties)} flown; worst cross-track "
        f"{max(s.max_cross_track_m for s in sorties):.2f} m, landing "
        f"{max(s.landing_error_m for s in sorties):.2f} m, touchdown "
        f"{max(s.touchdown_mps for s in sorties):.2f} m/s",
        file=sys.stderr,
    )
    flown_as = (options.mission, options.airframe, options.wind, options.dead)
    is_default = flown_as == ("square", "twin", 0.3, None)
    is_within = not is_default or all(
        one.max_cross_track_m <= 1.0 and one.landing_error_m <= 1.0 and one.touchdown_mps <= 0.5
        for one in flown
    )
    return 0 if len(flown) == len(sorties) and is_within else 1


if __name__ == "__main__":
    sys.exit(main())
