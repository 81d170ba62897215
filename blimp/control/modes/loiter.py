"""LOITER: stay at a place; on the way there (goto, takeoff) fly a straight leg."""

from math import hypot, pi
from typing import Any

import msgspec

from blimp.control.modes.mode import FlightMode, Ship
from blimp.control.modes.nose import Nose
from blimp.control.path import Leg, Reference
from blimp.rotation import wrap_pi, yaw_of
from blimp.types import ZERO3, Mode, Setpoint, Vec3, VehicleState
from blimp.vector import dot, minus

ARRIVED_M = 0.4  # of the place: a tag's noise, several times
_ARRIVED_MPS = 0.2  # and no faster
_SETTLED_S = 0.5  # for so long
_TURN_LEG_M = 2.0  # shorter legs are flown with the nose where it is
_TURNED_RAD = 0.5  # so near its course the ship goes
_ARRIVING = 0.97  # of the leg: from here on the nose may leave the course
_TURN_LIMIT_S = 15.0  # or after so long: wind may keep it off
_HEADED_RAD = 0.15  # of the heading that was asked for
_HEADING_S = 20.0  # a ship that the wind turns is not waited for longer


class Loiter(FlightMode):
    """Holds `target_ned_m`, flying there first if it is not here.

    yaw_rad: the heading to keep, and to have before it is done. None turns the nose to the
    course of a leg over 2 m, before it moves off, and keeps it on a shorter one; a ship that is
    weak sideways allows for the wind on the leg and lies into it at rest. speed_mps: over
    ground, its fastest by default. before: of the leg that this one replaces; if it moves nearer
    to the target, this one goes on from it: a place that moves is followed and not begun again.
    """

    number = Mode.LOITER
    lifts = True
    done = False
    target_ned_m: Vec3

    def __init__(
        self,
        state: VehicleState,
        *,
        ship: Ship,
        target_ned_m: Vec3 | None = None,
        start_ned_m: Vec3 | None = None,
        yaw_rad: float | None = None,
        speed_mps: float | None = None,
        before: Reference | None = None,
    ) -> None:
        self._ship = ship
        limits = ship.airframe.limits
        if speed_mps is not None:
            limits = msgspec.structs.replace(limits, speed_mps=min(speed_mps, limits.speed_mps))
        start = state.position_ned_m if start_ned_m is None else start_ned_m
        self.target_ned_m = state.position_ned_m if target_ned_m is None else target_ned_m
        velocity = ZERO3
        if before is not None:
            ahead = minus(self.target_ned_m, before.position_ned_m)
            if dot(before.velocity_ned_mps, ahead) > 0.0:
                start, velocity = before.position_ned_m, before.velocity_ned_mps
        self._yaw_rad = None if yaw_rad is None else wrap_pi(yaw_rad)
        self._nose = Nose(ship=ship, yaw_rad=yaw_of(state.attitude))
        north, east = self.target_ned_m[0] - start[0], self.target_ned_m[1] - start[1]
        distance_m = hypot(north, east)
        cruise = limits.speed_mps / max(distance_m, 1e-6)
        self._course_mps = (cruise * north, cruise * east)
        self._long = distance_m > _TURN_LEG_M
        self._turning_s = 0.0
        self._moving = self._is_turned(state)
        self._leg = Leg(
            start_ned_m=start,
            end_ned_m=self.target_ned_m,
            limits=limits,
            velocity_ned_mps=velocity if self._moving else ZERO3,
        )
        self._reference: Reference | None = None
        self._arriving = False
        self._settled_s = 0.0
        self._error_m = distance_m

    @property
    def reference(self) -> Reference | None:
        return self._reference if self._moving and not self.done else None

    @property
    def fraction(self) -> float:
        return 1.0 if self.done else min(0.99, self._leg.fraction)

    @property
    def result(self) -> dict[str, Any]:
        n, e, d = self.target_ned_m
        return {
            "north_m": round(n, 2),
            "east_m": round(e, 2),
            "altitude_m": round(-d, 2),
            "error_m": round(self._error_m, 3),
        }

    def resume(self, state: VehicleState) -> None:
        self._leg.resume(state.position_ned_m)
        self._moving = False
        self._reference = None
        self._turning_s = 0.0

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        yaw_rad = self._heading(dt_s)
        if not self._moving:
            self._turning_s += dt_s
            self._moving = self._is_turned(state) or self._turning_s > _TURN_LIMIT_S
        # Standing still on the line while turning is a leg that does not advance.
        reference = self._leg.advance(state.position_ned_m, dt_s if self._moving else 0.0)
        self._reference = reference
        self._arriving = self._leg.fraction > _ARRIVING
        self._judge(state, reference.done, dt_s)
        return Setpoint(
            position_ned_m=reference.position_ned_m,
            velocity_ned_mps=reference.velocity_ned_mps,
            acceleration_ned_mps2=reference.acceleration_ned_mps2,
            yaw_rad=yaw_rad,
        )

    def _is_turned(self, state: VehicleState) -> bool:
        return abs(wrap_pi(self._final_heading() - yaw_of(state.attitude))) < _TURNED_RAD

    def _heading(self, dt_s: float) -> float:
        if self._yaw_rad is not None:
            return self._yaw_rad
        if self._long and not self._arriving:
            return self._nose.follow(*self._course_mps, dt_s)
        return self._nose.follow(0.0, 0.0, dt_s)

    def _final_heading(self) -> float:
        """Return the heading to have before a leg moves off."""
        if self._yaw_rad is not None:
            return self._yaw_rad
        return self._nose.wanted(*self._course_mps) if self._long else self._nose.yaw_rad

    def _judge(self, state: VehicleState, reference_done: bool, dt_s: float) -> None:
        n, e, d = state.position_ned_m
        tn, te, td = self.target_ned_m
        self._error_m = hypot(tn - n, te - e, td - d)
        near = reference_done and self._error_m < ARRIVED_M and state.position_valid
        slow = hypot(*state.velocity_ned_mps) < _ARRIVED_MPS
        self._settled_s = self._settled_s + dt_s if near and slow else 0.0
        headed = self._yaw_rad is None or self._settled_s >= _HEADING_S
        if not headed:
            headed = abs(wrap_pi(self._final_heading() - yaw_of(state.attitude))) < _HEADED_RAD
        if self._settled_s >= _SETTLED_S and headed:
            self.done = True


def heading_rad(degrees: float) -> float:
    """Return a compass heading in degrees as radians within [-pi, pi)."""
    return wrap_pi(degrees * pi / 180.0)
