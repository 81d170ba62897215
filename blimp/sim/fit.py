"""Parameters of a ship from flights: output-error least squares by multiple shooting.

Jategaonkar, Flight Vehicle System Identification, ch. 4. Windows of the flights are flown open loop
by the model (`blimp/sim/replay.py`), all windows and all changed parameters in one `Batch`; the
parameters are those with which it stays closest to what was flown. Where the start of a window is
known badly, a constant offset of each value and the starting velocity are fitted with each window
and not believed.

Intervals are of the sandwich estimator (White 1980; Liang and Zeger 1986), in which a window is a
cluster: no model of the noise is needed, which is correlated within a window.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from blimp.airframe import Airframe
from blimp.sim.batch import Batch
from blimp.sim.flight_log import FlightLog
from blimp.sim.physics import MAX_STEP_S
from blimp.sim.replay import Floats, at, euler_of, inputs, sagged, state
from blimp.types import Progress, unseen

ROUNDS = 8
SETTLED = 0.02  # of a prior's deviation: a step of every parameter below this is the last
STEP = 0.02  # of a prior's deviation, for a derivative
LONGEST = 1.0  # step, of a prior's deviation
LEAST_NOISE = 0.25  # of the sigmas given: an estimate has errors that all windows share
SHARES = (1.0, 0.5, 0.2, 0.05)  # of a step that are tried
NUDGES = (0.02, 0.02, 0.02, 0.02)  # m/s north, east, down and rad/s of yaw, for a derivative

# Rows of what is compared: position, velocity (both north, east, down), roll, pitch, yaw, rates.
ROWS = 12
_ANGLES = slice(6, 9)


class Knob(NamedTuple):
    """One parameter of the fit.

    paths: of the numbers in the airframe that it moves, as "aero.linear_drag.0"; `*` is each of a
    tuple. prior: one standard deviation before any flight; of the logarithm of a factor on them, or
    with `shift` of a sum. unit: of a shift.
    """

    name: str
    paths: tuple[str, ...]
    prior: float
    shift: bool = False
    unit: str = ""

    def turned(self, ship: Airframe, value: float) -> Airframe:
        """Return the ship with its numbers moved by so many deviations of the prior."""
        amount = value * self.prior

        def moved(number: float) -> float:
            return number + amount if self.shift else number * float(np.exp(amount))

        for path in self.paths:
            ship = _edited(ship, path.split("."), moved)
        return ship


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """values: of each knob in deviations of its prior; covariance likewise. rms: of the weighted
    errors of what was to begin with, and of the fit."""

    values: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    rms_before: float
    rms_after: float
    rounds: int


class Windows:
    """Windows of flights, flown together; one column a window.

    sigma: one standard deviation of each of the `ROWS`; infinite where it is not compared. free:
    the start's velocity, yaw rate, position and yaw are fitted with each window.
    """

    def __init__(
        self,
        cuts: Sequence[tuple[FlightLog, Floats]],
        *,
        window_s: float,
        sample_s: float,
        sigma: Sequence[float],
        free: bool,
        step_s: float = MAX_STEP_S,
    ) -> None:
        """cuts: flights, and where in each its windows begin, seconds from its first sample."""
        self._steps = round(window_s / step_s)
        self._every = round(sample_s / step_s)
        self._step_s, self.free = step_s, free
        self._cuts = [(flight, starts_s) for flight, starts_s in cuts if starts_s.size]
        self._rows = [i for i, one in enumerate(sigma) if np.isfinite(one)]
        self._sigma = np.array(sigma)[self._rows, None]
        self.rows = len(self._rows)
        self.count = sum(starts_s.size for _, starts_s in self._cuts)
        self.begun = _joined([_rows_at(flight, starts_s) for flight, starts_s in self._cuts])
        offsets = sample_s * np.arange(1, self._steps // self._every + 1)
        self.flown = np.stack(
            [
                _joined([_rows_at(flight, s + after) for flight, s in self._cuts])
                for after in offsets
            ]
        )
        self._driven: dict[object, list[tuple[Floats, Floats]]] = {}

    def fly(self, ships: Sequence[Airframe], nudges: Sequence[Floats] = ()) -> Floats:
        """Return the rows of each ship at each sample: (ships, samples, ROWS, windows).

        nudges: of the start of each ship: north, east, down in m/s, and of the yaw rate.
        """
        count = self.count
        batch = Batch(airframes=[s for s in ships for _ in range(count)], seed=0, ground=False)
        begun = [state(flight, starts_s) for flight, starts_s in self._cuts]
        rates = np.tile(self.begun[9:12], len(ships))
        velocity = np.tile(_joined([one.velocity_ned_mps for one in begun]), len(ships))
        for i, nudge in enumerate(nudges):
            columns = slice(i * count, (i + 1) * count)
            velocity[:, columns] += nudge[:3, None]
            rates[2, columns] += nudge[3]
        batch.put(
            position_ned_m=np.tile(_joined([one.position_ned_m for one in begun]), len(ships)),
            attitude=np.tile(_joined([one.attitude for one in begun]), len(ships)),
            velocity_ned_mps=velocity,
            rates_body_radps=rates,
        )
        driven = [self._drive(ship) for ship in ships]
        found = []
        for step in range(self._steps):
            now_s = (step + 0.5) * self._step_s
            places = [
                np.searchsorted(flight.t_s, starts_s + now_s, side="right") - 1
                for flight, starts_s in self._cuts
            ]
            thrusts, angles = (
                np.concatenate(
                    [one[k][:, place] for drive in driven
                     for one, place in zip(drive, places, strict=True)],
                    axis=1,
                )
                for k in (0, 1)
            )  # fmt: skip
            batch.push(self._step_s, list(thrusts), list(angles))
            if (step + 1) % self._every == 0:
                rows = (
                    batch.positions_ned_m, batch.velocities_ned_mps,
                    euler_of(batch.attitudes), batch.rates_body_radps,
                )  # fmt: skip
                found.append(np.concatenate(rows).reshape(ROWS, len(ships), count))
        return np.moveaxis(np.array(found), 2, 0)

    def errors(self, ships: Sequence[Airframe], nudges: Sequence[Floats] = ()) -> Floats:
        """Return the weighted errors: (ships, windows, errors)."""
        off = self.fly(ships, nudges) - self.flown
        off[:, :, _ANGLES] = (off[:, :, _ANGLES] + np.pi) % (2.0 * np.pi) - np.pi
        weighed = off[:, :, self._rows] / self._sigma
        rows = np.moveaxis(weighed, 3, 1).reshape(len(ships), self.count, -1)
        return np.asarray(rows / np.sqrt(off.shape[1]))

    def _drive(self, ship: Airframe) -> list[tuple[Floats, Floats]]:
        """Return thrusts and servo angles at each flight's samples, as this ship has them."""
        key = (ship.thruster, ship.servo, ship.battery, ship.mass.moving)
        if key not in self._driven:
            if len(self._driven) > 200:
                self._driven.clear()
            rows = []
            for flight, _ in self._cuts:
                thrusts, angles = inputs(flight, ship)
                rows.append((sagged(flight, ship, thrusts), angles))
            self._driven[key] = rows
        return self._driven[key]

    # --- what a window does not know of its own start --------------------------------------------

    def blind(self, base: Floats, moved: Floats) -> Floats:
        """Return for each window an orthonormal basis of what is not believed: (windows, errors,
        n). base: (windows, errors); moved: with each nudge, (nudges, windows, errors)."""
        samples = self.flown.shape[0]
        constant = np.zeros((len(self._rows), samples, len(self._rows)))
        for k, row in enumerate(self._rows):
            if row in (0, 1, 2, 8):  # position and yaw
                constant[k, :, k] = 1.0
        places = constant.reshape(len(self._rows), -1)
        places = places[places.any(axis=1)].T
        slopes = np.moveaxis(moved - base, 0, 2)
        basis = np.concatenate(
            [slopes, np.broadcast_to(places, (self.count, *places.shape))], axis=2
        )
        return np.asarray(np.linalg.qr(basis)[0])


