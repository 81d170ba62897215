"""Which mode flies, and what it gave way to."""

from blimp.control.failsafe import Action
from blimp.control.modes.hold import Hold
from blimp.control.modes.manual import Manual
from blimp.control.modes.mode import FlightMode, Ship
from blimp.control.payload import Payload
from blimp.rotation import wrap_pi, yaw_of
from blimp.types import Mode, SeenSample, Setpoint, VehicleState

IDLE = Setpoint(idle=True)
_SILENT_S = 2.0  # without an order: two commands of a terminal follow each other sooner
_LEFT_S = 30.0  # the same, of a ship that neither rises nor sinks fast
_NEEDS_A_PILOT = (Mode.MANUAL, Mode.STABILIZE, Mode.ALTHOLD, Mode.VELOCITY)
_ON_HEADING_RAD = 0.25  # a ship that is farther off is on its way to another heading


class Pilot:
    """Holds the mode that flies. `reason` says why the one before it ended.

    resting: on the ground and not asked to fly: idle until something lifts the ship.
    seen: what the camera saw last.
    """

    seen: SeenSample | None = None

    def __init__(self, *, ship: Ship) -> None:
        self.ship = ship
        self.manual = Manual(airframe=ship.airframe)
        self.payload = Payload(airframe=ship.airframe)
        self._yaw_rad: float | None = None  # as the last setpoint has it
        self.mode: FlightMode = Hold(VehicleState(t_s=0.0))
        self.reason = ""
        self.resting = True
        self._stand_in: FlightMode | None = None

    @property
    def flying(self) -> FlightMode:
        """The mode in control: the one that stands in while the entered one is paused."""
        return self._stand_in or self.mode

    @property
    def paused(self) -> bool:
        return self._stand_in is not None

    def enter(self, mode: FlightMode, *, reason: str) -> None:
        """Let `mode` fly from the next update on."""
        if mode is not self.manual:
            self.manual.clear()
        self.mode = mode
        self.reason = reason
        self.resting = False
        self._stand_in = None

    def rest(self, state: VehicleState, *, reason: str) -> None:
        """Lie on the ground, outputs idle."""
        self.enter(Hold(state), reason=reason)
        self.resting = True

    def hold(self, state: VehicleState, *, reason: str) -> None:
        """Stay where the ship is: on the ground idle, for HOLD would drive it there without end."""
        if self.can_rest(state):
            self.rest(state, reason=reason)
        else:
            hold = Hold(state, ship=self.ship, yaw_rad=self.heading_rad(state))
            self.enter(hold, reason=reason)

    def rests(self, state: VehicleState) -> bool:
        """Whether it lies there unasked to fly: without a height it has not risen."""
        return self.resting and (state.on_ground or not state.height_valid)

    def can_rest(self, state: VehicleState) -> bool:
        """Whether the ship may idle on the ground. One that lands, or is known as light, may not.

        Without a height only MANUAL may: in another mode the ship may have risen since.
        """
        if not state.height_valid and self.mode is not self.manual:
            return self.resting
        may = self.flying.remedy < Action.LAND and not self.ship.weight().is_light
        return state.on_ground and (self.resting or may)

    def abandon(self, state: VehicleState, *, reason: str) -> None:
        """Leave a mode that needs a pilot, also one that is paused: its pilot is gone."""
        if self.paused or self.number in _NEEDS_A_PILOT:
            self.hold(state, reason=reason)

    def pause(self, stand_in: FlightMode) -> None:
        """Let `stand_in` fly until `resume`."""
        self._stand_in = stand_in

    def resume(self, state: VehicleState) -> None:
        """Give control back to the mode that was paused."""
        if self._stand_in is not None:
            self._stand_in = None
            self.mode.resume(state)

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        if self.rests(state):
            return IDLE
        if self.resting:
            self.enter(Hold(state, ship=self.ship), reason="the ship has left the ground")
        setpoint = self.flying.update(state, dt_s=dt_s)
        self._yaw_rad = setpoint.yaw_rad
        return setpoint

    def heading_rad(self, state: VehicleState) -> float:
        """Return the heading to keep: the one that was asked for, if the ship is about there.

        What a ship does at one moment is a little beside it, and each mode would pass that on.
        """
        yaw_rad = yaw_of(state.attitude)
        wish_rad = self._yaw_rad
        if wish_rad is None or abs(wrap_pi(wish_rad - yaw_rad)) > _ON_HEADING_RAD:
            return yaw_rad
        return wish_rad

    @property
    def number(self) -> Mode:
        return self.flying.number

    def is_unattended(self, state: VehicleState, now_s: float) -> bool:
        """Whether nobody drives a ship in MANUAL: for long, or while it rises or sinks fast."""
        if self.flying is not self.manual or not state.height_valid or state.on_ground:
            return False
        limits = self.ship.airframe.limits
        slow = -limits.climb_mps < state.velocity_ned_mps[2] < limits.descent_mps
        return self.manual.silent_s(now_s) > (_LEFT_S if slow else _SILENT_S)
