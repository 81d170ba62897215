"""`blimp identify`: what recorded flights say about the ship's parameters.

The simulator's physics flies short windows of the flight with the recorded outputs, and the
parameters are those with which it stays closest to the recorded positions and turn rates
(`blimp/sim/fit.py`). The estimate that a window begins with is not believed: its velocity comes
partly from the very model that is being fitted.

A flight shows forces over masses only. The scale comes from the ship's mass, which its builder has
weighed, and from the added mass of its shape; the priors say how well those are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from blimp.airframe import Airframe, Thruster, from_table
from blimp.distribution import needing
from blimp.errors import LogError
from blimp.recording.recording import Recording, open_recording
from blimp.rotation import from_euler, rotate_back
from blimp.types import Progress, unseen

if TYPE_CHECKING:
    from blimp.sim.fit import Knob
    from blimp.sim.flight_log import FlightLog
    from blimp.sim.replay import Floats

WINDOW_S = 5.0
MIN_WINDOWS = 8
SAMPLE_S = 0.25
POORLY = 0.5  # a share of the prior: such a parameter was not excited
# One standard deviation of a recorded position, m, yaw, rad, and yaw rate, rad/s: they weigh the
# errors against each other; the intervals come from the errors themselves.
POSITION_M, YAW_RAD, YAW_RATE_RADPS = 0.05, 0.05, 0.02
# Priors: one standard deviation of a logarithm.
WEIGHED = 0.03  # a kitchen scale, and what was taped on after it
SHAPE = 0.2  # added mass of a spheroid for a hull with fins, gondola and seams
GUESSED = 0.7  # a factor of two: drag from tables, thrust from a shop's page
LAG = 1.0
HEAVINESS = 0.03  # of the ship's mass
NORMAL_95 = 1.6448536269514722

_DRAGS = (("surge", 0), ("sway", 1), ("heave", 2), ("yaw", 5))


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter as the flights have it.

    file: its value in the airframe's file; a scale is 1. found, sigma: with one standard deviation;
    low, high: 90 % interval. excited: the flights say something about it; if not, it is unknown,
    and what is found is little more than what was believed before.
    """

    name: str
    unit: str
    file: float
    found: float
    sigma: float
    low: float
    high: float
    excited: bool


class Identified(msgspec.Struct, frozen=True, kw_only=True):
    """rms_before, rms_after: of the weighted errors, with the file's parameters and with these.

    lines: for the airframe's file, of what the flights have shown.
    """

    paths: tuple[str, ...]
    vehicle: str
    simulated: bool
    windows: int
    rms_before: float
    rms_after: float
    parameters: tuple[Parameter, ...]
    lines: tuple[str, ...]


class Stretch(NamedTuple):
    """What of a log has no gap, and where its windows begin."""

    flight: FlightLog
    starts_s: Floats


def identify(
    paths: Sequence[Path],
    *,
    airframe: Airframe | None = None,
    since_s: float = -inf,
    progress: Progress = unseen,
) -> Identified:
    """Return the parameters that fit the flights in these logs. Still air is assumed.

    airframe: where to start; None for that of the logs. since_s: only what was flown from then on,
    by the flight process's clock. progress: is called with the share that is done, 0 to 1. Raises
    LogError if the logs are of several ships, of another one or have too little flight, ConfigError
    without numpy.
    """
    with needing("analysis", "identify needs"):
        import numpy as np

        from blimp.sim.fit import Windows, fit
    ship, flown = airframe, list[Stretch]()
    vehicle, simulated = "", False
    for path in paths:
        with open_recording(path) as log:
            session = log.session
            if vehicle not in ("", session.vehicle):
                raise LogError(
                    f"log {path}: is of {session.vehicle!r}, {paths[0]} of {vehicle!r}: identify "
                    "one ship at a time"
                )
            vehicle, simulated = session.vehicle, simulated or session.simulated
            ship = ship or _airframe(log)
            flown += _flown(log, ship, since_s)
    count = sum(one.starts_s.size for one in flown)
    if ship is None or count < MIN_WINDOWS:
        raise LogError(
            f"log {', '.join(map(str, paths))}: {count} windows of {WINDOW_S:g} s in flight, must "
            f"be at least {MIN_WINDOWS}"
        )
    sigma = [inf] * 12
    sigma[0:3], sigma[8], sigma[11] = [POSITION_M] * 3, YAW_RAD, YAW_RATE_RADPS
    windows = Windows(flown, window_s=WINDOW_S, sample_s=SAMPLE_S, sigma=sigma, free=True)
    turns = knobs(ship)
    _, found = fit(ship, windows, turns, find_noise=True, progress=progress)
    wide = _student(count - 1) / NORMAL_95
    parameters = tuple(
        _parameter(ship, knob, value, wide * sigma)
        for knob, value, sigma in zip(
            turns, found.values, np.sqrt(np.diag(found.covariance)).tolist(), strict=True
        )
    )
    known = [
        (knob, value, one)
        for knob, value, one in zip(turns, found.values, parameters, strict=True)
        if one.excited
    ]
    source = f"{', '.join(path.name for path in paths)}: {count} windows"
    return Identified(
        paths=tuple(map(str, paths)),
        vehicle=vehicle,
        simulated=simulated,
        windows=count,
        rms_before=round(found.rms_before, 3),
        rms_after=round(found.rms_after, 3),
        parameters=parameters,
        lines=tuple(_lines(ship, known, source)),
    )


