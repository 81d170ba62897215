"""`blimp tune identify`: what a recorded flight says about the ship's parameters.

Output-error least squares (Jategaonkar, Flight Vehicle System Identification, ch. 4) by multiple
shooting: the simulator's own physics is started from the recorded state every few seconds and
driven by the recorded outputs; the parameters are those with which it stays closest to the recorded
velocity and yaw rate. Each window's mean error is taken out, since it is mostly an error of the
state that the window began with.

The uncertainty is a jackknife over the windows: no model of the noise is needed, which
is correlated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from blimp.airframe import Airframe
from blimp.distribution import needing
from blimp.errors import LogError
from blimp.recording.recording import Recording, open_recording
from blimp.rotation import from_euler
from blimp.sim.physics import Physics
from blimp.types import Progress, Vec3, unseen

if TYPE_CHECKING:
    from numpy.typing import NDArray

WINDOW_S = 2.0
WARM_S = 0.5  # motors and servos turn up before a window
MAX_WINDOWS = 30
MIN_WINDOWS = 8
SAMPLE_S = 0.1
ROUNDS = 4
SETTLED = 0.05  # a step of every parameter below this is the last
STEP = 0.05  # of a parameter, for its derivative
PRIOR = 1.0  # one standard deviation of a parameter before any flight: a factor of e
POORLY = 0.5  # a share of the prior: such a parameter was not excited
SIGMA = (0.03, 0.03, 0.03, 0.01)  # of the recorded velocity, m/s, and yaw rate, rad/s
_HEAVINESS_KG = 0.01  # of one unit of its parameter

Change = Callable[[Airframe, float], Airframe]


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter as the flight has it.

    file: its value in the airframe's file; a scale is 1. found, sigma: with one standard deviation.
    excited: the flight says something about it.
    """

    name: str
    unit: str
    file: float
    found: float
    sigma: float
    excited: bool


class Identified(msgspec.Struct, frozen=True, kw_only=True):
    """rms_before, rms_after: of the weighted errors, with the file's parameters and with these."""

    path: str
    vehicle: str
    simulated: bool
    windows: int
    rms_before: float
    rms_after: float
    parameters: tuple[Parameter, ...]


class _Cycle(NamedTuple):
    number: int
    position: Vec3
    attitude: tuple[float, float, float, float]
    velocity: Vec3
    rates: Vec3
    throttles: tuple[float, ...]
    angles: tuple[float, ...]


Window = Sequence[_Cycle]  # the first ones warm up


def identify(
    path: Path,
    *,
    airframe: Airframe | None = None,
    since_s: float = -inf,
    progress: Progress = unseen,
) -> Identified:
    """Return the parameters that fit the flight in a log. Still air is assumed.

    airframe: where to start; None for that of the log. since_s: only what was flown from then on,
    by the flight process's clock. progress: is called with the share that is done, 0 to 1. Raises
    LogError if the log has too little flight, ConfigError without numpy.
    """
    with needing("analysis", "identify needs"):
        import numpy as np
    with open_recording(path) as log:
        ship = airframe or _airframe(log)
        rate_hz = log.session.rate_hz
        windows = _windows(log, ship, since_s)
        vehicle, simulated = log.session.vehicle, log.session.simulated
    names = [name for name, change in CHANGES.items() if change(ship, 0.1) != ship]
    count = len(names)
    guess = np.zeros(count)

    def errors(values: NDArray[Any]) -> NDArray[Any]:
        return _errors(_changed(ship, names, values.tolist()), windows, rate_hz)

    first = base = errors(guess)
    for number in range(ROUNDS):
        columns = []
        for i in range(count):
            progress((number + i / count) / ROUNDS)
            columns.append((errors(guess + STEP * np.eye(count)[i]) - base) / STEP)
        slopes = np.stack(columns, axis=-1)
        step = _solve(slopes, base, guess)
        guess = guess + np.clip(step, -0.5, 0.5)
        base = errors(guess)
        if np.abs(step).max() < SETTLED:
            break
    spread = _jackknife(slopes, base, guess)
    return Identified(
        path=str(path),
        vehicle=vehicle,
        simulated=simulated,
        windows=len(windows),
        rms_before=round(float(np.sqrt(np.mean(first**2))), 3),
        rms_after=round(float(np.sqrt(np.mean(base**2))), 3),
        parameters=tuple(
            _parameter(ship, name, float(value), float(sigma))
            for name, value, sigma in zip(names, guess, spread, strict=True)
        ),
    )


