"""No stick and no velocity flies a ship over the side of its fence: it is held there instead."""

from math import cos, hypot, sin

import msgspec

from blimp.control.modes.mode import Ship
from blimp.geofence import KEEP_M, Place
from blimp.rotation import yaw_of
from blimp.types import Setpoint, VehicleState

_INWARD_M = 0.1  # a wish that leads so far from the line, a metre on, leads inward


class Sides:
    """Replaces a wish without a place by the place where the ship is, if it could not stop inside.

    The way to a stop is what it flies until thrust follows, by the speed loop's time constant and
    the motors', and what it brakes in after that. It is held until a wish leads inward.
    """

    def __init__(self, *, ship: Ship) -> None:
        airframe = ship.airframe
        self._ship = ship
        self._brakes_mps2 = airframe.limits.acceleration_mps2
        lag_s = max(t.lag_s for t in airframe.thruster)
        turns_s = 1.0 / airframe.gains.yaw_p if ship.steers else 0.0  # it brakes by its nose
        self._follows_s = 1.0 / airframe.gains.velocity_p + lag_s + turns_s
        self._held: Place | None = None
        self._free: tuple[Place, float] | None = None  # a place, and how far every line is

    @property
    def holds(self) -> bool:
        return self._held is not None

    def within(self, setpoint: Setpoint, state: VehicleState, *, steered: bool) -> Setpoint:
        """Return the setpoint, with a place instead of a wish that leads over the line.

        steered: see `FlightMode`.
        """
        if not (steered and self._ship.area.fence.zones and state.position_valid):
            self._held = self._free = None
            return setpoint
        here = state.position_ned_m[:2]
        if self._held is None:
            self._held = self._stop(here, state)
        elif self._leads_inward(here, _wish(setpoint, state)):
            self._held = None
        if self._held is None:
            return setpoint
        return msgspec.structs.replace(
            setpoint,
            position_ned_m=(*self._held, setpoint.position_ned_m[2]),
            velocity_ned_mps=(0.0, 0.0, setpoint.velocity_ned_mps[2]),
            thrust_body=(None, None, setpoint.thrust_body[2]),
        )

    def _stop(self, here: Place, state: VehicleState) -> Place | None:
        """Return where to stop, if it cannot stop inside by itself.

        Far from every line nothing is computed.
        """
        north_mps, east_mps, _ = state.velocity_ned_mps
        speed_mps = hypot(north_mps, east_mps)
        stops_s = self._follows_s + 0.5 * speed_mps / self._brakes_mps2
        if self._free is not None:
            (n, e), free_m = self._free
            if hypot(here[0] - n, here[1] - e) + speed_mps * stops_s + KEEP_M < free_m:
                return None
        fence = self._ship.area.fence
        self._free = here, fence.clearance_m(here)
        for tenths in range(10, 0, -1):
            flown_s = 0.1 * tenths * stops_s
            end = (here[0] + flown_s * north_mps, here[1] + flown_s * east_mps)
            if not fence.line_problem(here, end):
                return None if tenths == 10 else end
        return here

    def _leads_inward(self, here: Place, wish: tuple[float, float]) -> bool:
        size = hypot(*wish)
        if size == 0.0:
            return False
        there = (here[0] + wish[0] / size, here[1] + wish[1] / size)
        fence = self._ship.area.fence
        return fence.clearance_m(there) > fence.clearance_m(here) + _INWARD_M


def _wish(setpoint: Setpoint, state: VehicleState) -> tuple[float, float]:
    """Return which way is asked for, north and east; zeros for none."""
    forward, right, _ = setpoint.thrust_body
    if forward is None or right is None:
        return setpoint.velocity_ned_mps[:2]
    yaw = yaw_of(state.attitude)
    return forward * cos(yaw) - right * sin(yaw), forward * sin(yaw) + right * cos(yaw)
