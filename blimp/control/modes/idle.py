"""Motors idle in the air: the last stage, of a ship known to be heavy. It sinks by itself.

Not a mode one can ask for: the failsafe flies it, and telemetry shows LAND.
"""

from blimp.ability import brakes
from blimp.constants import AIR_DENSITY_KGM3, GRAVITY_MPS2
from blimp.control.bounds import most_lift_n
from blimp.control.failsafe import Action
from blimp.control.modes.mode import FlightMode, Ship
from blimp.types import Mode, Setpoint, VehicleState

_DOWN_S = 8.0  # low and still for so long: it has landed
_DOWN_M = 0.3  # see above
_STILL_MPS = 0.1  # see above
_RISING_MPS = 0.05  # a light ship rises faster
_RISING_S = 25.0  # what drag leaves of the worst climb is less by then
_DRAG = 0.5  # of the airframe's: the least that is reckoned with
_BRAKE_M = 1.0  # below this height it brakes: gtmab stops 0.7 m/s within 0.5 m of it
_WORSE_MPS = 0.1  # faster than when it began to brake: what drives it does the reverse
_STOPPED_S = 2.5  # motors and servos stand by then
_LOOK_S = 2.0  # more than the noise of a climb
_KEPT = 0.5  # of what half of its drag takes from its climb then: slower than that, it is lift
_SLOWED_MPS = 0.1  # more than the noise of a climb
_FASTER_MPS = 0.3  # pushed the other way it rises by so much faster: that was wrong
_TURNED_S = 5.0  # or it rises no slower after so long: a tilt servo swings round in 2 s
_BEYOND_M = 0.5  # above what it could have risen by: a climb as estimated lags by a second


