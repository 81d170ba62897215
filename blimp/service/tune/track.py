"""A path flown in Lockstep through the trajectory command, and how far off the ship was.

Sensors, drivers, estimator and commander are those that fly; world and truth are simulated. The
ship of the world may differ from the one that the flight control knows.
"""

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import msgspec

from blimp import airframe as airframes
from blimp.airframe import Airframe
from blimp.errors import MissionError
from blimp.rotation import wrap_pi, yaw_of
from blimp.ship.lockstep import Lockstep
from blimp.ship.meter import Meter
from blimp.sim.atmosphere import GRAVITY_MPS2
from blimp.types import Outcome, OutcomeState, Progress, unseen
from ground_station.trajectory import ReferenceCurve, chunks

FROM_S = 20.0  # errors count from here on: before it the ship is still joining the path
_SETTLE_S = 5.0
_CYCLE_S = 0.01
_FULL = 0.995  # of a throttle
_AHEAD_S = 20.0

PoseSensor = Literal["mocap", "tag", "camera"]


class Plant(msgspec.Struct, frozen=True, kw_only=True):
    """How the ship of the world differs from its airframe file, and the air it flies in.

    heaviness_n: more than the file says; negative is lighter.
    """

    seed: int = 1
    heaviness_n: float = 0.0
    gust_mps: float = 0.0
    drag_scale: float = 1.0
    thrust_scale: float = 1.0

    def of(self, airframe: Airframe) -> Airframe:
        replace = msgspec.structs.replace
        mass, aero = airframe.mass, airframe.aero
        heaviness_kg = mass.heaviness_kg + self.heaviness_n / GRAVITY_MPS2
        k, thrust = self.drag_scale, self.thrust_scale
        return replace(
            airframe,
            mass=replace(mass, heaviness_kg=heaviness_kg),
            aero=replace(
                aero,
                linear_drag=tuple(k * x for x in aero.linear_drag),
                quadratic_drag=tuple(k * x for x in aero.quadratic_drag),
            ),
            thruster=tuple(
                replace(
                    t,
                    max_thrust_n=thrust * t.max_thrust_n,
                    reverse_thrust_n=thrust * t.reverse_thrust_n,
                )
                for t in airframe.thruster
            ),
        )