def _airframe(log: Recording) -> Airframe:
    try:
        return from_table(log.session.airframe)
    except msgspec.ValidationError as error:
        raise LogError(f"log {log.path}: its airframe: {error}; give --airframe") from error


# --- the flight -----------------------------------------------------------------------------


def _flown(log: Recording, ship: Airframe, since_s: float) -> list[Stretch]:
    """Return the log's stretches without a gap, from the first cycle that is armed."""
    names = (*ship.thruster_names, *ship.servo_names)
    missing = [name for name in names if name not in log.session.actuators]
    if missing:
        raise LogError(
            f"log {log.path}: it has no output {', '.join(missing)} of airframe {ship.name}, but "
            f"{', '.join(log.session.actuators)}: is it of another ship?"
        )
    found: list[Stretch] = []
    run: list[dict[str, Any]] = []
    for entry in log.entries(("/snapshot",)):
        one = entry.data
        is_whole = _is_whole(one, names)
        if run and (not is_whole or one["cycle"] != run[-1]["cycle"] + 1):
            found += _stretch(log.path, ship, run, log.session.rate_hz, since_s)
            run = []
        if is_whole and (run or one["armed"]):
            run.append(one)
    return found + _stretch(log.path, ship, run, log.session.rate_hz, since_s)


def _is_whole(one: dict[str, Any], names: Sequence[str]) -> bool:
    """Whether every value that is used is a number: JSON has null for what is none."""
    outputs = [one["actuators"].get(name) for name in names]
    state = [*one["position_ned_m"], *one["velocity_ned_mps"], *one["rates_body_radps"]]
    values = [*state, *one["attitude_rad"].values(), *outputs]
    return all(value is not None and isfinite(value) for value in values)


def _stretch(
    path: Path, ship: Airframe, run: list[dict[str, Any]], rate_hz: float, since_s: float
) -> list[Stretch]:
    import numpy as np

    from blimp.sim.flight_log import FlightLog

    length = round(WINDOW_S * rate_hz)
    starts, free = [], 0
    for number, one in enumerate(run):
        flies = one["armed"] and not one["on_ground"] and not one["idle"] and one["t_s"] >= since_s
        free = free + 1 if flies else 0
        if free > length:
            starts.append(number - length)
            free = 1
    if not starts:
        return []

    def rows(values: list[Any]) -> Floats:
        return np.array(values, dtype=float).T

    euler = [[one["attitude_rad"][name] for name in ("roll", "pitch", "yaw")] for one in run]
    velocity = [
        rotate_back(from_euler(*angles), tuple(one["velocity_ned_mps"]))
        for angles, one in zip(euler, run, strict=True)
    ]
    t_s = np.arange(len(run)) / rate_hz
    flight = FlightLog(
        path=path,
        t_s=t_s,
        position_ned_m=rows([one["position_ned_m"] for one in run]),
        euler_rad=rows(euler),
        velocity_body_mps=rows(velocity),
        rates_body_radps=rows([one["rates_body_radps"] for one in run]),
        accelerations=np.zeros((6, len(run))),
        thrusts_n={},
        wrench=None,
        moving_m=None,
        throttles={n: rows([one["actuators"][n] for one in run]) for n in ship.thruster_names},
        angles_rad={n: rows([one["actuators"][n] for one in run]) for n in ship.servo_names},
    )
    return [Stretch(flight, t_s[starts])]


# --- the parameters -------------------------------------------------------------------------