def fit(
    ship: Airframe,
    windows: Windows,
    knobs: Sequence[Knob],
    *,
    rounds: int = ROUNDS,
    find_noise: bool = False,
    progress: Progress = unseen,
) -> tuple[Airframe, Fitted]:
    """Return the ship that fits, and how well its parameters are known; Gauss-Newton steps.

    find_noise: the windows' sigmas are relative to each other; what they are against the prior
    follows from the errors that are left, of which a window counts as one sample a row.
    """
    count = len(knobs)
    values = np.zeros(count)
    first = 0.0
    scale = 1.0
    for turn in range(rounds):
        progress(turn / rounds)
        base, slopes = _linear(ship, windows, knobs, values)
        if turn == 0:
            first = _rms(base)
        if find_noise:
            scale = max(_rms(base) / windows.rows**0.5, LEAST_NOISE)
        step = -np.linalg.solve(*_normal(slopes / scale, base / scale, values))
        step *= min(1.0, LONGEST / max(np.abs(step).max(), 1e-12))
        tried = [values + share * step for share in SHARES]
        # With the start's part taken out at the base: the same linear space serves all shares.
        costs = [
            float((e**2).sum() / scale**2 + (v**2).sum())
            for e, v in zip(_errors(ship, windows, knobs, tried), tried, strict=True)
        ]
        values = tried[int(np.argmin(costs))]
        if np.abs(step).max() < SETTLED:
            break
    base, slopes = _linear(ship, windows, knobs, values)
    if find_noise:
        scale = max(_rms(base) / windows.rows**0.5, LEAST_NOISE)
    covariance = _sandwich(slopes / scale, base / scale, values)
    return turned(ship, knobs, values), Fitted(
        values=tuple(map(float, values)),
        covariance=tuple(tuple(map(float, row)) for row in covariance),
        rms_before=first,
        rms_after=_rms(base),
        rounds=turn + 1,
    )


