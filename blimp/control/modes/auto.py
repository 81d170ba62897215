"""AUTO: fly a trajectory, and stay where it ends or where it has run dry."""

from collections.abc import Sequence
from math import hypot, pi
from typing import Any

from blimp.control.modes.mode import FlightMode, Ship
from blimp.control.path import patience
from blimp.control.trajectory import Trajectory, TrajectoryPoint, TrajectorySample
from blimp.rotation import wrap_pi, yaw_of
from blimp.types import Mode, Setpoint, VehicleState

START_M = 2.0  # the ship may be so far from the first point
_LEASH_M = START_M  # so far from the trajectory it goes on as fast ...
_LEASH_END_M = 2.0 * START_M  # ... and here its time stands still
_TURN_RAD = 0.5 * pi  # the same for its nose, which turns the other way beyond half a turn
_TURN_END_RAD = 0.8 * pi  # a nose so far off waits for no more
_BEHIND_S = 2.0  # is worth a word


class Auto(FlightMode):
    """Follows the points of one trajectory, known by `name`; more of them may come.

    Its time begins when its first chunk is taken, and stands still while another mode flies. It
    goes slower for a ship that does not follow, in wind or by what it weighs: limits of speed and
    yaw rate are those of the airframe.
    """

    number = Mode.AUTO
    done = False

    def __init__(
        self,
        state: VehicleState,
        *,
        ship: Ship,
        name: str,
        points: Sequence[TrajectoryPoint],
        last: bool,
    ) -> None:
        """Raises ValueError for a trajectory that does not begin here and now."""
        first = points[0]
        if first.t_s != 0.0:
            raise ValueError(
                f"points: trajectory {name!r} is not under way, so its first point is at 0 s, "
                f"not at {first.t_s:g} s"
            )
        n, e, d = state.position_ned_m
        off_m = hypot(first.north_m - n, first.east_m - e, first.altitude_m + d)
        if off_m > START_M:
            raise ValueError(
                f"points: the first is {off_m:.1f} m from the ship, the limit is {START_M:g} m: "
                "goto there first"
            )
        self.name = name
        self.t_s = 0.0
        self._limits = ship.airframe.limits
        self._trajectory = Trajectory(points)
        self._last = last
        self._yaw_rad = yaw_of(state.attitude)
        self._dry: TrajectorySample | None = None  # where it was when nothing more had come
        self._error_m = off_m
        self._patience = 1.0
        self._behind_s = 0.0

    @property
    def until_s(self) -> float:
        """The time of the last point that has come."""
        return self._trajectory.last.t_s

    @property
    def fraction(self) -> float:
        return 1.0 if self.done else min(0.99, self.t_s / max(1e-6, self.until_s))

    @property
    def note(self) -> str:
        if self._dry is None:
            if self._behind_s < _BEHIND_S:
                return ""
            return f"trajectory {self.name}: the ship cannot follow: {self._behind_s:.0f} s behind"
        return f"trajectory {self.name}: nothing beyond {self.until_s:g} s has come: holding"

    @property
    def result(self) -> dict[str, Any]:
        return {
            "trajectory": self.name,
            "seconds": round(self.t_s, 2),
            "error_m": round(self._error_m, 3),
            "behind_s": round(self._behind_s, 2),
        }

    def end_before(self, name: str, points: Sequence[TrajectoryPoint]) -> TrajectoryPoint | None:
        if name != self.name or (self.done and points[0].t_s == 0.0):
            return None
        return self._trajectory.last

    def extend(self, points: Sequence[TrajectoryPoint], *, last: bool) -> None:
        """Take more points; they replace those from their first on. Raises ValueError."""
        self._trajectory.extend(points, flown_s=self.t_s, limits=self._limits)
        self._last, self._dry, self.done = last, None, False

    def resume(self, state: VehicleState) -> None:
        """Its time goes on; the ship catches up."""

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        self.t_s += self._patience * dt_s
        self._behind_s += (1.0 - self._patience) * dt_s
        trajectory = self._trajectory
        if self.t_s < trajectory.last.t_s:
            wish = trajectory.at(self.t_s)
        elif self._last:
            self.t_s, self.done = trajectory.last.t_s, True
            wish = trajectory.at(self.t_s)
        else:
            if self._dry is None:
                self._dry = trajectory.at(trajectory.last.t_s)
            wish = self._dry
        n, e, d = state.position_ned_m
        wn, we, wd = wish.position_ned_m
        self._error_m = hypot(wn - n, we - e, wd - d)
        yaw_rad = self._yaw_rad if wish.yaw_rad is None else wrap_pi(wish.yaw_rad)
        lag_rad = abs(wrap_pi(yaw_rad - yaw_of(state.attitude)))
        k = self._patience = min(
            patience(self._error_m, _LEASH_M, _LEASH_END_M),
            patience(lag_rad, _TURN_RAD, _TURN_END_RAD),
        )
        vn, ve, vd = wish.velocity_ned_mps
        an, ae, ad = wish.acceleration_ned_mps2
        return Setpoint(
            position_ned_m=wish.position_ned_m,
            velocity_ned_mps=(k * vn, k * ve, k * vd),
            acceleration_ned_mps2=(k * k * an, k * k * ae, k * k * ad),
            yaw_rad=yaw_rad,
            yaw_rate_radps=k * wish.yaw_rate_radps,
        )
