"""The blind test of docs/decisions/0062-blind-test-of-a-fit.md: `python -m benchmarks.blind DIR`.

DIR is a checkout of github.com/ChaoxiWXR/Winged-Blimps-Dual-Regime-Hybrid-Aerodynamic-Modeling-
Dataset, which has no licence: its files are read, and never kept here. Without --judge it fits the
tenth and writes the numbers to --out; with it, it judges those numbers on all other flights.
"""

import argparse
import csv
import hashlib
import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from math import radians
from pathlib import Path
from typing import Any

import numpy as np

from blimp import airframe as airframes
from blimp.airframe import Airframe
from blimp.sim.fit import Knob, Windows, fit, turned
from blimp.sim.flight_log import FlightLog
from blimp.sim.replay import LONGEST_GAP_S, Floats

WINDOW_S = 3.0
FEWEST_S = 1.0  # the shorter horizon
MOST_WINDOWS = 500
LET_GO_S = 3.0  # the ship is held until some 2.2 s, its motors start at 3.0 s: the fitted tenth
FULL = 160.0  # of the columns fl and fr, commands: force goes with about their square
COLUMNS = (
    *("time", "x", "y", "z", "roll", "pitch", "yaw", "vb_x", "vb_y", "vb_z"),
    *("wb_x", "wb_y", "wb_z", "fl", "fr", "rb0"),
)
SIGMA = (*[0.05] * 6, *[radians(3.0)] * 6)
AXES = ("north", "east", "down", "yaw")


def is_fitted(path: str) -> bool:
    """Whether a flight is of the tenth that is fitted; path: within the repository."""
    return int(hashlib.sha256(path.encode()).hexdigest()[:8], 16) % 10 == 0


def read(path: Path, ship: Airframe) -> FlightLog:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        header = next(rows)
        places = [header.index(name) for name in COLUMNS]
        values = np.array([[float(row[place]) for place in places] for row in rows]).T
    values = values[:, np.isfinite(values).all(axis=0)]
    values = values[:, np.concatenate([[True], np.diff(values[0]) > 0.0])]
    place = np.array(ship.mass.moving[0].position_m)[:, None] + np.zeros((3, values.shape[1]))
    place[0] += values[15]
    return FlightLog(
        path=path,
        t_s=values[0] - values[0, 0],
        position_ned_m=values[1:4],
        euler_rad=values[4:7],
        velocity_body_mps=values[7:10],
        rates_body_radps=values[10:13],
        accelerations=np.zeros((6, values.shape[1])),
        thrusts_n={},
        wrench=None,
        moving_m=place,
        throttles={"left": values[13] / FULL, "right": values[14] / FULL},
    )


def starts(flight: FlightLog, window_s: float) -> Floats:
    last_s = float(flight.t_s[-1]) - window_s
    found = np.arange(LET_GO_S, last_s + 1e-9, window_s)
    for gap in np.flatnonzero(np.diff(flight.t_s) > LONGEST_GAP_S):
        before_s, after_s = flight.t_s[gap], flight.t_s[gap + 1]
        found = found[(found >= after_s) | (found + window_s <= before_s)]
    return np.asarray(found)


def knobs(ship: Airframe) -> list[Knob]:
    found = [
        Knob("thrust", ("thruster.*.max_thrust_n",), 1.0),
        Knob("exponent", ("thruster.*.exponent",), 0.5, shift=True),
        Knob("arm", ("thruster.*.position_m.1",), 1.0),
        Knob("height", ("thruster.*.position_m.2",), 1.0),
        Knob("heaviness", ("mass.heaviness_kg",), 1.0),
        Knob("balance_x", ("mass.center_of_gravity_m.0",), 0.02, shift=True),
        Knob("balance_z", ("mass.center_of_gravity_m.2",), 1.0),
        Knob("gondola", ("mass.moving.0.mass_kg",), 1.0),
        *(Knob(f"inertia_{i}", (f"mass.inertia_kg_m2.{i}",), 1.0) for i in range(3)),
        *(Knob(f"added_{i}", (f"aero.added_mass_kg.{i}",), 0.05, shift=True) for i in range(3)),
    ]
    polar = ship.aero.polar
    assert polar is not None
    for name in ("drag", "side", "lift", "roll", "pitch", "yaw"):
        for i, number in enumerate(getattr(polar, name)):
            size = max(abs(number), 0.05)
            found.append(Knob(f"{name}_{i}", (f"aero.polar.{name}.{i}",), size, shift=True))
    return [*found, *(Knob(f"damping_{i}", (f"aero.polar.damping.{i}",), 1.0) for i in range(3))]