def _solve(slopes: NDArray[Any], errors: NDArray[Any], guess: NDArray[Any]) -> NDArray[Any]:
    """Return the Gauss-Newton step; slopes: window, error, parameter. The prior is one more row."""
    import numpy as np

    count = len(guess)
    rows = slopes.reshape(-1, count)
    normal = rows.T @ rows + np.eye(count) / PRIOR**2
    gradient = rows.T @ errors.reshape(-1) + guess / PRIOR**2
    return np.asarray(-np.linalg.solve(normal, gradient))


def _jackknife(slopes: NDArray[Any], errors: NDArray[Any], guess: NDArray[Any]) -> NDArray[Any]:
    """Return one standard deviation of each parameter: the spread with each window left out."""
    import numpy as np

    number = len(slopes)
    without = np.array(
        [
            _solve(np.delete(slopes, i, axis=0), np.delete(errors, i, axis=0), guess)
            for i in range(number)
        ]
    )
    spread = np.sqrt((number - 1) / number * ((without - without.mean(axis=0)) ** 2).sum(axis=0))
    count = len(guess)
    rows = slopes.reshape(-1, count)
    known = np.linalg.inv(rows.T @ rows + np.eye(count) / PRIOR**2)
    return np.asarray(np.maximum(spread, np.sqrt(np.diag(known))))


def _airframe(log: Recording) -> Airframe:
    try:
        return msgspec.convert(log.session.airframe, Airframe)
    except msgspec.ValidationError as error:
        raise LogError(f"log {log.path}: its airframe: {error}; give --airframe") from error


# --- the flight -----------------------------------------------------------------------------


