"""VELOCITY: fly a velocity over ground for a while, then LOITER where that ends."""

from math import hypot
from typing import Any

from blimp.control.modes.loiter import Loiter
from blimp.control.modes.mode import Demand, FlightMode, Ship
from blimp.control.modes.sticks import turned
from blimp.rotation import yaw_of
from blimp.types import Mode, Setpoint, Vec3, VehicleState


class Velocity(FlightMode):
    """A demand that ages out by itself: it cannot outlive its `seconds`.

    yaw_rad: the heading to keep; that of now by default. before: the demand that this one
    replaces, whose ramp, height and heading go on: a stream of demands flies like one.
    """

    def __init__(
        self,
        state: VehicleState,
        *,
        ship: Ship,
        velocity_ned_mps: Vec3,
        seconds: float,
        yaw_rad: float | None = None,
        before: Demand | None = None,
    ) -> None:
        self.number = Mode.VELOCITY
        self._ship = ship
        self._velocity = velocity_ned_mps
        self._seconds = seconds
        self._flown_s = 0.0
        self._yaw_rad = yaw_of(state.attitude) if yaw_rad is None else yaw_rad
        self._wish_mps: Vec3 = (0.0, 0.0, 0.0)
        self._down_m = state.position_ned_m[2]
        self._turn_radps = 0.0
        self._after: Loiter | None = None
        self._by_stick = False
        if before is not None:
            self._yaw_rad, self._wish_mps = before.yaw_rad, before.velocity_ned_mps
            self._down_m = before.down_m

    @property
    def demand(self) -> Demand | None:
        if self.done:
            return None
        return Demand(yaw_rad=self._yaw_rad, velocity_ned_mps=self._wish_mps, down_m=self._down_m)

    def steer(
        self, state: VehicleState, velocity_ned_mps: Vec3, *, turn_radps: float, seconds: float
    ) -> None:
        """Take a stick's demand in place of the one before, which may have ended."""
        if self._after is not None:
            self._after, self.number = None, Mode.VELOCITY
            self._yaw_rad = yaw_of(state.attitude)
            self.resume(state)
        self._velocity, self._turn_radps, self._by_stick = velocity_ned_mps, turn_radps, True
        self._seconds = self._flown_s + seconds

    @property
    def done(self) -> bool:
        return self._after is not None

    @property
    def steered(self) -> bool:
        return self._by_stick and not self.done

    @property
    def fraction(self) -> float:
        return min(1.0, self._flown_s / self._seconds) if self._seconds > 0.0 else 1.0

    @property
    def result(self) -> dict[str, Any]:
        return {"seconds": round(self._flown_s, 2)}

    def resume(self, state: VehicleState) -> None:
        self._wish_mps = (0.0, 0.0, 0.0)
        self._down_m = state.position_ned_m[2]
        if self._after is not None:
            self._after.resume(state)

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        if self._after is not None:
            return self._after.update(state, dt_s=dt_s)
        self._flown_s += dt_s
        if self._flown_s >= self._seconds:
            self.number = Mode.LOITER
            self._after = Loiter(state, ship=self._ship)
            return self._after.update(state, dt_s=dt_s)
        limits = self._ship.airframe.limits
        self._wish_mps = ramped(self._wish_mps, self._velocity, limits.acceleration_mps2 * dt_s)
        north, east, down = self._wish_mps
        if self._turn_radps:
            self._yaw_rad = turned(self._yaw_rad, self._turn_radps * dt_s, state)
        self._down_m = max(-self._ship.highest_m, min(0.0, self._down_m + down * dt_s))
        return Setpoint(
            position_ned_m=(None, None, self._down_m),
            velocity_ned_mps=(north, east, down),
            yaw_rad=self._yaw_rad,
            yaw_rate_radps=self._turn_radps,
        )


def ramped(now_mps: Vec3, wish_mps: Vec3, step_mps: float) -> Vec3:
    """Return `now_mps` brought nearer to `wish_mps`, by no more than a step: what thrust can do."""
    n, e, d = (w - v for w, v in zip(wish_mps, now_mps, strict=True))
    change = hypot(n, e, d)
    k = 1.0 if change <= step_mps else step_mps / change
    a, b, c = now_mps
    return (a + k * n, b + k * e, c + k * d)
