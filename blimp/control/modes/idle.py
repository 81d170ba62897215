"""Motors idle in the air: the last stage, of a ship known to be heavy. It sinks by itself.

Not a mode one can ask for: the failsafe flies it, and telemetry shows LAND.
"""

from typing import Any

from blimp.control.modes.mode import Ship
from blimp.types import Mode, Setpoint, VehicleState

_DOWN_S = 8.0  # low and still for so long: it has landed
_DOWN_M = 0.3  # see above
_STILL_MPS = 0.1  # see above
_RISING_MPS = 0.05  # a light ship rises faster
_RISING_S = 25.0  # what drag leaves of the worst climb is less by then


class Idle:
    """Drives nothing; `landed` once the ship is seen to lie on the ground.

    One that rises on all the same has become light: it is pushed down with what there is.
    """

    number = Mode.LAND
    fraction = 0.0
    done = False

    def __init__(self, *, ship: Ship) -> None:
        self._ship = ship
        self._down_s = 0.0
        self._rising_s = 0.0
        self._light = False
        self.landed = False

    @property
    def note(self) -> str:
        if self._light:
            return "rose with motors idle, so it is light: pushed down; secure it, then send estop"
        return "motors idle: the outputs did not do what was commanded"

    @property
    def result(self) -> dict[str, Any]:
        return {}

    def resume(self, state: VehicleState) -> None:
        """Nothing to take up."""

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        down = (
            state.height_valid
            and state.altitude_m < _DOWN_M
            and abs(state.velocity_ned_mps[2]) < _STILL_MPS
            and not self._ship.doubt()
        )
        self._down_s = self._down_s + dt_s if down else 0.0
        self.landed = self._down_s >= _DOWN_S and not self._light
        rising = state.height_valid and -state.velocity_ned_mps[2] > _RISING_MPS
        self._rising_s = max(0.0, self._rising_s + (dt_s if rising else -dt_s))
        self._light = self._light or self._rising_s > _RISING_S
        if self._light:
            sink_mps = self._ship.airframe.limits.touchdown_mps
            return Setpoint(velocity_ned_mps=(0.0, 0.0, sink_mps))
        return Setpoint(idle=True)
