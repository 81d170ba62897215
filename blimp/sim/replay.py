"""A flight that others flew, flown again by the model: how far off is it after some seconds?

The log is cut into windows that follow each other. In each the model starts from the logged state
and gets the logged inputs, nothing else: open loop. Two predictors that know no physics do the
same: one keeps the velocity and turn rates it has, one stays where it is.
"""

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from blimp.airframe import Airframe
from blimp.errors import ConfigError
from blimp.sim.batch import Batch
from blimp.sim.battery import BatteryPack
from blimp.sim.flight_log import FlightLog, read
from blimp.sim.physics import MAX_STEP_S, rotation_rows
from blimp.sim.servo import ServoArm
from blimp.sim.thruster import SHORTEST_LAG_S, Propeller
from blimp.types import Progress, unseen

Floats = NDArray[np.float64]
LONGEST_GAP_S = 0.25  # between two samples; a window with a longer one is left out
FARTHEST_M = 1000.0
SHORTEST_S, LONGEST_S = 0.05, 60.0  # of a window
# What GT-MAB's logs call full thrust: the published limits of fx, fy and fz, by thruster.
COMMANDED_N = {"left": 0.0175, "right": 0.0175, "front": 0.0175, "rear": 0.0175, "lift": 0.2}


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """Root mean squares at the end of the windows; velocity north, east, down."""

    position_rmse_m: dict[str, float]
    attitude_rmse_deg: dict[str, float]
    velocity_rmse_mps: tuple[float, float, float]


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """acceleration_skill: 1 - error^2 / zero's^2 of one step, 1 is perfect, below 0 is worse than
    to predict none; linear along the body's axes, angular about them."""

    windows: int
    horizon_s: float
    position_rmse_m: dict[str, float]
    attitude_rmse_deg: dict[str, float]
    velocity_rmse_mps: tuple[float, float, float]
    baselines: dict[str, Errors]
    acceleration_skill: dict[str, tuple[float, float, float]]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Of all windows at one time; one column a window."""

    position_ned_m: Floats
    attitude: Floats  # quaternion, w first
    velocity_ned_mps: Floats


def replay(
    airframe: Airframe,
    log: Path,
    *,
    window_s: float = 3.0,
    progress: Progress = unseen,
) -> Replay:
    """Replay a log in windows of `window_s`.

    progress: is called with the share that is flown, 0 to 1. Raises ConfigError if the log is bad,
    too short, or of another ship.
    """
    if not SHORTEST_S <= window_s <= LONGEST_S:
        raise ConfigError(
            f"a window of {window_s!r} s: must be from {SHORTEST_S:g} to {LONGEST_S:g} s"
        )
    flight = read(log)
    thrusts, angles = inputs(flight, airframe)
    thrusts = sagged(flight, airframe, thrusts)
    starts_s = starts(flight, window_s)
    began, ended = state(flight, starts_s), state(flight, starts_s + window_s)
    error = slopes(flight, airframe, thrusts, angles) - flight.accelerations
    flown = fly(airframe, flight, thrusts, angles, starts_s, window_s, progress=progress)
    found = errors(flown, ended)
    rates = at(flight, flight.rates_body_radps, starts_s)
    steady = State(
        position_ned_m=began.position_ned_m + window_s * began.velocity_ned_mps,
        attitude=_turned(began.attitude, rates, window_s),
        velocity_ned_mps=began.velocity_ned_mps,
    )
    still = State(
        position_ned_m=began.position_ned_m,
        attitude=began.attitude,
        velocity_ned_mps=np.zeros_like(began.velocity_ned_mps),
    )
    return Replay(
        windows=int(starts_s.size),
        horizon_s=window_s,
        position_rmse_m=found.position_rmse_m,
        attitude_rmse_deg=found.attitude_rmse_deg,
        velocity_rmse_mps=found.velocity_rmse_mps,
        baselines={
            "constant_velocity": errors(steady, ended),
            "hold_last": errors(still, ended),
        },
        acceleration_skill=_skill(error, flight.accelerations),
    )


def words(found: Replay) -> str:
    """Return what a person reads."""

    def line(name: str, e: Replay | Errors) -> str:
        place = " ".join(f"{x:6.3f}" for x in e.position_rmse_m.values())
        turn = " ".join(f"{x:6.2f}" for x in e.attitude_rmse_deg.values())
        speed = " ".join(f"{x:6.3f}" for x in e.velocity_rmse_mps)
        return f"{name:18} {place} m   {turn} deg   {speed} m/s"

    rows = [line("model", found), *(line(k, v) for k, v in found.baselines.items())]
    linear, angular = (found.acceleration_skill[k] for k in ("linear", "angular"))
    skill = " ".join(f"{x:.2f}" for x in (*linear, *angular))
    return "\n".join(
        [
            f"{found.windows} windows; RMS after {found.horizon_s:g} s open loop: north east down, "
            "roll pitch yaw, velocity",
            *rows,
            f"one step, skill over predicting no acceleration: {skill}",
        ]
    )


def inputs(flight: FlightLog, airframe: Airframe) -> tuple[Floats, Floats]:
    """Return the thrust of each thruster and the angle of each servo, one column a sample.

    Raises ConfigError if the log's inputs cannot be those of this ship.
    """
    names = airframe.thruster_names
    where = f"log {flight.path}: with airframe {airframe.name}"
    samples = flight.t_s.size
    angles = np.array([[servo.neutral_rad] * samples for servo in airframe.servo])
    angles = angles.reshape(len(airframe.servo), samples)
    for part in airframe.mass.moving if flight.moving_m is not None else ():
        travel = np.array(part.travel_m_per_rad)
        offset = flight.moving_m - np.array(part.position_m)[:, None]
        angles[airframe.servo_names.index(part.servo)] = travel @ offset / (travel @ travel)
    if flight.throttles:
        return _driven(flight, airframe, angles)
    if flight.thrusts_n:
        if set(flight.thrusts_n) != set(names):
            raise ConfigError(
                f"{where}: it has thrusts of {', '.join(flight.thrusts_n)}, the ship has "
                f"{', '.join(names)}"
            )
        return np.array([flight.thrusts_n[name] for name in names]), angles
    columns = []
    for thruster in airframe.thruster:
        x, y, _ = thruster.position_m
        ax, ay, az = thruster.axis
        columns.append((ax, ay, az, x * ay - y * ax))
    matrix = np.array(columns).T
    if np.linalg.matrix_rank(matrix) < 4:
        raise ConfigError(
            f"{where}: it has fx, fy, fz and tauz, and {', '.join(names)} cannot make all of them"
        )
    assert flight.wrench is not None
    commanded = np.linalg.pinv(matrix) @ flight.wrench
    # The log has what was commanded, which is more at times than there is.
    rows = []
    for thruster, row in zip(airframe.thruster, commanded, strict=True):
        full_n = COMMANDED_N.get(thruster.name, thruster.max_thrust_n)
        share = np.clip(row / full_n, -1.0, 1.0)
        thrust = share * np.where(share >= 0.0, thruster.max_thrust_n, thruster.reverse_thrust_n)
        rows.append(_lagged(flight.t_s, thrust, thruster.lag_s))
    return np.array(rows), angles


def _lagged(t_s: Floats, values: Floats, lag_s: float) -> Floats:
    """Return what follows `values` with a first-order lag, from the first of them on."""
    shares = 1.0 - np.exp(-np.diff(t_s, prepend=t_s[0]) / max(lag_s, SHORTEST_LAG_S))
    now, found = float(values[0]), []
    for share, value in zip(shares.tolist(), values.tolist(), strict=True):
        now += share * (value - now)
        found.append(now)
    return np.array(found)


def _driven(flight: FlightLog, airframe: Airframe, angles: Floats) -> tuple[Floats, Floats]:
    """Return what the ship's motors and servos make of a log of throttles and servo targets."""
    steps = np.diff(flight.t_s, prepend=flight.t_s[0]).clip(1e-6).tolist()
    thrusts = []
    for thruster in airframe.thruster:
        propeller = Propeller(thruster=thruster)
        asked = flight.throttles[thruster.name].tolist()
        thrusts.append([propeller.step(dt_s, x, 1.0) for dt_s, x in zip(steps, asked, strict=True)])
    for row, servo in zip(angles, airframe.servo, strict=True):
        if servo.name in flight.angles_rad:
            arm, asked = ServoArm(servo=servo), flight.angles_rad[servo.name].tolist()
            row[:] = [arm.step(dt_s, x) for dt_s, x in zip(steps, asked, strict=True)]
    return np.array(thrusts), angles