class Tracking(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of the true ship after the first 20 s: rmse_m north, east, down.

    They are from where the reference was for the ship: it waits for one that cannot follow,
    `behind_s` at the end. estimate_3d_m: how far the ship was from where it believed to be.
    """

    rmse_3d_m: float
    rmse_m: tuple[float, float, float]
    yaw_rmse_deg: float
    step_ms: dict[str, float]
    saturated_fraction: float
    speedup: float
    estimate_3d_m: float
    behind_s: float


def with_pose_sensor(airframe: Airframe, kind: PoseSensor) -> Airframe:
    """Return the ship with this in place of its position tag; a camera must be its own.

    Raises MissionError.
    """
    rows = {device.name: device for device in airframe.device}
    if kind == "camera" and kind in rows:
        return airframe
    if "tag" not in rows:
        raise MissionError(
            f"airframe {airframe.name}: has no device 'tag' to put {kind} in place of"
        )
    chip, rate_hz = {"mocap": ("mocap", 40.0)}.get(kind, ("dwm1001", 10.0))
    row = rows["tag"]
    if row.chip != chip:
        row = msgspec.structs.replace(row, chip=chip, rate_hz=rate_hz, options={})
    devices = tuple(row if device.name == "tag" else device for device in airframe.device)
    return msgspec.structs.replace(airframe, device=devices)


def track(
    curve: ReferenceCurve,
    *,
    airframe: str = "gtmab",
    plant: Plant | None = None,
    pose_sensor: PoseSensor = "mocap",
    log: Path | None = None,
    progress: Progress = unseen,
    prepare: Callable[[Lockstep], object] = lambda _: None,
) -> Tracking:
    """Take off, go to the start of `curve` and fly it. Raises MissionError if it cannot be.

    log: where the flight is recorded; with the ending .csv, reference and true ship alone.
    progress: is called with the share that is flown, 0 to 1. prepare: with the ship on its pad.
    """
    if curve.duration_s <= FROM_S:
        raise MissionError(
            f"the reference lasts {curve.duration_s:g} s, must be more than {FROM_S:g} s: the "
            "first of them do not count"
        )
    plant = plant or Plant()
    frame = with_pose_sensor(airframes.load(airframe), pose_sensor)
    meter = Meter()
    is_table = log is not None and log.suffix == ".csv"
    mcap = None if is_table else log
    with Lockstep(frame, seed=plant.seed, plant=plant.of(frame), meter=meter, log=mcap) as ship:
        prepare(ship)
        _go_to_start(ship, curve, plant.gust_mps)
        meter.clear()
        began_s = perf_counter()
        flight = _Flight(ship, curve)
        flight.fly(progress)
        took_s = perf_counter() - began_s
        if log is not None and is_table:
            _write(log, flight.rows)
        return flight.result(step_ms=meter.step_ms(), speedup=round(curve.duration_s / took_s, 1))


def _go_to_start(ship: Lockstep, curve: ReferenceCurve, gust_mps: float) -> None:
    north_m, east_m, down_m, yaw_rad = curve.at(0.0)[:4]
    _must(ship.command("arm", check=False))
    height_m = max(1.0, -down_m)
    _must(ship.complete("takeoff", within_s=60.0, check=False, altitude_m=height_m))
    ship.begin_gusts(gust_mps)
    yaw_deg = math.degrees(wrap_pi(yaw_rad))
    place = {"north_m": north_m, "east_m": east_m, "altitude_m": max(0.5, -down_m)}
    _must(ship.complete("goto", within_s=120.0, check=False, yaw_deg=yaw_deg, **place))
    ship.step(_SETTLE_S)


def _must(outcome: Outcome) -> Outcome:
    if outcome.state is not OutcomeState.DONE:
        raise MissionError(f"the ship did not do {outcome.id}: {outcome.state} {outcome.reason}")
    return outcome


class _Flight:
    """One flight along the curve, cycle by cycle."""

    def __init__(self, ship: Lockstep, curve: ReferenceCurve) -> None:
        self._ship, self._curve = ship, curve
        self._motors = ship.airframe.thruster_names
        self._parts = chunks("track", curve.points())
        self._full = 0
        self._behind_s = 0.0
        self._misled_m2 = 0.0
        self.rows: list[tuple[float, ...]] = []

    def fly(self, progress: Progress) -> None:
        ship = self._ship
        began_s = ship.now_s
        cycles = round(self._curve.duration_s / _CYCLE_S)
        for cycle in range(cycles):
            t_s = ship.now_s - began_s
            if self._parts and self._parts[0]["points"][0][0] < t_s + _AHEAD_S:
                self._send(self._parts.pop(0))
            else:
                ship.step(_CYCLE_S)
            self._look(ship.now_s - began_s)
            if cycle % 100 != 99:
                continue
            progress(cycle / cycles)
            if ship.snapshot().mode != "AUTO":
                said = "; ".join(ship.snapshot().messages)
                raise MissionError(f"the ship left the path after {t_s:.0f} s: {said}")

    def _send(self, part: dict[str, Any]) -> None:
        outcome = self._ship.command("trajectory", check=False, **part)
        if outcome.state is OutcomeState.REFUSED:
            raise MissionError(f"the ship refused the reference: {outcome.reason}")

    def _look(self, t_s: float) -> None:
        truth, world = self._ship.truth, self._ship.world
        outputs = world.outputs
        if any(abs(outputs[name]) > _FULL for name in self._motors):
            self._full += 1
        self._behind_s = self._ship.mode_result.get("behind_s", self._behind_s)
        reference = self._curve.at(t_s - self._behind_s)[:4]
        if t_s >= FROM_S:
            self._misled_m2 += math.dist(truth.position_ned_m, self._ship.state.position_ned_m) ** 2
        self.rows.append((t_s, *reference, *truth.position_ned_m, yaw_of(truth.attitude)))

    def result(self, *, step_ms: dict[str, float], speedup: float) -> Tracking:
        sums = [0.0] * 4
        count = 0
        for t_s, n, e, d, yaw, *truth in self.rows:
            if t_s < FROM_S:
                continue
            count += 1
            for axis, (wish, found) in enumerate(zip((n, e, d), truth[:3], strict=True)):
                sums[axis] += (wish - found) ** 2
            sums[3] += wrap_pi(yaw - truth[3]) ** 2
        n, e, d, yaw = (math.sqrt(total / count) for total in sums)
        return Tracking(
            rmse_3d_m=round(math.hypot(n, e, d), 5),
            rmse_m=(round(n, 5), round(e, 5), round(d, 5)),
            estimate_3d_m=round(math.sqrt(self._misled_m2 / count), 5),
            behind_s=self._behind_s,
            yaw_rmse_deg=round(math.degrees(yaw), 3),
            step_ms=step_ms,
            saturated_fraction=round(self._full / len(self.rows), 4),
            speedup=speedup,
        )


def _write(path: Path, rows: list[tuple[float, ...]]) -> None:
    """Write reference and truth of every cycle as CSV. Raises MissionError."""
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["time", "x_ref", "y_ref", "z_ref", "psi_ref", "x", "y", "z", "psi"])
            writer.writerows([f"{value:.5f}" for value in row] for row in rows)
    except OSError as error:
        raise MissionError(f"log {path}: {error}") from error


def words(tracking: Tracking) -> str:
    """Return what a person reads."""
    n, e, d = tracking.rmse_m
    late = f", {tracking.behind_s:.1f} s behind" if tracking.behind_s else ""
    return (
        f"off by {tracking.rmse_3d_m:.3f} m RMS (north {n:.3f}, east {e:.3f}, down {d:.3f}){late}, "
        f"its estimate by {tracking.estimate_3d_m:.3f} m, "
        f"heading {tracking.yaw_rmse_deg:.1f} degrees, after {FROM_S:g} s; a motor at its limit "
        f"{100.0 * tracking.saturated_fraction:.1f} % of the time; "
        f"{tracking.step_ms['compute_mean']:.3f} ms a cycle; "
        f"{tracking.speedup:.0f} times real time (simulated)"
    )


def as_json(tracking: Tracking) -> str:
    return json.dumps(msgspec.to_builtins(tracking))
