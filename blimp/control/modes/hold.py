"""HOLD: keep height and heading, brake, then stay where the ship has stopped.

A ship that is weak sideways and is driven off its place gives its heading up: with the nose in the
wind its whole thrust is along the hull.
"""

from math import dist, hypot

from blimp.control.failsafe import Action
from blimp.control.modes.mode import FlightMode, Ship
from blimp.control.modes.nose import Nose
from blimp.rotation import yaw_of
from blimp.types import Mode, Setpoint, VehicleState

_STOPPED_MPS = 0.1  # less is a hover in gusts
_OFF_M, _OFF_S = 0.25, 3.0  # so far from its place for so long: it is driven off
_BRAKE_S = 8.0  # give up braking to a stop: gusts keep a ship moving


class Hold(FlightMode):
    """Needs no position: without one it drifts with the wind, height and heading kept."""

    number = Mode.HOLD
    remedy = Action.HOLD
    done = True
    fraction = 1.0

    def __init__(
        self, state: VehicleState, *, ship: Ship | None = None, yaw_rad: float | None = None
    ) -> None:
        """ship: None keeps the heading whatever comes."""
        self._ship = ship
        self.resume(state)
        if yaw_rad is not None:
            self._yaw_rad = yaw_rad

    @property
    def note(self) -> str:
        if self._nose is None:
            return ""
        return "driven off its place: the nose turns into the wind, where the thrust is"

    def resume(self, state: VehicleState) -> None:
        self._down_m = state.position_ned_m[2]
        self._yaw_rad = yaw_of(state.attitude)
        self._place_m: tuple[float, float] | None = None
        self._braking_s = 0.0
        self._off_s = 0.0
        self._nose: Nose | None = None

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        north, east, _ = state.velocity_ned_mps
        if not state.position_valid:
            self._place_m = None
            self._braking_s = 0.0
        elif self._place_m is None:
            self._braking_s += dt_s
            if hypot(north, east) < _STOPPED_MPS or self._braking_s > _BRAKE_S:
                self._place_m = state.position_ned_m[:2]
        else:
            self._mind_the_place(state, dt_s)
        n, e = self._place_m or (None, None)
        return Setpoint(position_ned_m=(n, e, self._down_m), yaw_rad=self._yaw_rad)

    def _mind_the_place(self, state: VehicleState, dt_s: float) -> None:
        assert self._place_m is not None
        if self._nose is not None:
            self._yaw_rad = self._nose.follow(0.0, 0.0, dt_s)
            return
        off_m = dist(self._place_m, state.position_ned_m[:2])
        self._off_s = self._off_s + dt_s if off_m > _OFF_M else 0.0
        if self._off_s > _OFF_S and self._ship is not None and self._ship.steers:
            self._nose = Nose(ship=self._ship, yaw_rad=self._yaw_rad)
