"""LAND: come down over one place, slowing near the ground, and stay down.

Every landing ends with a trial: the motors stop for a moment, still armed, and a ship that rises
is light, whatever it weighed before: ballast drops. A light one is pushed down, stays armed, and
says so. Only a ship that stays down, and that no raw sensor sees in the air, is let go. The table
of its phases is blimp/control/landing.py.
"""

from math import hypot
from typing import Any

from blimp.constants import AIR_DENSITY_KGM3
from blimp.control.bounds import FELT
from blimp.control.failsafe import Action
from blimp.control.landing import LANDING, LandingEvidence, LandingPhase, OnEntry, Transition
from blimp.control.modes.driven import DrivenDown
from blimp.control.modes.mode import FlightMode, Ship
from blimp.control.modes.nose import Nose
from blimp.control.modes.press import Press
from blimp.rotation import yaw_of
from blimp.types import STANDS, Contact, Mode, Setpoint, VehicleState
from blimp.vector import within

UNWEIGHED = "not weighed, and its feet would hold a light ship"

_SINK = 1.2  # times the descent rate: pushed down
_WEIGH_S = 10.0  # level flight shows the heaviness in less
_WEIGH_M = 0.45  # and no nearer to the ground
_TRIAL_S = 8.0  # motors stand still for so long, to see whether it rises
_SURE_TRIAL_S = 3.0  # of a ship that weighed itself heavy
_COAST_S = 1.0  # of a trial: motors run down, and the ship swings
_DRIFTED_M = 1.0  # and three sigma: feet that hold let a ship swing, and no further
_RISEN_M = 0.2  # more than a height's noise
_LIFTED_M = 0.1  # with a climb, less will do
_RISING_MPS = 0.1  # see above
_LIFTS_S = 0.3  # longer than the noise of a barometer in the estimate
_CLEAR_M = 0.4  # higher it stands on nothing
_DOUBT_S = 8.0  # pushed down for so long without sinking while a sensor says "not down"
_FLARE_PER_S = 0.4  # descent no faster than this times the height left
_TOUCH_HEIGHT_M = 0.25  # it may stand on the ground, by its height
_BLIND_HEIGHT_M = 1.5  # a barometer alone may be this wrong about the ground
_UNDER_M = -0.15  # whatever it seems to do, an estimate this deep is wrong
_STILL_MPS = 0.05  # and by its climb
_TOUCH_S = 0.7  # for so long
_BLIND_S = 4.0  # for longer, where only a barometer knows the height
_CLEAR_S = 30.0  # for longer yet, where the height says by three sigma that it is not down
_SINKS_M = 0.1  # more than a height's noise lower meanwhile: it has not stopped
_WANDER_MPS = 0.002  # twice what air pressure may: a metre in a quarter of an hour
_PRESS_M = 0.3  # a light ship gets a setpoint this far below the ground


