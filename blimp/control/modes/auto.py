"""AUTO: fly a trajectory, and stay where it ends or where it has run dry."""

from collections.abc import Sequence
from math import hypot
from typing import Any

from blimp.control.modes.mode import Ship
from blimp.control.trajectory import Trajectory, TrajectoryPoint, TrajectorySample
from blimp.rotation import wrap_pi, yaw_of
from blimp.types import Mode, Setpoint, VehicleState

START_M = 2.0  # the ship may be so far from the first point


class Auto:
    """Follows the points of one trajectory, known by `name`; more of them may come.

    Its time begins when its first chunk is taken, and stands still while another mode flies.
    """

    number = Mode.AUTO

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
        self.done = False

    @property
    def end(self) -> TrajectoryPoint:
        """The last point that has come."""
        return self._trajectory.last

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
            return ""
        return f"trajectory {self.name}: nothing beyond {self.until_s:g} s has come: holding"

    @property
    def result(self) -> dict[str, Any]:
        return {
            "trajectory": self.name,
            "seconds": round(self.t_s, 2),
            "error_m": round(self._error_m, 3),
        }

    def takes(self, name: str, points: Sequence[TrajectoryPoint]) -> bool:
        """Whether `points` go on with this trajectory; else they begin another one."""
        return name == self.name and not (self.done and points[0].t_s == 0.0)

    def extend(self, points: Sequence[TrajectoryPoint], *, last: bool) -> None:
        """Take more points; they replace those from their first on. Raises ValueError."""
        self._trajectory.extend(points, flown_s=self.t_s, limits=self._limits)
        self._last, self._dry, self.done = last, None, False

    def resume(self, state: VehicleState) -> None:
        """Its time goes on; the ship catches up."""

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        self.t_s += dt_s
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
        return Setpoint(
            position_ned_m=wish.position_ned_m,
            velocity_ned_mps=wish.velocity_ned_mps,
            acceleration_ned_mps2=wish.acceleration_ned_mps2,
            yaw_rad=yaw_rad,
            yaw_rate_radps=wish.yaw_rate_radps,
        )
