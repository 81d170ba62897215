"""HOLD: keep height and heading, brake, then stay where the ship has stopped."""

from math import hypot
from typing import Any

from blimp.rotation import yaw_of
from blimp.types import Mode, Setpoint, VehicleState

_STOPPED_MPS = 0.1
_BRAKE_S = 8.0  # give up braking to a stop: gusts keep a ship moving


class Hold:
    """Needs no position: without one it drifts with the wind, height and heading kept."""

    number = Mode.HOLD
    done = True
    fraction = 1.0
    note = ""

    def __init__(self, state: VehicleState, *, yaw_rad: float | None = None) -> None:
        self.resume(state)
        if yaw_rad is not None:
            self._yaw_rad = yaw_rad

    @property
    def result(self) -> dict[str, Any]:
        return {}

    def resume(self, state: VehicleState) -> None:
        self._down_m = state.position_ned_m[2]
        self._yaw_rad = yaw_of(state.attitude)
        self._place_m: tuple[float, float] | None = None
        self._braking_s = 0.0

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        north, east, _ = state.velocity_ned_mps
        if not state.position_valid:
            self._place_m = None
            self._braking_s = 0.0
        elif self._place_m is None:
            self._braking_s += dt_s
            if hypot(north, east) < _STOPPED_MPS or self._braking_s > _BRAKE_S:
                self._place_m = state.position_ned_m[:2]
        n, e = self._place_m or (None, None)
        return Setpoint(position_ned_m=(n, e, self._down_m), yaw_rad=self._yaw_rad)