def sagged(flight: FlightLog, airframe: Airframe, thrusts: Floats) -> Floats:
    """Return what is left of the thrusts as the battery sags, one column a sample.

    A log has the thrust of each throttle at the voltage that the flight begins with. The charge it
    begins with is not in the log: it is taken to be full.
    """
    pack = BatteryPack(battery=airframe.battery)
    full_n = np.array(
        [
            np.where(row >= 0.0, thruster.max_thrust_n, max(thruster.reverse_thrust_n, 1e-9))
            for thruster, row in zip(airframe.thruster, thrusts, strict=True)
        ]
    )
    full_a = np.array([[thruster.max_current_a] for thruster in airframe.thruster])
    current_a = np.sum(full_a * (np.abs(thrusts) / full_n) ** 1.5, axis=0)
    pack.step(1e-6, float(current_a[0]))  # the drop that comes at once is in the log's thrust
    supply = []
    for dt_s, motors_a in zip(np.diff(flight.t_s, append=flight.t_s[-1]), current_a, strict=True):
        supply.append(pack.supply)
        pack.step(float(dt_s), float(motors_a))
    share = np.array(supply) / (1.0 if flight.throttles else supply[0])
    return np.array(
        [
            row * share**thruster.exponent
            for thruster, row in zip(airframe.thruster, thrusts, strict=True)
        ]
    )


