"""Identify a ship from flights: `python -m benchmarks.identify rgblimp DIR --without 1,22,...`.

DIR has RGBlimp logs, data_N.csv, four flights to an input (gondola place and thrusts). All flights
of the inputs of `--without` are left out, so that those can be replayed as a check. Levenberg and
Marquardt's method on windows of 3 s open loop and on single accelerations; the airframe's numbers
are where it begins, and pull like measurements of the spread below. Prints the numbers found.
"""

import argparse
import json
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from blimp import airframe as airframes
from blimp.airframe import Airframe, Polar
from blimp.sim import replay as replays
from blimp.sim.batch import Batch
from blimp.sim.flight_log import FlightLog, read
from blimp.sim.replay import State

Floats = NDArray[np.float64]
WINDOW_S, STEP_S = 3.0, 0.01
# What an error counts: north, east, down; roll, pitch, yaw; then one step, linear and angular.
POSITION_M, ATTITUDE_RAD = (0.05, 0.05, 0.012), (0.02, 0.02, 0.05)
ACCELERATION = (0.10, 0.10, 0.10, 0.40, 0.40, 0.40)
PULL = 0.15  # of the numbers to begin with, against all windows together
STRAIGHT_N = 0.002  # thrusts that differ by less fly straight; these few windows count fourfold
POLAR = ("drag", "side", "lift", "roll", "pitch", "yaw", "damping")


def spread(start: Floats) -> Floats:
    """Return how far a number may be off what it begins with."""
    return np.maximum(np.abs(start) * 0.25, 0.01)


def numbers(ship: Airframe) -> Floats:
    """Return what is identified, as one vector: polar, inertia, balance, heaviness, battery."""
    assert ship.aero.polar is not None
    x, _, z = ship.mass.center_of_gravity_m
    polar = [value for name in POLAR for value in getattr(ship.aero.polar, name)]
    inertia = [*ship.mass.inertia_kg_m2, ship.mass.products_kg_m2[1]]
    sag = (ship.battery.polarisation_ohm, ship.battery.polarisation_s)
    return np.array([*polar, *inertia, x, z, ship.mass.heaviness_kg, *sag])


def spreads(start: Floats) -> Floats:
    found = spread(start)
    found[18:24] = np.abs(start[18:24]) * 0.15  # damping and inertia
    found[24:] = (0.001, 0.0025, 0.003, 0.002, 0.1, 5.0)
    return found


def with_numbers(ship: Airframe, values: Floats) -> Airframe:
    """Return the ship with these numbers; its mass stays, so that heaviness moves its volume."""
    assert ship.aero.polar is not None
    v = [float(value) for value in values]
    rows = {name: tuple(v[3 * i : 3 * i + 3]) for i, name in enumerate(POLAR)}
    rows["damping"] = tuple(max(k, 1e-4) for k in rows["damping"])
    polar: Polar = msgspec.structs.replace(ship.aero.polar, **rows)
    replace = msgspec.structs.replace
    _, y, _ = ship.mass.center_of_gravity_m
    return replace(
        ship,
        aero=replace(ship.aero, polar=polar),
        hull=replace(ship.hull, volume_m3=(ship.mass_kg - v[27]) / 1.2250),
        mass=replace(
            ship.mass,
            inertia_kg_m2=tuple(max(i, 1e-3) for i in v[21:24]),
            products_kg_m2=(0.0, v[24], 0.0),
            center_of_gravity_m=(v[25], y, v[26]),
            heaviness_kg=v[27],
        ),
        battery=replace(
            ship.battery, polarisation_ohm=max(v[28], 0.0), polarisation_s=max(v[29], 1.0)
        ),
    )


