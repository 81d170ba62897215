"""GT-MAB fitted to its published flights: `python -m benchmarks.published DIR`.

DIR has the logs official_*.log of github.com/evannsm/blimp_work, which has no licence: they are
read, and never kept here. The flights of each controller are judged by a ship that was fitted to
the flights of the other two, and at the end a ship is fitted to all: that of gtmab-fit.toml.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from math import exp
from pathlib import Path
from typing import Any

import numpy as np

from blimp import airframe as airframes
from blimp.airframe import Airframe
from blimp.errors import ConfigError
from blimp.sim.fit import Fitted, Knob, Windows, fit
from blimp.sim.flight_log import FlightLog, read
from blimp.sim.replay import starts

WINDOW_S = 3.0
CONTROLLERS = ("FBL", "NMPC", "NR")
# One of each path and controller: these are second flights of a path.
SECOND = ("official_NMPC_CH_sameinfoaswardi", "official_NR_CH_SPN")
SIGMA = (*[0.05] * 6, 0.05, 0.05, 0.1, *[np.inf] * 3)
_LEVEL, _LIFT = range(4), 4  # of the thrusters


def _forces(*rows: int) -> tuple[str, ...]:
    return tuple(f"thruster.{i}.{k}" for i in rows for k in ("max_thrust_n", "reverse_thrust_n"))


KNOBS = (
    Knob("thrust_level", _forces(*_LEVEL), 1.0),
    Knob("thrust_lift", _forces(_LIFT), 1.5),
    Knob("lag_lift", (f"thruster.{_LIFT}.lag_s",), 2.0),
    Knob("drag_level", ("aero.linear_drag.0", "aero.linear_drag.1"), 1.0),
    Knob("drag_heave", ("aero.linear_drag.2",), 1.0),
    Knob("added_level", ("aero.added_mass_kg.0", "aero.added_mass_kg.1"), 1.0),
    Knob("added_heave", ("aero.added_mass_kg.2",), 1.0),
    Knob("heaviness", ("mass.heaviness_kg",), 0.005, shift=True, unit="kg"),
)


def fitted(ship: Airframe, flights: Sequence[FlightLog]) -> tuple[Airframe, Fitted]:
    cuts = [(flight, starts(flight, WINDOW_S)) for flight in flights]
    windows = Windows(cuts, window_s=WINDOW_S, sample_s=0.5, sigma=SIGMA, free=False)
    return fit(ship, windows, KNOBS)


def judged(ship: Airframe, flights: Sequence[FlightLog]) -> dict[str, Any]:
    """Return the RMS error of position after the windows, and its ratio to constant velocity's."""
    cuts = [(flight, starts(flight, WINDOW_S)) for flight in flights]
    windows = Windows(cuts, window_s=WINDOW_S, sample_s=WINDOW_S, sigma=SIGMA, free=False)
    true = windows.flown[0, :3]
    off = windows.fly([ship])[0, 0, :3] - true
    steady = windows.begun[:3] + WINDOW_S * windows.begun[3:6] - true
    model, rival = (np.sqrt(np.mean(e**2, axis=1)) for e in (off, steady))
    return {
        "windows": windows.count,
        "model_m": [round(float(x), 4) for x in model],
        "constant_velocity_m": [round(float(x), 4) for x in rival],
        "ratio": [round(float(x), 3) for x in model / rival],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=__doc__)
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    ship = airframes.load("gtmab")
    paths = [p for p in sorted(options.directory.glob("official_*.log")) if p.stem not in SECOND]
    try:
        logs = {p: read(p) for p in paths}
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    flights = {
        name: [log for p, log in logs.items() if p.stem.split("_")[1] == name]
        for name in CONTROLLERS
    }
    if not all(flights.values()):
        print(f"{options.directory}: no official_*.log of each of {', '.join(CONTROLLERS)}")
        return 1
    for name in (*CONTROLLERS, ""):
        others = [log for other, some in flights.items() if other != name for log in some]
        found, numbers = fitted(ship, others)
        for one in (name,) if name else CONTROLLERS:
            print(
                one, "by the others" if name else "by all", json.dumps(judged(found, flights[one]))
            )
        spread = np.sqrt(np.diag(numbers.covariance))
        for knob, value, sigma in zip(KNOBS, numbers.values, spread, strict=True):
            size, off = knob.prior * value, knob.prior * sigma
            shown = (
                f"{size:+.5f} +- {off:.5f}" if knob.shift else f"x {exp(size):.3f} / {exp(off):.2f}"
            )
            print(f"  {knob.name:14} {shown}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
