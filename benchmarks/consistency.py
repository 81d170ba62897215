"""Whether the estimator knows how good it is: `python -m benchmarks.consistency --flights N`.

Healthy flights of `benchmarks.campaign`, airframes, weight, drag, thrust and wind drawn at random.
Twice a second in the air the error of each quantity over the deviation that the filter believes is
squared: NEES over its degrees of freedom, 1 for an honest filter, less for one that is too modest
(Bar-Shalom, "Estimation with Applications to Tracking and Navigation", section 5.4). Listed by
airframe: the median and the worst over the flights of a flight's mean, and how many samples lie
within the 95 % region. Errors of one flight go together, so the bounds of independent samples do
not apply to a mean. Simulated, in Lockstep.
"""

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from math import sqrt
from multiprocessing import Pool
from typing import Any

from benchmarks import campaign
from blimp.rotation import rotate_back, wrap_pi, yaw_of
from blimp.ship.lockstep import Lockstep

# Degrees of freedom, and what chi-square of so many is below in 95 of 100 samples.
QUANTITIES = {
    "height": (1, 3.841),
    "climb": (1, 3.841),
    "position": (2, 5.991),
    "velocity": (2, 5.991),
    "heading": (1, 3.841),
    "attitude": (2, 5.991),
}
# Each sample: the error and the deviation, both squared, all degrees of freedom together.
Squares = dict[str, list[tuple[float, float]]]


def look(ship: Lockstep, squares: Squares) -> None:
    """Add one sample of each quantity, if the ship flies and knows it."""
    truth, state = ship.truth, ship.state
    if state.on_ground or truth.altitude_m < 0.5:
        return
    health = state.health
    north, east, below = (
        a - b for a, b in zip(state.position_ned_m, truth.position_ned_m, strict=True)
    )
    v_north, v_east, v_down = (
        a - b for a, b in zip(state.velocity_ned_mps, truth.velocity_ned_mps, strict=True)
    )
    if state.height_valid:
        squares["height"].append((below**2, health.height.sigma**2))
        squares["climb"].append((v_down**2, health.climb.sigma**2))
    if state.position_valid:
        squares["position"].append((north**2 + east**2, health.position.sigma**2))
        squares["velocity"].append((v_north**2 + v_east**2, health.velocity.sigma**2))
    if state.attitude_valid:
        down, true = (rotate_back(one.attitude, (0.0, 0.0, 1.0)) for one in (state, truth))
        off = (down[0] - true[0]) ** 2 + (down[1] - true[1]) ** 2
        squares["attitude"].append((off, health.attitude.sigma**2))
    if state.attitude_valid and health.heading.sigma > 0.0:
        off_rad = wrap_pi(yaw_of(state.attitude) - yaw_of(truth.attitude))
        squares["heading"].append((off_rad**2, health.heading.sigma**2))


def fly(draw: campaign.Draw) -> tuple[str, Squares]:
    """Fly one mission, and return its airframe and squares."""
    squares: Squares = defaultdict(list)
    campaign.fly_healthy(draw, look=partial(look, squares=squares))
    return draw.airframe, dict(squares)


def row_of(airframe: str, flights: Sequence[Squares]) -> dict[str, Any]:
    """Return the table's row: rms of the error, NEES over its freedom, share within 95 %."""
    row: dict[str, Any] = {"airframe": airframe, "flights": len(flights)}
    for name, (freedom, bound) in QUANTITIES.items():
        known = [f[name] for f in flights if f.get(name)]
        if known:
            means = [statistics.mean(e / v for e, v in one) / freedom for one in known]
            within = [e / v <= bound for one in known for e, v in one]
            row[name] = {
                "rms": round(
                    statistics.median(sqrt(statistics.mean(e for e, _ in one)) for one in known), 4
                ),
                "median": round(statistics.median(means), 2),
                "worst": round(max(means), 2),
                "within_95": round(statistics.mean(within), 3),
            }
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    options = campaign.make_parser("benchmarks.consistency", __doc__).parse_args(arguments)
    ships = campaign.choose_ships(options.airframes, options.random_ships, seed=options.seed)
    flown: dict[str, list[Squares]] = defaultdict(list)
    with Pool(options.jobs) as pool:
        draws = (
            campaign.draw_healthy(number, seed=options.seed, ships=ships, watch_s=0.0)
            for number in range(options.flights)
        )
        for airframe, squares in pool.imap_unordered(fly, draws):
            flown[airframe].append(squares)
    for airframe, flights in sorted(flown.items()):
        print(json.dumps(row_of(airframe, flights) | {"simulated": True}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
