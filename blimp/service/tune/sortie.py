"""One mission flown in Lockstep, leg by leg, with its errors: for tests and benchmarks.

The commander gets the same commands that the ground sends, without a queue and faster than
real time. All of it is simulated.
"""

from collections.abc import Callable
from math import hypot

import msgspec

from blimp.ship.lockstep import Lockstep
from blimp.types import OutcomeState
from ground_station.flyer import limit_s
from ground_station.mission_file import Mission
from ground_station.track import cross_track_m

LOOK_S = 0.1  # how often the true position is sampled


class Sortie(msgspec.Struct, frozen=True, kw_only=True):
    """How one simulated mission went. Distances are true ones, over ground.

    failure: "" if it was flown, else which leg ended how and why.
    """

    seed: int
    failure: str
    duration_s: float
    max_cross_track_m: float
    landing_error_m: float
    touchdown_mps: float
    armed_at_end: bool

    @property
    def flown(self) -> bool:
        return not self.failure


def fly(
    mission: Mission,
    *,
    airframe: str = "twin",
    seed: int = 1,
    wind_mps: float = 0.3,
    before_leg: Callable[[Lockstep, int], object] | None = None,
) -> Sortie:
    """Fly `mission` once, from the pad to its last leg or its first failure.

    before_leg: called with the ship and the leg's number, from 1: it may make something fail.
    """
    with Lockstep(airframe, seed=seed, wind_mps=wind_mps) as ship:
        began_s = ship.now_s
        track = mission.track()
        worst_m = 0.0
        failure = ""
        for number, leg in enumerate(mission.legs, start=1):
            if before_leg is not None:
                before_leg(ship, number)
            line = track.get(number)
            until_s = ship.now_s + limit_s(leg, line)
            outcome = ship.command(leg.do, check=False, **leg.arguments())
            while outcome.state is OutcomeState.IN_PROGRESS and ship.now_s < until_s:
                ship.step(LOOK_S)
                outcome = ship.outcome(outcome.id)
                if line is not None:
                    worst_m = max(worst_m, cross_track_m(line, ship.truth.position_ned_m))
            if outcome.state is not OutcomeState.DONE:
                failure = f"leg {number} ({leg.do}): {outcome.state} {outcome.reason}".rstrip()
                break
        north_m, east_m, _ = ship.truth.position_ned_m
        end = track[max(track)].end if track else (0.0, 0.0, 0.0)
        return Sortie(
            seed=seed,
            failure=failure,
            duration_s=ship.now_s - began_s,
            max_cross_track_m=worst_m,
            landing_error_m=hypot(north_m - end[0], east_m - end[1]),
            touchdown_mps=ship.world.physics.touchdown_speed_mps,
            armed_at_end=ship.snapshot().armed,
        )
