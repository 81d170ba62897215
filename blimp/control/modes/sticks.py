"""STABILIZE and ALTHOLD: a person pushes the ship; it keeps its heading, or height too.

Both need no position. A demand that has run out is a stick let go: nothing pushes, the heading
stays where it was turned to, and the lift is what the ship is known to weigh.
"""

from blimp.control.modes.mode import FlightMode, Ship
from blimp.control.modes.mode import Stick as Stick
from blimp.rotation import wrap_pi, yaw_of
from blimp.types import Mode, Setpoint, VehicleState

_LEAD_RAD = 0.5  # the heading asked for is at most so far ahead of the nose


class Sticks(FlightMode):
    """number: STABILIZE, or ALTHOLD, in which `up` is a climb and the height stays after it."""

    done = steered = True
    fraction = 1.0

    def __init__(self, state: VehicleState, *, ship: Ship, number: Mode) -> None:
        self.number = number
        self._ship = ship
        self._limits = ship.airframe.limits
        self._stick = Stick()
        self.resume(state)

    def resume(self, state: VehicleState) -> None:
        """Whatever was held before is let go."""
        self._stick = Stick()
        self._yaw_rad = yaw_of(state.attitude)
        self._down_m = state.position_ned_m[2]

    def push(self, stick: Stick) -> bool:
        """Take a demand; it replaces the one before."""
        self._stick = stick
        return True

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        stick, limits = self._stick, self._limits
        if not state.t_s < stick.until_s:
            stick = Stick()
        rate = stick.turn * limits.yaw_rate_radps
        if rate:
            self._yaw_rad = turned(self._yaw_rad, rate * dt_s, state)
        if self.number is Mode.STABILIZE:
            return Setpoint(
                thrust_body=(stick.forward, stick.right, -stick.up),
                yaw_rad=self._yaw_rad,
                yaw_rate_radps=rate,
            )
        down_mps = -stick.up * (limits.climb_mps if stick.up > 0.0 else limits.descent_mps)
        self._down_m = max(-self._ship.highest_m, min(0.0, self._down_m + down_mps * dt_s))
        return Setpoint(
            position_ned_m=(None, None, self._down_m),
            velocity_ned_mps=(0.0, 0.0, down_mps),
            thrust_body=(stick.forward, stick.right, None),
            yaw_rad=self._yaw_rad,
            yaw_rate_radps=rate,
        )


def turned(yaw_rad: float, by_rad: float, state: VehicleState) -> float:
    """Return a heading turned on, but not farther ahead of the nose than a ship can follow."""
    nose = yaw_of(state.attitude)
    ahead = wrap_pi(yaw_rad + by_rad - nose)
    return wrap_pi(nose + max(-_LEAD_RAD, min(_LEAD_RAD, ahead)))
