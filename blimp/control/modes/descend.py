"""Level descent, blind: what is left when the attitude is not known.

A blimp hangs level by itself, so the vertical thrusters need no attitude. Not a mode one
can ask for: the failsafe flies it, and telemetry shows LAND.
"""

from blimp.ability import brakes
from blimp.constants import GRAVITY_MPS2
from blimp.control.failsafe import Action
from blimp.control.modes.mode import FlightMode, Ship
from blimp.types import Contact, Mode, Setpoint, VehicleState

_MARGIN = 2.0  # times what height and sink rate ask for
_MARGIN_S = 10.0  # and this beside it
_PUSHED_MPS = 0.4  # what pushes it on gives no more, should it be in the air: 0.5 m/s is a hard one


class Descend(FlightMode):
    """Sinks at the touchdown speed.

    Nothing tells it that it is down. After twice the time that takes, a ship known to be heavy is
    let sink by itself, motors idle; a light or an unknown one is pushed on until a person comes,
    with a margin over the most that it may lift.
    """

    number = Mode.LAND
    remedy = Action.DESCEND

    def __init__(self, state: VehicleState | None = None, *, ship: Ship) -> None:
        self._sink_mps = ship.airframe.limits.touchdown_mps
        height_m = max(0.0, state.altitude_m) if state is not None else 0.0
        self._left_s = _MARGIN * height_m / self._sink_mps + _MARGIN_S
        # As weighed while it knew its height.
        weight = ship.weight()
        self._heavy = weight.may_let_go
        linear, quadratic = brakes(ship.airframe, 2)
        margin_n = _PUSHED_MPS * (linear + quadratic * _PUSHED_MPS)
        self._press_n = margin_n - GRAVITY_MPS2 * weight.least_kg
        self._idle = False

    @property
    def contact(self) -> Contact:
        return Contact.RESTING if self._idle else Contact.AIRBORNE

    @property
    def note(self) -> str:
        if self._left_s > 0.0:
            return ""
        if self._idle:
            return "should be down: motors idle, still armed; look at the ship, then disarm"
        return (
            f"should be down: pushed on with {self._press_n:.2g} N, for it may be light; "
            "secure the ship, then send estop"
        )

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        if not state.height_valid:
            self._left_s -= dt_s
        self._idle = self._heavy and self._left_s <= 0.0 and not state.height_valid
        if self._idle:
            return Setpoint(idle=True)
        down = (0.0, 0.0, self._sink_mps)
        pushed = self._left_s <= 0.0 and not state.height_valid
        return Setpoint(velocity_ned_mps=down, press_n=self._press_n if pushed else None)