class Land(FlightMode):
    """Done when the ship is down for good.

    landed: it stays there by itself: idle, to be disarmed. held: it is pushed down. doubt: it
    does not sink any more, idle, and some sensor says that it is not down: a person must look.
    phase, row: where the landing is, and which row of the table led there, None at its begin.
    """

    number = Mode.LAND
    remedy = Action.LAND

    def __init__(
        self,
        state: VehicleState,
        *,
        ship: Ship,
        weigh: bool = False,
        pushed: bool = False,
        down: bool = False,
    ) -> None:
        """weigh: time is left for level flight, of a ship whose heaviness is not known yet.

        pushed: without a height until now: what it felt may be the ground. down: it lies there,
        to be tried.
        """
        self._ship = ship
        self._press = Press(ship=ship)
        self._driven = DrivenDown(ship=ship)
        self._start_m = max(0.1, state.altitude_m)
        self._felt_kg: float | None = None
        self._stood = self._may_stand = pushed
        self._sunk_m = self._rising_s = self._touchdown_mps = 0.0
        self._lay_m = 0.0  # the height where it stopped, as far as it wanders
        self._lay_ne_m: tuple[float, float] | None = None  # and the place where it was let go
        self._doubt = ""
        self.phase = LandingPhase.LEVEL if weigh else LandingPhase.SINK
        self.row: Transition | None = None
        self._phase_s = 0.0  # that what the phase waits for has lasted
        self.resume(state)
        if down:
            self.phase = LandingPhase.TOUCH
            self._follow(
                LandingEvidence(proven=True, still=True, lower=False, light=ship.weight().is_light),
                state,
            )

    @property
    def landed(self) -> bool:
        return self.phase is LandingPhase.LANDED

    @property
    def held(self) -> bool:
        return self.phase in (LandingPhase.PRESSED, LandingPhase.LOOSE)

    @property
    def contact(self) -> Contact:
        """UNKNOWN after a blind descent, until it is seen to sink as asked."""
        found = self.phase.contact
        return Contact.UNKNOWN if self._may_stand and found is Contact.AIRBORNE else found

    @property
    def doubt(self) -> str:
        return self._doubt if self.phase is LandingPhase.DOUBT else ""

    @property
    def done(self) -> bool:
        return self.phase.contact in STANDS or self.held

    @property
    def fraction(self) -> float:
        return 1.0 if self.done else max(0.0, min(0.99, 1.0 - self._height_m / self._start_m))

    @property
    def note(self) -> str:
        if self.doubt:
            return f"down? {self.doubt}: motors idle, still armed; look at the ship, then disarm"
        return self._press.note(held=self.held, loose=self.phase is LandingPhase.LOOSE)

    @property
    def result(self) -> dict[str, Any]:
        return {
            "touchdown_mps": round(self._touchdown_mps, 3),
            "heaviness_g": round(1e3 * self._press.heaviness_kg, 1),
            "held_down": self.held,
            **({"doubt": self.doubt} if self.doubt else {}),
        }

    def resume(self, state: VehicleState) -> None:
        self._height_m = state.altitude_m
        self._down_m = state.position_ned_m[2]
        self._nose = Nose(ship=self._ship, yaw_rad=yaw_of(state.attitude))
        self._place_m: tuple[float, float] | None = None
        self._wish_mps = max(0.0, state.velocity_ned_mps[2])

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        self._follow(self._look(state, dt_s), state)
        if self.phase in (LandingPhase.TRIAL, LandingPhase.DOUBT, LandingPhase.LANDED):
            return Setpoint(idle=True)
        self._height_m = state.altitude_m
        if self.phase is LandingPhase.LOOSE:
            return Setpoint(velocity_ned_mps=(0.0, 0.0, self._flare_mps()), yaw_rad=None)
        if self.phase is LandingPhase.PRESSED:
            # No height pushes it up: it may have wandered.
            self._press.report(dt_s)
            down = (None, None, _PRESS_M)
            return Setpoint(position_ned_m=down, press_n=self._press.force_n, yaw_rad=None)
        return self._sink(state, dt_s)

    def _follow(self, seen: LandingEvidence, state: VehicleState) -> None:
        """Take the row that matches, if there is one."""
        row = next((row for row in LANDING[self.phase] if row.matches(seen)), None)
        if row is not None:
            self.phase, self.row, self._phase_s = row.next, row, 0.0
            for does in row.does:
                self._do(does, state)

    def _do(self, does: OnEntry, state: VehicleState) -> None:
        press, weighed_kg = self._press, self._ship.weight().level_kg
        match does:
            case OnEntry.MARK:
                self._lay_m = max(0.0, state.altitude_m)  # an estimate below the ground is wrong
            case OnEntry.FEEL:
                displaced_kg = AIR_DENSITY_KGM3 * self._ship.airframe.hull.volume_m3
                felt_kg = weighed_kg if self._felt_kg is None else self._felt_kg
                lost = felt_kg < weighed_kg - FELT * displaced_kg
                press.heaviness_kg = felt_kg if lost else weighed_kg
            case OnEntry.LIGHT:
                press.heaviness_kg = min(press.heaviness_kg, weighed_kg, -1e-4)
            case OnEntry.PRESS:
                press.begin()
            case OnEntry.HARDER:
                press.harder()
            case OnEntry.ASK:
                self._doubt = self._why_doubted(state) or self._why_unsure(state)
                self._lay_ne_m = place_of(state)

    def _look(self, state: VehicleState, dt_s: float) -> LandingEvidence:
        """Return what this cycle shows, and count what must last."""
        known, phase, touches = state.height_valid, self.phase, state.touch.carried
        climb_mps, weight = -state.velocity_ned_mps[2], self._ship.weight()
        risen_m = max(0.0, state.altitude_m) - self._lay_m
        if phase in (LandingPhase.PRESSED, LandingPhase.LOOSE, LandingPhase.DOUBT):
            wandered_m = within(risen_m, _WANDER_MPS * dt_s)
            self._lay_m, risen_m = self._lay_m + wandered_m, risen_m - wandered_m
        rising, risen = known and climb_mps > _RISING_MPS, known and risen_m > _clear_m(state)
        leaves = rising and risen_m > _LIFTED_M and not touches
        self._rising_s = self._rising_s + dt_s if leaves else 0.0
        coasts = phase is LandingPhase.TRIAL and self._phase_s < _COAST_S
        climbs = self._rising_s > _LIFTS_S and phase is not LandingPhase.DOUBT and not coasts
        still = abs(climb_mps) < _STILL_MPS or (known and state.altitude_m < _UNDER_M)
        still = still or (touches and climb_mps > 0.0)  # a height that rises there lies
        # Not begun again by each gust: in 0.8 m/s of wind a ship on the ground waited 16 s.
        counts_back = phase is LandingPhase.LOOSE and known and not still
        self._phase_s = max(0.0, self._phase_s + (-dt_s if counts_back else dt_s))
        lower_m = _RISEN_M if phase is LandingPhase.TRIAL else _SINKS_M
        return LandingEvidence(
            proven=self._is_proven(state, rising=rising and not risen),
            still=still,
            lower=known and -risen_m > lower_m,
            light=weight.is_light,
            sure=weight.may_let_go,
            lifts=not touches and (risen or climbs),
            strays=has_drifted(self._lay_ne_m, state),
            # Two raw heights, no more, say that it lies there: a person must look.
            doubted=phase is LandingPhase.TRIAL and (bool(self._why_doubted(state)) or risen),
        )

    def _is_proven(self, state: VehicleState, *, rising: bool) -> bool:
        """Whether the phase has lasted as long as its proof takes."""
        match self.phase:
            case LandingPhase.LEVEL:
                high = state.height_valid and state.altitude_m > _WEIGH_M
                return self._phase_s >= _WEIGH_S or not high or self._ship.weight().weighed
            case LandingPhase.TOUCH:
                return self._has_touched(state)
            case LandingPhase.TRIAL:
                # A few grams sink slowly.
                weight, felt_kg = self._ship.weight(), self._press.heaviness_kg
                sure = weight.may_let_go and felt_kg >= weight.mean_kg
                sure = sure and self._lay_m < _TOUCH_HEIGHT_M
                return self._phase_s >= (_SURE_TRIAL_S if sure else _TRIAL_S) and not rising
            case _:
                return self._phase_s >= _TOUCH_S

    def _has_touched(self, state: VehicleState) -> bool:
        """Whether it has not sunk for long enough, commanded to; blind, the same for longer."""
        # Higher up, one that lost ballast stops as well.
        if state.altitude_m < _CLEAR_M and self._phase_s >= _TOUCH_S:
            self._stood = True
        low = state.altitude_m < _TOUCH_HEIGHT_M and state.height_valid
        needed_s = _TOUCH_S if low else _BLIND_S
        if state.touch.doubt:
            needed_s = _DOUBT_S
        # A light ship may take that long to sink by 0.1 m, with all its thrust.
        least_m = state.altitude_m - 3.0 * state.health.height.sigma
        if state.height_valid and least_m > _TOUCH_HEIGHT_M and not state.touch.carried:
            needed_s = _CLEAR_S
        near = low or state.touch.carried or state.altitude_m < _BLIND_HEIGHT_M
        return self._phase_s >= needed_s and near

    def _sink(self, state: VehicleState, dt_s: float) -> Setpoint:
        if self._place_m is None and state.position_valid:
            self._place_m = state.position_ned_m[:2]
        n, e = self._place_m or (None, None)
        limits, wish = self._ship.airframe.limits, self._flare_mps()
        if self.phase is LandingPhase.LEVEL:
            wish = 0.0
        else:
            self._press.compare(dt_s)
        if self.phase is LandingPhase.SINK:
            self._note_fall(state, dt_s)
        step = limits.acceleration_mps2 * dt_s
        self._wish_mps = max(self._wish_mps - 2.0 * step, min(self._wish_mps + step, wish))
        # The reference sinks with the ship, never more than half a metre ahead of it.
        self._down_m = min(self._down_m + self._wish_mps * dt_s, 0.5 - self._height_m)
        if self._driven.update(state, wish, dt_s):
            return Setpoint(idle=True)
        return Setpoint(
            position_ned_m=(n, e, self._down_m),
            velocity_ned_mps=(0.0, 0.0, self._wish_mps),
            sink_mps=_SINK * limits.descent_mps,
            yaw_rad=self._nose.follow(0.0, 0.0, dt_s),
        )

    def _flare_mps(self) -> float:
        """Return what it is to sink at in this height: slower near the ground."""
        limits = self._ship.airframe.limits
        flare_mps = min(limits.descent_mps, limits.column_mps, _FLARE_PER_S * self._height_m)
        return max(limits.touchdown_mps * 0.6, flare_mps)

    def _note_fall(self, state: VehicleState, dt_s: float) -> None:
        """Note what it weighs by feel, how fast it sinks, and that no ground holds it."""
        self._sunk_m += dt_s * state.velocity_ned_mps[2]
        self._may_stand = self._may_stand and self._sunk_m < _CLEAR_M
        clear = state.altitude_m > _CLEAR_M and not (self._stood or state.touch.carried)
        if clear:
            self._felt_kg = self._ship.weight().felt_kg  # pushing the ground is no weighing
        if state.altitude_m > 0.05:
            self._touchdown_mps = max(0.0, state.velocity_ned_mps[2])

    def _why_doubted(self, state: VehicleState) -> str:
        """Return why a trial that it stays down in proves nothing, or ""."""
        found, felt_kg = state.touch.doubt, self._press.heaviness_kg
        if not found and self._ship.airframe.ground.hold_n and felt_kg < 0.0:
            return f"felt {-1e3 * felt_kg:.0f} g light, and its feet would hold it"
        return found

    def _why_unsure(self, state: VehicleState) -> str:
        weight = self._ship.weight()
        if weight.may_let_go:
            return f"its height says {state.altitude_m:.1f} m"
        if not weight.weighed:
            return UNWEIGHED
        grams, light = 1e3 * weight.mean_kg, weight.p_light()
        return f"weighs {grams:.1f} g: light with a probability of {light:.1%}"


def place_of(state: VehicleState) -> tuple[float, float] | None:
    """Return where the ship is, north and east, if that is known."""
    return state.position_ned_m[:2] if state.position_valid else None


def has_drifted(place_m: tuple[float, float] | None, state: VehicleState) -> bool:
    """Whether the ship is elsewhere than where it was let go: its feet do not hold it."""
    if place_m is None or not state.position_valid:
        return False
    moved_m = hypot(state.position_ned_m[0] - place_m[0], state.position_ned_m[1] - place_m[1])
    return moved_m > _DRIFTED_M + 3.0 * state.health.position.sigma


def _clear_m(state: VehicleState) -> float:
    """Return the rise that this height's noise does not explain: a tag's alone has 8 cm."""
    return max(_RISEN_M, 3.0 * state.health.height.sigma)
