"""Level descent, blind: what is left when the attitude is not known.

A blimp hangs level by itself, so the vertical thrusters need no attitude. Not a mode one
can ask for: the failsafe flies it, and telemetry shows LAND.
"""

from typing import Any

from blimp.control.modes.mode import Ship
from blimp.types import Mode, Setpoint, VehicleState


class Descend:
    """Sinks at the touchdown speed without horizontal or yaw control."""

    number = Mode.LAND
    fraction = 0.0
    done = False
    note = ""

    def __init__(self, *, ship: Ship) -> None:
        self._sink_mps = ship.airframe.limits.touchdown_mps

    @property
    def result(self) -> dict[str, Any]:
        return {}

    def resume(self, state: VehicleState) -> None:
        """Nothing to take up."""

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:  # noqa: ARG002
        return Setpoint(velocity_ned_mps=(0.0, 0.0, self._sink_mps))
