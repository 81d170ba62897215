"""RTL: fly back over the pad or a nearer rally point, not lower than is safe, and LOITER there."""

from typing import Any

from blimp.control.failsafe import Action
from blimp.control.modes.loiter import Loiter
from blimp.control.modes.mode import FlightMode, Ship
from blimp.types import Mode, Setpoint, VehicleState

SAFE_ALTITUDE_M = 2.0  # over heads and chairs on the way home


class ReturnToPad(FlightMode):
    """Climbs on the spot to the safe altitude if it is lower, then flies the leg home.

    That of a rally point is its own if it is higher. A ceiling below it is the safe altitude.
    """

    number = Mode.RTL
    remedy = Action.RETURN
    lifts = True

    def __init__(self, state: VehicleState, *, ship: Ship) -> None:
        self._ship = ship
        north, east, down = state.position_ned_m
        fence, highest_m = ship.area.fence, ship.airframe.limits.max_altitude_m
        home_north, home_east, rally_m = fence.return_place((north, east))
        if fence.ceiling_m is not None:
            highest_m = min(highest_m, fence.ceiling_m)
        self._home = (home_north, home_east)
        self._down_m = max(-highest_m, min(down, -max(SAFE_ALTITUDE_M, rally_m)))
        self._rising = down > self._down_m + 0.3
        target = (north, east, self._down_m) if self._rising else (*self._home, self._down_m)
        self._leg = Loiter(state, ship=ship, target_ned_m=target)

    @property
    def done(self) -> bool:
        return not self._rising and self._leg.done

    @property
    def fraction(self) -> float:
        return 0.0 if self._rising else self._leg.fraction

    @property
    def result(self) -> dict[str, Any]:
        return self._leg.result

    def resume(self, state: VehicleState) -> None:
        self._leg.resume(state)

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        if self._rising and self._leg.done:
            self._rising = False
            self._leg = Loiter(
                state,
                ship=self._ship,
                start_ned_m=self._leg.target_ned_m,
                target_ned_m=(*self._home, self._down_m),
            )
        return self._leg.update(state, dt_s=dt_s)