def slopes(flight: FlightLog, airframe: Airframe, thrusts: Floats, angles: Floats) -> Floats:
    """Return the model's rates of change of body velocity and rates at every sample, (6, n)."""
    batch = Batch(airframes=[airframe] * flight.t_s.size, seed=0, ground=False)
    attitude = quaternion_of(flight.euler_rad)
    batch.put(
        position_ned_m=flight.position_ned_m,
        attitude=attitude,
        velocity_ned_mps=to_ned(attitude, flight.velocity_body_mps),
        rates_body_radps=flight.rates_body_radps,
    )
    return batch.rates_of_change(list(thrusts), list(angles))


def fly(
    airframe: Airframe,
    flight: FlightLog,
    thrusts: Floats,
    angles: Floats,
    starts_s: Floats,
    window_s: float,
    *,
    progress: Progress = unseen,
) -> State:
    """Fly all windows at once, each with the inputs of its time, and return where they end."""
    batch = Batch(airframes=[airframe] * starts_s.size, seed=0, ground=False)
    began = state(flight, starts_s)
    batch.put(
        position_ned_m=began.position_ned_m,
        attitude=began.attitude,
        velocity_ned_mps=began.velocity_ned_mps,
        rates_body_radps=at(flight, flight.rates_body_radps, starts_s),
    )
    steps = int(np.ceil(window_s / MAX_STEP_S - 1e-9))
    for step in range(steps):
        progress(step / steps)
        now_s = starts_s + (step + 0.5) * window_s / steps
        sample = np.searchsorted(flight.t_s, now_s, side="right") - 1
        batch.push(window_s / steps, list(thrusts[:, sample]), list(angles[:, sample]))
    lost = ~(np.abs(batch.positions_ned_m - began.position_ned_m) < FARTHEST_M).all(axis=0)
    if lost.any():
        raise ConfigError(
            f"log {flight.path}: with airframe {airframe.name}: from {starts_s[lost][0]:.2f} s on "
            f"the model flies more than {FARTHEST_M:g} m in {window_s:g} s: it is unstable there"
        )
    return State(
        position_ned_m=batch.positions_ned_m,
        attitude=batch.attitudes,
        velocity_ned_mps=batch.velocities_ned_mps,
    )


