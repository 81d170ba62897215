"""Whether motors drive a ship down that is slow by its weight."""

from blimp.control.constants import AIR_DENSITY_KGM3, GRAVITY_MPS2
from blimp.control.modes.mode import Ship
from blimp.types import VehicleState

_SURE = 0.001  # of the displaced mass: the estimate of heaviness is better than that
_FAST = 1.5  # times what it is asked to sink at


class DrivenDown:
    """Such a ship sinks fast only if its motors do it, whatever is commanded.

    Then they idle until it is slow again: near the ground no time is left to find the output at
    fault, and what goes on without a command names it.
    """

    def __init__(self, *, ship: Ship) -> None:
        self._ship = ship
        self._sure_kg = _SURE * AIR_DENSITY_KGM3 * ship.airframe.hull.volume_m3
        self._driven = False

    def update(self, state: VehicleState, wish_mps: float) -> bool:
        """wish_mps: what it is asked to sink at, at the most."""
        fast_mps = wish_mps if self._driven else _FAST * wish_mps
        aero, heaviness_kg = self._ship.airframe.aero, self._ship.heaviness_kg()
        drag_n = wish_mps * (aero.linear_drag[2] + wish_mps * aero.quadratic_drag[2])
        slow = self._sure_kg < heaviness_kg and GRAVITY_MPS2 * heaviness_kg < drag_n
        sinks = state.height_valid and state.velocity_ned_mps[2] > fast_mps
        self._driven = slow and sinks
        return self._driven
