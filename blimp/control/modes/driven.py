"""Whether motors drive a ship down that is slow by its weight."""

from blimp.ability import terminal_mps
from blimp.constants import AIR_DENSITY_KGM3, GRAVITY_MPS2
from blimp.control.modes.mode import Ship
from blimp.control.weight import level_sigma_kg
from blimp.types import VehicleState

_FAST = 1.5  # times what it is asked to sink at
_AGAIN = 1.2  # the same, once it has been driven: motors and servos take a while to give way
_IDLE_S = 0.5  # idle and faster all the same: motors have stopped by then, so its weight does it
_SURE = 3.0  # sigmas of what level flight shows: idle, a balanced ship is not slowed at all
_OWN = 1.1  # times what it sinks at by its weight alone


class DrivenDown:
    """Such a ship sinks fast only if its motors do it, whatever is commanded.

    Then they idle until it is slow again: near the ground no time is left to find the output at
    fault, and what goes on without a command names it.
    """

    def __init__(self, *, ship: Ship) -> None:
        self._ship = ship
        displaced_kg = AIR_DENSITY_KGM3 * ship.airframe.hull.volume_m3
        self._sure_kg = _SURE * level_sigma_kg(0.0, displaced_kg=displaced_kg)
        self._driven = False
        self._fast = _FAST
        self._idle_mps: float | None = None  # what it sank at once its motors had stopped
        self._idle_s = 0.0
        self._falls = False

    def update(self, state: VehicleState, wish_mps: float, dt_s: float) -> bool:
        """wish_mps: what it is asked to sink at, at the most."""
        sink_mps, weight = state.velocity_ned_mps[2], self._ship.weight()
        # One that lost its ballast feels light, and one that is driven down heavy.
        heavy = min(weight.level_kg, weight.felt_kg) > self._sure_kg
        suspect = heavy or self._ship.astray()
        if not state.height_valid or sink_mps <= wish_mps or not suspect or self._falls:
            self._driven, self._idle_s = False, 0.0
            self._falls = self._falls and sink_mps > wish_mps
            return False
        weight_n = GRAVITY_MPS2 * max(0.0, weight.level_kg)
        own_mps = terminal_mps(self._ship.airframe, 2, weight_n)
        limit_mps = wish_mps if self._driven else self._fast * wish_mps
        slow = own_mps < _FAST * wish_mps
        self._driven = slow and sink_mps > max(limit_mps, _OWN * own_mps)
        self._fast = _AGAIN if self._driven else self._fast
        self._note_fall(sink_mps, dt_s)
        return self._driven

    def _note_fall(self, sink_mps: float, dt_s: float) -> None:
        """Note that idle made it no slower: its weight is not what it is believed to be."""
        before_s, self._idle_s = self._idle_s, self._idle_s + dt_s if self._driven else 0.0
        if before_s < _IDLE_S <= self._idle_s:
            self._idle_mps = sink_mps
        elif self._idle_s >= 2.0 * _IDLE_S and self._idle_mps is not None:
            self._falls = sink_mps > self._idle_mps
