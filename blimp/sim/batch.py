"""Many ships stepped together: the equations of `Physics`, with arrays in place of its floats.

For Monte Carlo, identification and replay. A step costs some hundred numpy calls for all ships
together, so that thousands of them cost little more than one. Needs numpy.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from blimp.airframe import Airframe
from blimp.sim.arithmetic import Arithmetic
from blimp.sim.ground import AIRBORNE_M, Ground, Rows
from blimp.sim.physics import MAX_STEP_S, Physics, rotation_rows
from blimp.sim.wind import Wind
from blimp.types import Vec3

Floats = NDArray[np.float64]


def _clamp(value: Any, low: Any, high: Any) -> Any:
    return np.minimum(np.maximum(value, low), high)


ARRAYS = Arithmetic(
    sqrt=np.sqrt,
    exp=np.exp,
    sin=np.sin,
    cos=np.cos,
    log=np.log,
    atan2=np.arctan2,
    clamp=_clamp,
    choose=np.where,
    interpolate=np.interp,
)


class Batch(Physics):
    """Ships of one kind, each in air of its own, all at rest on their pads at time 0.

    airframes: one for each ship. They may differ in their numbers, not in what they consist of.
    seed: of the winds. Raises ValueError if the ships are not of one kind.

    `step` takes one row a thruster or servo: arrays of one number a ship, or a number for all.
    """

    def __init__(
        self,
        *,
        airframes: Sequence[Airframe],
        seed: int,
        wind_mps: float = 0.0,
        ground: bool = True,
        source: Any = None,
    ) -> None:
        """ground: False leaves it out, for ships that are put into the air.

        source: of the winds' random numbers, arrays of one a ship; numpy's by default.
        """
        if not airframes:
            raise ValueError("a batch needs at least one ship")
        self.ships = len(airframes)
        airframe = _together(list(airframes))
        wind = Wind(
            seed=seed,
            mean_mps=wind_mps,
            span_m=airframe.hull.length_m,
            arithmetic=ARRAYS,
            source=source or _Source(seed, self.ships),
        )
        self._build(airframe, ARRAYS, wind, Grounds(airframes) if ground else NoGround())
        self._attitude = self._spread(self._attitude)
        self._position = self._spread(self._position)
        self._velocity_air = self._spread(self._velocity_air)
        self._rates = self._spread(self._rates)

    def _spread(self, values: Any) -> Any:
        """Return one array a component, one number a ship."""
        return tuple(np.array(np.broadcast_to(row, (self.ships,)), dtype=float) for row in values)

    def put(
        self,
        *,
        position_ned_m: ArrayLike = ((0.0,), (0.0,), (0.0,)),
        attitude: ArrayLike = ((1.0,), (0.0,), (0.0,), (0.0,)),
        velocity_ned_mps: ArrayLike = ((0.0,), (0.0,), (0.0,)),
        rates_body_radps: ArrayLike = ((0.0,), (0.0,), (0.0,)),
    ) -> None:
        """Put the ships somewhere: one row a component, one column a ship or one for all."""

        def rows(values: ArrayLike, count: int) -> Any:
            found = np.asarray(values, dtype=float)
            if found.shape not in ((count, 1), (count, self.ships)) or not np.isfinite(found).all():
                raise ValueError(f"must be {count} finite rows of 1 or {self.ships}: {found.shape}")
            return self._spread(found)

        self.place(
            position_ned_m=rows(position_ned_m, 3),
            attitude=rows(attitude, 4),
            velocity_ned_mps=rows(velocity_ned_mps, 3),
            rates_body_radps=rows(rates_body_radps, 3),
        )

    def step(self, dt_s: float, throttles: Sequence[Any], servo_targets_rad: Sequence[Any]) -> None:
        """Advance by `dt_s`, see `Physics.step`; one row a thruster or servo."""
        super().step(dt_s, throttles, servo_targets_rad)

    def push(
        self, dt_s: float, thrusts_n: Sequence[ArrayLike], angles_rad: Sequence[ArrayLike]
    ) -> None:
        """Advance by `dt_s` with these thrusts and servo angles, whatever motors and servos do.

        For a log that has measured them. Raises ValueError as `step` does.
        """
        self._check(dt_s, thrusts_n, angles_rad)
        thrusts: list[Any] = [np.asarray(row, dtype=float) for row in thrusts_n]
        angles: list[Any] = [np.asarray(row, dtype=float) for row in angles_rad]
        self._fly(dt_s, thrusts, angles)

    def rates_of_change(
        self, thrusts_n: Sequence[ArrayLike], angles_rad: Sequence[ArrayLike]
    ) -> Floats:
        """Return the rates of change of body velocity and body rates, (6, ships), where they are.

        With these thrusts, in still air and clear of the ground; nothing moves.
        """
        thrusts: list[Any] = [np.asarray(row, dtype=float) for row in thrusts_n]
        angles: list[Any] = [np.asarray(row, dtype=float) for row in angles_rad]
        if self._moving and self._moved(angles):
            self._carry(angles)
        rows = rotation_rows(self._attitude)
        velocity, rates = self._velocity_air, self._rates
        wrench = self._wrench(rows, velocity, rates, angles, *self._pull(thrusts, angles))
        zero = (0.0, 0.0, 0.0)
        found = self._body.accelerations(velocity, rates, wrench[:3], wrench[3:], zero)
        return np.stack(self._spread(found))

    @property
    def positions_ned_m(self) -> Floats:
        """(3, ships)."""
        return np.stack(self._position)

    @property
    def attitudes(self) -> Floats:
        """Quaternions, w first: (4, ships)."""
        return np.stack(self._attitude)

    @property
    def velocities_ned_mps(self) -> Floats:
        return np.stack(self._velocity_ned(rotation_rows(self._attitude)))

    @property
    def rates_body_radps(self) -> Floats:
        """(3, ships)."""
        return np.stack(self._rates)

    def _moved(self, angles: Sequence[Any]) -> bool:
        places = (angles[i] for i in self._moving)
        return any(not np.array_equal(a, b) for a, b in zip(self._places, places, strict=True))

    def _check(
        self, dt_s: float, throttles: Sequence[Any], servo_targets_rad: Sequence[Any]
    ) -> None:
        if not 0.0 < dt_s <= MAX_STEP_S:
            raise ValueError(f"dt_s is {dt_s!r}, must be above 0 and at most {MAX_STEP_S}")
        frame = self._airframe
        counts = (len(throttles), len(servo_targets_rad))
        if counts != (len(frame.thruster), len(frame.servo)):
            raise ValueError(
                f"{frame.name} has {len(frame.thruster)} thrusters and {len(frame.servo)} servos: "
                f"got {counts[0]} and {counts[1]} rows"
            )
        for name, row in zip(
            frame.thruster_names + frame.servo_names, (*throttles, *servo_targets_rad), strict=True
        ):
            if np.shape(row) not in ((), (self.ships,)) or not np.all(np.isfinite(row)):
                raise ValueError(f"{name!r} needs {self.ships} finite numbers, or one for all")


class Grounds:
    """The ground of each ship. Contact is rare and full of branches, so it is that of one ship."""

    def __init__(self, airframes: Sequence[Airframe]) -> None:
        one = Ground(airframe=airframes[0])
        alike = all(airframe is airframes[0] for airframe in airframes)
        self._airframes = airframes
        self._grounds: dict[int, Ground] = {}
        grounds = [one] * len(airframes) if alike else [Ground(airframe=a) for a in airframes]
        self._far_m = np.array([g.reach_m + AIRBORNE_M for g in grounds])
        self._stand_m = np.array([g.stand_m for g in grounds])
        self._near = np.ones(len(airframes), dtype=bool)

    def _of(self, ship: int) -> Ground:
        if ship not in self._grounds:
            self._grounds[ship] = Ground(airframe=self._airframes[ship])
        return self._grounds[ship]

    def stand(self, heavy_n: Any) -> Floats:
        """Return how deep each ship stands, see `Ground.stand`."""
        heavies = np.broadcast_to(heavy_n, self._stand_m.shape)
        return np.array([self._of(i).stand(float(heavy)) for i, heavy in enumerate(heavies)])

    def release(self) -> None:
        for ground in self._grounds.values():
            ground.release()

    def wrench(
        self, position: Any, rows: Any, velocity: Any, rates: Any
    ) -> tuple[Vec3, Vec3] | None:
        """Return force and torque on the ships, body axes; None if none is near the ground."""
        near = self._stand_m - position[2] <= self._far_m
        asked = np.flatnonzero(near | self._near)  # also those that have just left it
        self._near = near
        if not asked.size:
            return None
        force, torque = np.zeros((3, near.size)), np.zeros((3, near.size))
        for i in map(int, asked):
            turn: Rows = tuple(tuple(float(x[i]) for x in row) for row in rows)  # type: ignore[assignment]
            at, speed, turning = (
                (float(a[i]), float(b[i]), float(c[i])) for a, b, c in (position, velocity, rates)
            )
            contact = self._of(i).wrench(at, turn, speed, turning)
            if contact is not None:
                force[:, i], torque[:, i] = contact
        return tuple(force), tuple(torque)


class NoGround:
    """In its place, where nothing ever touches it."""

    def stand(self, heavy_n: Any) -> float:  # noqa: ARG002
        return 0.0

    def release(self) -> None:
        """Nothing is held."""

    def wrench(self, *_: Any) -> None:
        return None


class _Source:
    """Random numbers for all ships: what `Wind` asks of `random.Random`."""

    def __init__(self, seed: int, ships: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._ships = ships

    def uniform(self, low: float, high: float) -> Floats:
        return self._generator.uniform(low, high, self._ships)

    def gauss(self, mean: float, sigma: float) -> Floats:
        return mean + sigma * self._generator.standard_normal(self._ships)


def _together(values: list[Any]) -> Any:
    """Return one airframe, or part of one, with an array wherever the numbers differ."""
    first = values[0]
    if all(value is first for value in values):
        return first
    if isinstance(first, msgspec.Struct):
        names = first.__struct_fields__
        return msgspec.structs.replace(
            first, **{name: _together([getattr(v, name) for v in values]) for name in names}
        )
    if isinstance(first, tuple) and all(len(value) == len(first) for value in values):
        return tuple(_together(list(column)) for column in zip(*values, strict=True))
    if all(value == first for value in values):
        return first
    if isinstance(first, float | int):
        return np.array(values, dtype=float)
    raise ValueError(f"the ships of a batch must be of one kind: {first!r} is not {values[-1]!r}")
