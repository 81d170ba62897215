"""No setpoint climbs through the ceiling, be it of a mode, a stick or an order to a motor."""

from math import sqrt

import msgspec

from blimp.control.bounds import bounds
from blimp.control.modes.mode import Ship
from blimp.types import Setpoint, VehicleState

_WAITS_S = 2.0  # orders in MANUAL that climb on into the ceiling wait for so long
_BELOW_M = 0.5  # and so far below it


class Ceiling:
    """Bounds the climb by the room that is left when the thrust follows.

    Of the room the climb leaves `height_p` a second, as the height loop does, and brakes with the
    ship's acceleration above that. Until a demand is followed the ship climbs on: by the climb
    loop's time constant, and by what motors and tilt servos need.
    """

    def __init__(self, *, ship: Ship) -> None:
        airframe = ship.airframe
        self._ship = ship
        self._limits = airframe.limits
        self._height_p = airframe.gains.height_p
        self._fastest_mps = bounds(airframe).climb_mps
        lifting = [t for t in airframe.thruster if t.ways[2]]
        tilts = {t.tilted_by for t in lifting}
        turns_s = [
            (s.max_rad - s.min_rad) / s.slew_radps for s in airframe.servo if s.name in tilts
        ]
        lag_s = max((t.lag_s for t in lifting), default=0.0)
        self._follows_s = 1.0 / airframe.gains.climb_p + lag_s + 0.5 * max(turns_s, default=0.0)
        self._waits_until_s = 0.0

    def under(self, setpoint: Setpoint, state: VehicleState) -> Setpoint:
        """Return the setpoint with a bound on its climb, if the ceiling is near."""
        if setpoint.idle or setpoint.press_n is not None or not state.height_valid:
            return setpoint
        highest_m, climb_mps = self._ship.highest_m, -state.velocity_ned_mps[2]
        room_m = highest_m - state.altitude_m - self._follows_s * max(0.0, climb_mps)
        brake_mps = sqrt(2.0 * self._limits.acceleration_mps2 * max(0.0, room_m))
        most_mps = min(self._height_p * room_m, brake_mps if room_m > 0.0 else 0.0)
        if most_mps > self._fastest_mps:
            return setpoint
        most_mps = max(most_mps, -self._limits.touchdown_mps)
        if setpoint.actuators is not None:
            if any(setpoint.actuators.motors) and climb_mps > most_mps:
                self._waits_until_s = state.t_s + _WAITS_S
            if state.t_s >= self._waits_until_s:
                return setpoint
            place = (None, None, _BELOW_M - highest_m)
            return Setpoint(position_ned_m=place, climb_mps=most_mps)
        n, e, down_m = setpoint.position_ned_m
        if down_m is not None:
            setpoint = msgspec.structs.replace(
                setpoint, position_ned_m=(n, e, max(down_m, -highest_m))
            )
        return msgspec.structs.replace(setpoint, climb_mps=most_mps)