def _windows(log: Recording, ship: Airframe, since_s: float) -> list[Window]:
    rate_hz = log.session.rate_hz
    length = round((WARM_S + WINDOW_S) * rate_hz)
    found: list[Window] = []
    run: list[_Cycle] = []
    for entry in log.entries(("/snapshot",)):
        one = entry.data
        flies = one["armed"] and not one["on_ground"] and not one["idle"] and _is_whole(one, ship)
        flies = flies and one["t_s"] >= since_s
        if not flies or (run and one["cycle"] != run[-1].number + 1):
            run = []
        if flies:
            run.append(_cycle(one, ship))
        if len(run) == length:
            found.append(run)
            run = run[-round(WARM_S * rate_hz) :]
    if len(found) < MIN_WINDOWS:
        raise LogError(
            f"log {log.path}: {len(found)} windows of {WINDOW_S:g} s in flight, must be at least "
            f"{MIN_WINDOWS}"
        )
    count = min(MAX_WINDOWS, len(found))
    return [found[k * len(found) // count] for k in range(count)]


def _is_whole(one: dict[str, Any], ship: Airframe) -> bool:
    """Whether every value that is used is a number: JSON has null for what is none."""
    outputs = [one["actuators"].get(name) for name in (*ship.thruster_names, *ship.servo_names)]
    state = [*one["position_ned_m"], *one["velocity_ned_mps"], *one["rates_body_radps"]]
    values = [*state, *one["attitude_rad"].values(), *outputs]
    return all(value is not None and isfinite(value) for value in values)


def _cycle(one: dict[str, Any], ship: Airframe) -> _Cycle:
    angles, outputs = one["attitude_rad"], one["actuators"]
    return _Cycle(
        number=one["cycle"],
        position=tuple(one["position_ned_m"]),
        attitude=from_euler(angles["roll"], angles["pitch"], angles["yaw"]),
        velocity=tuple(one["velocity_ned_mps"]),
        rates=tuple(one["rates_body_radps"]),
        throttles=tuple(outputs[name] for name in ship.thruster_names),
        angles=tuple(outputs[name] for name in ship.servo_names),
    )


def _errors(ship: Airframe, windows: Sequence[Window], rate_hz: float) -> NDArray[Any]:
    """Return the weighted errors of each window, its mean taken out: window, error."""
    import numpy as np

    warm = round(WARM_S * rate_hz)
    every = max(1, round(SAMPLE_S * rate_hz))
    substeps = max(1, -(-round(1e6 / rate_hz) // 10_000))  # of 10 ms at most
    dt_s = 1.0 / rate_hz / substeps
    found = []
    for window in windows:
        physics = Physics(airframe=ship, seed=1)
        for cycle in window[:warm]:
            physics.step(dt_s, cycle.throttles, cycle.angles)
        start = window[warm]
        physics.place(
            position_ned_m=start.position,
            attitude=start.attitude,
            velocity_ned_mps=start.velocity,
            rates_body_radps=start.rates,
        )
        rows = []
        for number, (cycle, after) in enumerate(
            zip(window[warm:], window[warm + 1 :], strict=False), start=1
        ):
            for _ in range(substeps):
                physics.step(dt_s, cycle.throttles, cycle.angles)
            if number % every == 0:
                state = physics.state
                modelled = (*state.velocity_ned_mps, state.rates_body_radps[2])
                flown = (*after.velocity, after.rates[2])
                rows.append([(a - b) / s for a, b, s in zip(modelled, flown, SIGMA, strict=True)])
        errors = np.array(rows)
        found.append((errors - errors.mean(axis=0)).reshape(-1))
    return np.array(found)


# --- the parameters -------------------------------------------------------------------------


def _aero(name: str, axes: Sequence[int]) -> Change:
    def change(ship: Airframe, value: float) -> Airframe:
        factor = exp(value)
        old = getattr(ship.aero, name)
        new = tuple(x * factor if i in axes else x for i, x in enumerate(old))
        return _with_aero(ship, **{name: new})

    return change


def _drag(axis: int) -> Change:
    linear, quadratic = _aero("linear_drag", (axis,)), _aero("quadratic_drag", (axis,))
    return lambda ship, value: quadratic(linear(ship, value), value)


def _fin(ship: Airframe, value: float) -> Airframe:
    return _with_aero(ship, fin_lift_per_rad=ship.aero.fin_lift_per_rad * exp(value))


def _yaw_inertia(ship: Airframe, value: float) -> Airframe:
    x, y, z = ship.mass.inertia_kg_m2
    inertia = (x, y, z * exp(value))
    mass = msgspec.structs.replace(ship.mass, inertia_kg_m2=inertia)
    scaled = _aero("added_inertia_kg_m2", (2,))(ship, value)
    return msgspec.structs.replace(scaled, mass=mass)


def _thrust(ship: Airframe, value: float) -> Airframe:
    factor = exp(value)
    thrusters = tuple(
        msgspec.structs.replace(
            one,
            max_thrust_n=one.max_thrust_n * factor,
            reverse_thrust_n=one.reverse_thrust_n * factor,
        )
        for one in ship.thruster
    )
    return msgspec.structs.replace(ship, thruster=thrusters)


def _heaviness(ship: Airframe, value: float) -> Airframe:
    heavier_kg = ship.mass.heaviness_kg + _HEAVINESS_KG * value
    mass = msgspec.structs.replace(ship.mass, heaviness_kg=heavier_kg)
    return msgspec.structs.replace(ship, mass=mass)


def _with_aero(ship: Airframe, **fields: Any) -> Airframe:
    return msgspec.structs.replace(ship, aero=msgspec.structs.replace(ship.aero, **fields))


# Each a logarithm of the factor on the file's value, but for the weight.
CHANGES: dict[str, Change] = {
    "thrust": _thrust,
    "drag_surge": _drag(0),
    "drag_sway": _drag(1),
    "drag_heave": _drag(2),
    "drag_yaw": _drag(5),
    "added_mass_surge": _aero("added_mass_kg", (0,)),
    "added_mass_sway": _aero("added_mass_kg", (1,)),
    "added_mass_heave": _aero("added_mass_kg", (2,)),
    "inertia_yaw": _yaw_inertia,
    "fin_lift": _fin,
    "heaviness": _heaviness,
}


def _changed(ship: Airframe, names: Sequence[str], values: Sequence[float]) -> Airframe:
    for name, value in zip(names, values, strict=True):
        ship = CHANGES[name](ship, float(value))
    return ship


def _parameter(ship: Airframe, name: str, value: float, sigma: float) -> Parameter:
    excited = sigma < POORLY * PRIOR
    if name == "heaviness":
        file = 1e3 * ship.mass.heaviness_kg
        unit_g = 1e3 * _HEAVINESS_KG
        return Parameter(
            name=name, unit="g", file=round(file, 2), found=round(file + unit_g * value, 2),
            sigma=round(unit_g * sigma, 2), excited=excited,
        )  # fmt: skip
    factor = exp(value)
    return Parameter(
        name=name, unit="x file", file=1.0, found=round(factor, 3),
        sigma=round(factor * min(sigma, 10.0), 3), excited=excited,
    )  # fmt: skip