def rivals(windows: Windows, seconds: float) -> tuple[Floats, Floats]:
    """Return where constant velocity, and constant velocity in the body's axes, end: (4, windows).

    The second keeps speed ahead and down and the turn about the vertical: it flies a spiral on.
    """
    begun = windows.begun
    velocity, yaw = begun[3:6], begun[8]
    turn = begun[11]  # about body z: a ship that spirals hardly leans
    steady = np.concatenate([begun[0:3] + seconds * velocity, (yaw + seconds * turn)[None]])
    bend = np.where(np.abs(turn) < 1e-6, 1e-6, turn)
    along, across = np.sin(bend * seconds) / bend, (1.0 - np.cos(bend * seconds)) / bend
    spiral = steady.copy()
    spiral[0] = begun[0] + along * velocity[0] - across * velocity[1]
    spiral[1] = begun[1] + across * velocity[0] + along * velocity[1]
    return steady, spiral


def judge(ship: Airframe, flights: Sequence[FlightLog], seconds: float) -> dict[str, Any]:
    sums = np.zeros((3, 4))
    count = 0
    better: list[Floats] = []
    for group in range(0, len(flights), 50):
        cuts = [(flight, starts(flight, seconds)) for flight in flights[group : group + 50]]
        cuts = [cut for cut in cuts if cut[1].size]
        windows = Windows(cuts, window_s=seconds, sample_s=seconds, sigma=SIGMA, free=False)
        end, true = windows.fly([ship])[0, 0][[0, 1, 2, 8]], windows.flown[0][[0, 1, 2, 8]]
        off = np.array([guess - true for guess in (end, *rivals(windows, seconds))])
        off[:, 3] = (off[:, 3] + np.pi) % (2.0 * np.pi) - np.pi
        sums += (off**2).sum(axis=2)
        count += windows.count
        at = np.cumsum([0, *(cut[1].size for cut in cuts)])
        for low, high in pairwise(at.tolist()):
            rms = (off[:, :, low:high] ** 2).mean(axis=2)
            better.append(rms[0] < rms[1])
    rms = np.sqrt(sums / count)
    model, steady, spiral = ([round(float(x), 4) for x in row] for row in rms)
    return {
        "seconds": seconds,
        "windows": count,
        "flights": len(better),
        "axes": AXES,
        "model": model,
        "constant_velocity": steady,
        "spiral": spiral,
        "over_constant_velocity": [round(float(x), 3) for x in rms[0] / rms[1]],
        "over_spiral": [round(float(x), 3) for x in rms[0] / rms[2]],
        "better_flights": [round(float(x), 3) for x in np.mean(better, axis=0)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blind", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/blind.json"))
    parser.add_argument("--judge", action="store_true")
    options = parser.parse_args()
    paths = sorted(options.directory.glob("data/**/*.csv"))
    if not paths:
        print(f"{options.directory}: no data/**/*.csv; clone the data set there", file=sys.stderr)
        return 1
    ship = airframes.load("rgblimp-fit")
    names = [path.relative_to(options.directory).as_posix() for path in paths]
    wanted = [p for p, n in zip(paths, names, strict=True) if is_fitted(n) is not options.judge]
    flights = [read(path, ship) for path in wanted]
    left_out = sum(flight.t_s[-1] < LET_GO_S + FEWEST_S for flight in flights)
    print(f"{len(flights)} flights, {left_out} too short", flush=True)
    turns = knobs(ship)
    if options.judge:
        values = json.loads(options.out.read_text("utf-8"))["values"]
        ship = turned(ship, turns, values)
    else:
        cuts = [(flight, starts(flight, WINDOW_S)) for flight in flights]
        windows = Windows(cuts, window_s=WINDOW_S, sample_s=0.3, sigma=SIGMA, free=False)
        assert windows.count <= MOST_WINDOWS, windows.count
        print(f"{windows.count} windows", flush=True)
        ship, found = fit(ship, windows, turns, progress=lambda x: print(x, flush=True))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"values": found.values}), "utf-8")
        print(f"{found.rounds} rounds, error {found.rms_before:.2f} to {found.rms_after:.2f}")
        for knob, value in zip(turns, found.values, strict=True):
            print(f"  {knob.name} {value * knob.prior:+.4f}{'' if knob.shift else ' ln'}")
    for seconds in (FEWEST_S, WINDOW_S):
        print(json.dumps(judge(ship, flights, seconds)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