def errors(found: State, true: State) -> Errors:
    """Return how far off all windows are together."""

    def rms(error: Floats) -> tuple[float, ...]:
        return tuple(round(float(x), 5) for x in np.sqrt(np.mean(error**2, axis=1)))

    turn = euler_of(found.attitude) - euler_of(true.attitude)
    turn = (turn + np.pi) % (2.0 * np.pi) - np.pi
    north, east, down = rms(found.velocity_ned_mps - true.velocity_ned_mps)
    return Errors(
        position_rmse_m=dict(
            zip(
                ("north", "east", "down"),
                rms(found.position_ned_m - true.position_ned_m),
                strict=True,
            )
        ),
        attitude_rmse_deg=dict(zip(("roll", "pitch", "yaw"), rms(np.degrees(turn)), strict=True)),
        velocity_rmse_mps=(north, east, down),
    )


def starts(flight: FlightLog, window_s: float) -> Floats:
    """Return when the windows begin: one after the other, without those that have a gap."""
    count = int((flight.t_s[-1] + 1e-9) / window_s)
    if count == 0:
        raise ConfigError(
            f"log {flight.path}: lasts {flight.t_s[-1]:.2f} s, less than a window of {window_s:g} s"
        )
    starts_s = window_s * np.arange(count)
    gaps = np.flatnonzero(np.diff(flight.t_s) > LONGEST_GAP_S)
    for gap in gaps:
        before_s, after_s = flight.t_s[gap], flight.t_s[gap + 1]
        starts_s = starts_s[(starts_s >= after_s) | (starts_s + window_s <= before_s)]
    if not starts_s.size:
        raise ConfigError(
            f"log {flight.path}: no window of {window_s:g} s without a gap of {LONGEST_GAP_S:g} s"
        )
    return np.asarray(starts_s)


def state(flight: FlightLog, t_s: Floats) -> State:
    attitude = quaternion_of(at(flight, np.unwrap(flight.euler_rad, axis=1), t_s))
    return State(
        position_ned_m=at(flight, flight.position_ned_m, t_s),
        attitude=attitude,
        velocity_ned_mps=to_ned(attitude, at(flight, flight.velocity_body_mps, t_s)),
    )


def at(flight: FlightLog, rows: Floats, t_s: Floats) -> Floats:
    """Return the logged values at these times, on straight lines between the samples."""
    return np.array([np.interp(t_s, flight.t_s, row) for row in rows])


def _skill(error: Floats, true: Floats) -> dict[str, tuple[float, float, float]]:
    total = np.sum(true**2, axis=1)
    skill = 1.0 - np.sum(error**2, axis=1) / np.where(total > 0.0, total, np.inf)
    a, b, c, d, e, f = (round(float(x), 4) for x in skill)
    return {"linear": (a, b, c), "angular": (d, e, f)}


# --- rotations of arrays, one column a sample ---------------------------------------------------


def quaternion_of(euler_rad: Floats) -> Floats:
    (cr, cp, cy), (sr, sp, sy) = np.cos(0.5 * euler_rad), np.sin(0.5 * euler_rad)
    return np.array(
        [
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        ]
    )


def euler_of(attitude: Floats) -> Floats:
    w, x, y, z = attitude
    return np.array(
        [
            np.arctan2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y)),
            np.arcsin(np.clip(2.0 * (w * y - z * x), -1.0, 1.0)),
            np.arctan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z)),
        ]
    )


def to_ned(attitude: Floats, body: Floats) -> Floats:
    rows = rotation_rows(tuple(attitude))
    return np.array([a * body[0] + b * body[1] + c * body[2] for a, b, c in rows])


def _turned(attitude: Floats, rates_radps: Floats, seconds: float) -> Floats:
    """Return attitudes after so long at constant body rates."""
    speed = np.sqrt(np.sum(rates_radps**2, axis=0))
    half = 0.5 * speed * seconds
    x, y, z = rates_radps / np.where(speed > 0.0, speed, 1.0) * np.sin(half)
    c = np.cos(half)
    w, i, j, k = attitude
    return np.array(
        [
            c * w - x * i - y * j - z * k,
            c * i + x * w + z * j - y * k,
            c * j + y * w + x * k - z * i,
            c * k + z * w + y * i - x * j,
        ]
    )