def knobs(ship: Airframe) -> list[Knob]:
    """Return what is identified of this ship: of what its file has."""
    from blimp.sim.fit import Knob

    found = [Knob("mass", ("hull.volume_m3",), WEIGHED)]
    for axis, rows in thrusts(ship).items():
        forces = [f"thruster.{i}.{key}" for i in rows for key in _FORCES]
        found.append(Knob(f"thrust_{axis}", tuple(forces), GUESSED))
    if any(one.lag_s for one in ship.thruster):
        found.append(Knob("thrust_lag", ("thruster.*.lag_s",), LAG))
    aero = ship.aero
    for name, i in _DRAGS:
        if aero.linear_drag[i] or aero.quadratic_drag[i]:
            found.append(
                Knob(f"drag_{name}", (f"aero.linear_drag.{i}", f"aero.quadratic_drag.{i}"), GUESSED)
            )
    for name, i in _DRAGS[:3]:
        if aero.added_mass_kg[i]:
            found.append(Knob(f"added_mass_{name}", (f"aero.added_mass_kg.{i}",), SHAPE))
    turn = ("mass.inertia_kg_m2.2", "aero.added_inertia_kg_m2.2")
    found.append(Knob("inertia_yaw", turn, SHAPE))
    found.append(Knob("inertia_tilt", ("mass.inertia_kg_m2.0", "mass.inertia_kg_m2.1"), SHAPE))
    found.append(Knob("hang", ("mass.center_of_gravity_m.2",), SHAPE))
    if aero.fin_lift_per_rad:
        found.append(Knob("fin_lift", ("aero.fin_lift_per_rad",), GUESSED))
    heavy_kg = HEAVINESS * ship.mass_kg
    found.append(Knob("heaviness", ("mass.heaviness_kg",), heavy_kg, shift=True, unit="g"))
    return found


_FORCES = ("max_thrust_n", "reverse_thrust_n")


def thrusts(ship: Airframe) -> dict[str, list[int]]:
    """Return the numbers of the thrusters by the axis that each pushes along most, x, y or z.

    One on a tilting servo is of x, along which it pushes at angle 0.
    """

    def axis(one: Thruster) -> str:
        sizes = [abs(part) for part in one.axis]
        return "xyz"[sizes.index(max(sizes))]

    found: dict[str, list[int]] = {}
    for i, one in enumerate(ship.thruster):
        found.setdefault(axis(one), []).append(i)
    return found


def _parameter(ship: Airframe, knob: Knob, value: float, sigma: float) -> Parameter:
    excited = sigma < POORLY
    if knob.shift:
        file, size = 1e3 * ship.mass.heaviness_kg, 1e3 * knob.prior
        return Parameter(
            name=knob.name, unit=knob.unit, file=round(file, 3), sigma=round(size * sigma, 3),
            found=round(file + size * value, 3), excited=excited,
            low=round(file + size * (value - NORMAL_95 * sigma), 3),
            high=round(file + size * (value + NORMAL_95 * sigma), 3),
        )  # fmt: skip
    low, found, high = (
        round(exp(knob.prior * (value + way * NORMAL_95 * sigma)), 3) for way in (-1.0, 0.0, 1.0)
    )
    return Parameter(
        name=knob.name, unit="x file", file=1.0, found=found, low=low, high=high,
        sigma=round(found * knob.prior * sigma, 3), excited=excited,
    )  # fmt: skip


def _student(freedom: int) -> float:
    """Return the 95 % quantile of Student's t (Abramowitz and Stegun, 26.7.5)."""
    z = NORMAL_95
    first = (z**3 + z) / (4.0 * freedom)
    return z + first + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * freedom**2)


def _lines(
    ship: Airframe, known: Sequence[tuple[Knob, float, Parameter]], source: str
) -> Iterator[str]:
    """Yield what the flights have shown, as the airframe's file has it."""
    from blimp.sim.fit import turned

    after = turned(ship, [knob for knob, _, _ in known], [value for _, value, _ in known])

    def why(key: str) -> str:
        notes = [
            f"{one.name} {one.low:g} to {one.high:g} {one.unit}"
            for knob, _, one in known
            if any(path.partition(".")[2].split(".")[-1 if key in _MOTOR else 0] == key
                   for path in knob.paths)
        ]  # fmt: skip
        return f"  # identified, 90 %: {', '.join(notes)}; {source}"

    for part, keys in _KEYS.items():
        rows = []
        for key in keys:
            old, new = getattr(getattr(ship, part), key), getattr(getattr(after, part), key)
            if old != new:
                rows.append(f"{key} = {_shown(new)}{why(key)}")
        if rows:
            yield from (f"[{part}]", *rows)
    for old, new in zip(ship.thruster, after.thruster, strict=True):
        if old != new:
            yield f"[[thruster]]  # {new.name}"
            for key in _MOTOR:
                if getattr(old, key) != getattr(new, key):
                    yield f"{key} = {_shown(getattr(new, key))}{why(key)}"


_KEYS = {
    "hull": ("volume_m3",),
    "mass": ("heaviness_kg", "inertia_kg_m2", "center_of_gravity_m"),
    "aero": (
        *("added_mass_kg", "added_inertia_kg_m2", "linear_drag", "quadratic_drag"),
        "fin_lift_per_rad",
    ),
}
_MOTOR = (*_FORCES, "lag_s")


def _shown(value: float | tuple[float, ...]) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(float(f"{value:.4g}"))
