"""RTL: fly back over the pad, not lower than is safe, and LOITER there."""

from typing import Any

from blimp.control.modes.loiter import Loiter
from blimp.control.modes.mode import Ship
from blimp.types import Mode, Setpoint, VehicleState

SAFE_ALTITUDE_M = 2.0  # over heads and chairs on the way home


class ReturnToPad:
    """Climbs on the spot to the safe altitude if it is lower, then flies the leg home."""

    number = Mode.RTL
    note = ""

    def __init__(self, state: VehicleState, *, ship: Ship) -> None:
        self._ship = ship
        north, east, down = state.position_ned_m
        self._down_m = min(down, -min(SAFE_ALTITUDE_M, ship.airframe.limits.max_altitude_m))
        self._rising = down > self._down_m + 0.3
        target = (north, east, self._down_m) if self._rising else (0.0, 0.0, self._down_m)
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
                target_ned_m=(0.0, 0.0, self._down_m),
            )
        return self._leg.update(state, dt_s=dt_s)