class Idle(FlightMode):
    """Drives nothing; `landed` once the ship is seen to lie on the ground.

    One that rises on all the same has become light: it is pushed down with what there is. If idle
    slowed its climb, its thrust had driven it up: it is pushed the other way, as long as its height
    is seen and that slows it, until the output at fault is named. One that seems to rise by more
    than a ship of its drag can without thrust is pushed down, too: then it was no thrust that drove
    it up, but a height that is wrong, and a light one would be gone by 25 s.
    """

    number = Mode.LAND
    remedy = Action.IDLE

    def __init__(self, *, ship: Ship) -> None:
        self._ship = ship
        hull, aero = ship.airframe.hull, ship.airframe.aero
        self._mass_kg = AIR_DENSITY_KGM3 * hull.volume_m3 + aero.added_mass_kg[2]
        self._linear, self._quadratic = (_DRAG * one for one in brakes(ship.airframe, 2))
        self._down_s = 0.0
        self._rising_s = 0.0
        self._light = False
        self._could_mps: float | None = None  # the fastest that it can rise by now
        self._beyond_m = 0.0
        self._idle_s = 0.0
        self._began_mps: float | None = None  # what it rose at when its motors began to idle
        self._looked_mps = self._coasts_mps = 0.0  # a climb, and what drag leaves of it
        self._backwards = False  # its thrust goes the other way
        self._pushed_mps = 0.0  # what it rose at when it was first pushed so
        self._turned_s = 0.0  # how long it has been pushed so
        self._braked_mps: float | None = None  # what it sank at when it began to brake
        self._brakes = True  # until that makes it faster
        self._landed = False

    @property
    def landed(self) -> bool:
        return self._landed

    @property
    def note(self) -> str:
        if self._light:
            return "rose with motors idle, so it is light: pushed down; secure it, then send estop"
        return "motors idle: the outputs did not do what was commanded"

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        touches = state.touch.carried
        low = state.height_valid and state.altitude_m < _DOWN_M
        still = abs(state.velocity_ned_mps[2]) < _STILL_MPS and not state.touch.doubt
        down = touches or (low and still)
        self._down_s = self._down_s + dt_s if down else 0.0
        self._landed = self._down_s >= _DOWN_S and not self._light
        seen = state.height_valid and not touches  # on the ground it neither rises nor sinks
        rising = seen and -state.velocity_ned_mps[2] > _RISING_MPS
        self._rising_s = max(0.0, self._rising_s + (dt_s if rising else -dt_s))
        if seen:
            self._note_climb(state, dt_s)
        self._light = self._light or self._rising_s > _RISING_S or self._beyond_m > _BEYOND_M
        if seen:
            self._note_direction(-state.velocity_ned_mps[2], dt_s)
        else:
            self._backwards = False
        sink_mps = self._ship.airframe.limits.touchdown_mps
        if self._backwards and not self._ship.astray():
            if state.velocity_ned_mps[2] > sink_mps:
                return Setpoint(idle=True)
            return Setpoint(press_n=-self._ship.push_n())
        if self._light:
            return Setpoint(velocity_ned_mps=(0.0, 0.0, sink_mps))
        return self._brake(state)

    def _brake(self, state: VehicleState) -> Setpoint:
        """Return what slows down a ship that its weight would have touch down too fast, or idle.

        Low only, and if what is wrong has a name: an awake driver lets that run, too.
        """
        limits, sink_mps = self._ship.airframe.limits, state.velocity_ned_mps[2]
        known = state.height_valid and state.attitude_valid and self._ship.astray()
        bound_mps = limits.descent_mps if self._braked_mps is None else limits.touchdown_mps
        if not (known and self._brakes and state.altitude_m < _BRAKE_M and sink_mps > bound_mps):
            self._braked_mps = None
            return Setpoint(idle=True)
        if self._braked_mps is None:
            self._braked_mps = sink_mps
        self._brakes = sink_mps < self._braked_mps + _WORSE_MPS
        return Setpoint(
            velocity_ned_mps=(0.0, 0.0, limits.touchdown_mps), thrust_body=(0.0, 0.0, None)
        )

    def _note_direction(self, rises_mps: float, dt_s: float) -> None:
        """Note whether thrust that was to push it down had pushed it up."""
        if self._backwards:
            self._turned_s += dt_s
            slower = rises_mps < self._pushed_mps - _SLOWED_MPS
            faster = rises_mps > self._pushed_mps + _FASTER_MPS
            self._backwards = not faster and (slower or self._turned_s < _TURNED_S)
        if self._began_mps is None:
            self._began_mps = rises_mps
        self._idle_s += dt_s
        if self._idle_s < _STOPPED_S or self._light:
            self._looked_mps = self._coasts_mps = rises_mps
            return
        self._coasts_mps += dt_s * self._gains_mps2(self._coasts_mps, lift_n=0.0)
        if self._idle_s < _STOPPED_S + _LOOK_S:
            return
        lost_mps = self._looked_mps - rises_mps
        lifts = lost_mps < _KEPT * (self._looked_mps - self._coasts_mps) and rises_mps > _SLOWED_MPS
        self._backwards = self._light = lifts and self._began_mps > rises_mps + _SLOWED_MPS
        self._pushed_mps = rises_mps
        self._idle_s = _STOPPED_S  # and look again
        self._looked_mps = self._coasts_mps = rises_mps

    def _note_climb(self, state: VehicleState, dt_s: float) -> None:
        """Note by how much more it has risen than it can have, if it began as fast as it seemed."""
        rises_mps = -state.velocity_ned_mps[2]
        lift_n = most_lift_n(self._ship.airframe, GRAVITY_MPS2 * self._ship.weight().level_kg)
        if self._could_mps is None:
            self._could_mps = max(0.0, rises_mps)
        gains_mps2 = self._gains_mps2(self._could_mps, lift_n=lift_n)
        self._could_mps = max(0.0, self._could_mps + dt_s * gains_mps2)
        self._beyond_m = max(0.0, self._beyond_m + dt_s * (rises_mps - self._could_mps))

    def _gains_mps2(self, rises_mps: float, *, lift_n: float) -> float:
        """Return by how much a climb without thrust grows, with the least drag reckoned with."""
        drag_n = rises_mps * (self._linear + self._quadratic * abs(rises_mps))
        return (lift_n - drag_n) / self._mass_kg