class Windows:
    """All windows of all flights, flown in one batch."""

    def __init__(self, flights: list[FlightLog], ship: Airframe) -> None:
        began, ended, rates, angles, weight = [], [], [], [], []
        singles: list[list[Floats]] = [[], [], [], [], []]
        self._flights, self._samples, self._some = flights, [], []
        steps = round(WINDOW_S / STEP_S)
        for flight in flights:
            force, angle = replays.inputs(flight, ship)
            straight = float(np.ptp(force[:, 0])) < STRAIGHT_N
            last_s = flight.t_s[-1] - WINDOW_S
            starts_s = np.arange(0.0, last_s + 1e-9, 0.75 if straight else 2.5)
            began.append(replays.state(flight, starts_s))
            ended.append(replays.state(flight, starts_s + WINDOW_S))
            rates.append(replays.at(flight, flight.rates_body_radps, starts_s))
            times = starts_s + STEP_S * (np.arange(steps)[:, None] + 0.5)
            sample = np.searchsorted(flight.t_s, times, side="right") - 1
            self._samples.append(sample)
            angles.append(angle[:, sample])
            weight.append(np.full(starts_s.size, 2.0 if straight else 1.0))
            some = slice(0, None, 10 if straight else 40)
            self._some.append(some)
            for rows, found in zip(
                singles,
                (
                    flight.euler_rad, flight.velocity_body_mps, flight.rates_body_radps,
                    flight.accelerations, angle,
                ),
                strict=True,
            ):  # fmt: skip
                rows.append(found[:, some])
        self.count = sum(map(len, weight))
        self._began, self._ended = _joined(began), _joined(ended)
        self._rates, self._weight = np.concatenate(rates, axis=1), np.concatenate(weight)
        self._angles = np.concatenate(angles, axis=2)
        self._sag(ship)
        self._singles = [np.concatenate(rows, axis=1) for rows in singles]

    def _sag(self, ship: Airframe) -> None:
        """Work out what this ship's battery leaves of the thrusts."""
        self._battery, flown, single = ship.battery, [], []
        for flight, sample, some in zip(self._flights, self._samples, self._some, strict=True):
            force = replays.sagged(flight, ship, replays.inputs(flight, ship)[0])
            flown.append(force[:, sample])
            single.append(force[:, some])
        self._thrusts = np.concatenate(flown, axis=2)
        self._single_thrusts = np.concatenate(single, axis=1)

    def errors(self, ship: Airframe) -> Floats:
        """Return all errors in units of what they count, over the root of their number."""
        if ship.battery != self._battery:
            self._sag(ship)
        batch = Batch(airframes=[ship] * self.count, seed=0, ground=False)
        batch.put(
            position_ned_m=self._began.position_ned_m,
            attitude=self._began.attitude,
            velocity_ned_mps=self._began.velocity_ned_mps,
            rates_body_radps=self._rates,
        )
        for step in range(self._thrusts.shape[1]):
            batch.push(STEP_S, list(self._thrusts[:, step]), list(self._angles[:, step]))
        place = batch.positions_ned_m - self._ended.position_ned_m
        turn = replays.euler_of(batch.attitudes) - replays.euler_of(self._ended.attitude)
        turn = (turn + np.pi) % (2.0 * np.pi) - np.pi
        flown = [place / np.array(POSITION_M)[:, None], turn / np.array(ATTITUDE_RAD)[:, None]]
        euler, velocity, rates, true, angles = self._singles
        single = Batch(airframes=[ship] * true.shape[1], seed=0, ground=False)
        attitude = replays.quaternion_of(euler)
        single.put(
            attitude=attitude,
            velocity_ned_mps=replays.to_ned(attitude, velocity),
            rates_body_radps=rates,
        )
        found = single.rates_of_change(list(self._single_thrusts), list(angles)) - true
        found = found / np.array(ACCELERATION)[:, None] / np.sqrt(true.shape[1])
        weighed = np.clip(np.concatenate(flown), -40.0, 40.0) * self._weight / np.sqrt(self.count)
        return np.concatenate([weighed.ravel(), found.ravel()])


def _joined(states: list[State]) -> State:
    names = State.__struct_fields__
    return State(**{n: np.concatenate([getattr(s, n) for s in states], axis=1) for n in names})


def identify(ship: Airframe, windows: Windows, *, rounds: int) -> Airframe:
    """Return the ship with the numbers that fit best."""
    start = numbers(ship)
    scale = spreads(start)

    def residuals(values: Floats) -> Floats:
        pulled = PULL * (values - start) / scale
        return np.concatenate([windows.errors(with_numbers(ship, values)), pulled])

    values, damping = start.copy(), 1e-3
    now = residuals(values)
    for turn in range(rounds):
        columns = []
        for i, size in enumerate(scale):
            tried = values.copy()
            tried[i] += 0.05 * size
            columns.append((residuals(tried) - now) / 0.05)
        slope = np.array(columns).T
        for _ in range(6):
            normal = slope.T @ slope + damping * np.eye(scale.size)
            tried = values - scale * np.linalg.solve(normal, slope.T @ now)
            found = residuals(tried)
            if found @ found < now @ now:
                values, now, damping = tried, found, damping / 5.0
                break
            damping *= 10.0
        print(f"round {turn + 1}: cost {now @ now:.3f}", flush=True)
    return with_numbers(ship, values)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.identify", description=__doc__)
    parser.add_argument("airframe")
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--without", default="", help="numbers of flights whose inputs to leave out"
    )
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    left_out = {(int(n) - 1) // 4 for n in options.without.split(",") if n}
    paths = sorted(options.directory.glob("data_*.csv"), key=_number)
    used = [path for path in paths if (_number(path) - 1) // 4 not in left_out]
    ship = airframes.load(options.airframe)
    windows = Windows([read(path) for path in used], ship)
    print(f"{len(used)} flights, {windows.count} windows")
    found = identify(ship, windows, rounds=options.rounds)
    mass, polar = found.mass, found.aero.polar
    volume_m3 = found.hull.volume_m3
    print(
        json.dumps(
            msgspec.to_builtins(
                {"volume_m3": volume_m3, "mass": mass, "polar": polar, "battery": found.battery}
            )
        )
    )


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("data_"))


if __name__ == "__main__":
    main()
