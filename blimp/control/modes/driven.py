"""Whether motors drive a ship down that is slow by its weight."""

from blimp.ability import terminal_mps
from blimp.control.bounds import sure_kg
from blimp.control.constants import GRAVITY_MPS2
from blimp.control.modes.mode import Ship
from blimp.types import VehicleState

_FAST = 1.5  # times what it is asked to sink at
_AGAIN = 1.2  # the same, once it has been driven: motors and servos take a while to give way
_OWN = 1.1  # times what it sinks at by its weight alone


class DrivenDown:
    """Such a ship sinks fast only if its motors do it, whatever is commanded.

    Then they idle until it is slow again: near the ground no time is left to find the output at
    fault, and what goes on without a command names it.
    """

    def __init__(self, *, ship: Ship) -> None:
        self._ship = ship
        self._sure_kg = sure_kg(ship.airframe)
        self._driven = False
        self._fast = _FAST

    def update(self, state: VehicleState, wish_mps: float) -> bool:
        """wish_mps: what it is asked to sink at, at the most."""
        sink_mps, heaviness_kg = state.velocity_ned_mps[2], self._ship.heaviness_kg()
        # One that lost its ballast feels light, and one that is driven down heavy.
        felt_kg = self._ship.felt_kg() if self._ship.felt_kg is not None else heaviness_kg
        heavy = min(heaviness_kg, felt_kg) > self._sure_kg
        if not state.height_valid or sink_mps <= wish_mps or not (heavy or self._ship.astray()):
            self._driven = False
            return False
        weight_n = GRAVITY_MPS2 * max(0.0, heaviness_kg)
        own_mps = terminal_mps(self._ship.airframe, 2, weight_n)
        limit_mps = wish_mps if self._driven else self._fast * wish_mps
        slow = own_mps < _FAST * wish_mps
        self._driven = slow and sink_mps > max(limit_mps, _OWN * own_mps)
        self._fast = _AGAIN if self._driven else self._fast
        return self._driven