def turned(ship: Airframe, knobs: Sequence[Knob], values: Sequence[float] | Floats) -> Airframe:
    for knob, value in zip(knobs, values, strict=True):
        ship = knob.turned(ship, float(value))
    return ship


def _errors(
    ship: Airframe, windows: Windows, knobs: Sequence[Knob], tried: Sequence[Floats]
) -> Floats:
    """Return the errors of each set of values, what is not believed taken out."""
    ships = [turned(ship, knobs, values) for values in tried]
    if not windows.free:
        return windows.errors(ships)
    nudges = np.eye(len(NUDGES)) * NUDGES
    all_ships = [*ships, *([ships[0]] * len(NUDGES))]
    zero = np.zeros(len(NUDGES))
    found = windows.errors(all_ships, [*([zero] * len(ships)), *nudges])
    basis = windows.blind(found[0], found[len(ships) :])
    return np.array([_without(one, basis) for one in found[: len(ships)]])


def _linear(
    ship: Airframe, windows: Windows, knobs: Sequence[Knob], values: Floats
) -> tuple[Floats, Floats]:
    """Return the errors (windows, errors) and their slopes (windows, errors, knobs)."""
    tried = [values, *(values + STEP * row for row in np.eye(len(knobs)))]
    found = _errors(ship, windows, knobs, tried)
    return found[0], np.moveaxis((found[1:] - found[0]) / STEP, 0, 2)


def _without(errors: Floats, basis: Floats) -> Floats:
    inside = np.einsum("wen,we->wn", basis, errors)
    return np.asarray(errors - np.einsum("wen,wn->we", basis, inside))


def _normal(slopes: Floats, errors: Floats, values: Floats) -> tuple[Floats, Floats]:
    count = len(values)
    rows = slopes.reshape(-1, count)
    return rows.T @ rows + np.eye(count), rows.T @ errors.reshape(-1) + values


def _sandwich(slopes: Floats, errors: Floats, values: Floats) -> Floats:
    number, count = len(slopes), len(values)
    inverse = np.linalg.inv(_normal(slopes, errors, values)[0])
    scores = np.einsum("wek,we->wk", slopes, errors) + values / number
    spread = scores.T @ scores * number / max(number - count, 1)
    # The prior is one more measurement, which no window repeats.
    return np.asarray(inverse @ (spread + np.eye(count)) @ inverse)


def _rms(errors: Floats) -> float:
    return float(np.sqrt(np.mean(np.sum(errors**2, axis=1))))


def _rows_at(flight: FlightLog, t_s: Floats) -> Floats:
    one = state(flight, t_s)
    rates = at(flight, flight.rates_body_radps, t_s)
    rows = (one.position_ned_m, one.velocity_ned_mps, euler_of(one.attitude), rates)
    return np.concatenate(rows)


def _joined(rows: Sequence[Floats]) -> Floats:
    return np.concatenate(rows, axis=1)


def _edited(part: Any, path: Sequence[str], moved: Callable[[float], float]) -> Any:
    key, rest = path[0], path[1:]
    if isinstance(part, tuple):
        return tuple(
            (_edited(one, rest, moved) if rest else moved(one)) if key in ("*", str(i)) else one
            for i, one in enumerate(part)
        )
    old = getattr(part, key)
    new = _edited(old, rest, moved) if rest else moved(old)
    return msgspec.structs.replace(part, **{key: new})
