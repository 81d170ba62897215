"""LAND: come down over one place, slowing near the ground, and stay down.

Every landing ends with a trial: the motors stop for a moment, still armed, and a ship that rises
is light, whatever it weighed before: ballast drops. A light one is pushed down, stays armed, and
says so. Only a ship that stays down, and that no raw sensor sees in the air, is let go.
"""

from math import hypot, inf
from typing import Any

from blimp.control.bounds import FELT, sure_kg
from blimp.control.constants import AIR_DENSITY_KGM3, GRAVITY_MPS2
from blimp.control.failsafe import Action
from blimp.control.modes.driven import DrivenDown
from blimp.control.modes.mode import FlightMode, Ship
from blimp.control.modes.nose import Nose
from blimp.control.vector import within
from blimp.rotation import yaw_of
from blimp.types import Mode, Setpoint, VehicleState

UNWEIGHED = "not weighed, and its feet would hold a light ship"

_SINK = 1.2  # times the descent rate: pushed down
_WEIGH_S = 10.0  # level flight shows the heaviness in less
_WEIGH_M = 0.45  # and no nearer to the ground
_TRIAL_S = 8.0  # motors stand still for so long, to see whether it rises
_SURE_TRIAL_S = 3.0  # of a ship that weighed itself heavy
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
_STILL_MPS = 0.05  # and by its climb
_TOUCH_S = 0.7  # for so long
_BLIND_S = 4.0  # for longer, where only a barometer knows the height
_CLEAR_S = 30.0  # for longer yet, where the height says by three sigma that it is not down
_SINKS_M = 0.1  # more than a height's noise lower meanwhile: it has not stopped
_PRESS = 0.3  # of its thrust, beside what its lift takes: half a battery lasts an hour of it
_WANDER_MPS = 0.002  # twice what air pressure may: a metre in a quarter of an hour
_LIFTED = 1.25  # times its lift, though it drives over the ground with that
_HARDER = 1.5  # times that, for a ship that came off the ground under it
_PRESS_M = 0.3  # a light ship gets a setpoint this far below the ground
_REPORT_S = 3.0  # motors and servos have followed by then
_NEWS = 1.25  # by such a ratio a number has changed enough to be reported again


class Land(FlightMode):
    """Done when the ship is down for good.

    landed: it stays there by itself: idle, to be disarmed. held: it is pushed down. doubt: it
    does not sink any more, idle, and some sensor says that it is not down: a person must look.
    """

    number = Mode.LAND
    needs_position = False
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
        self._start_m = max(0.1, state.altitude_m)
        self._weigh_s = _WEIGH_S if weigh else 0.0
        self._touch_s = self._sunk_m = self._rising_s = 0.0
        self._resting_m = self._touch_m = 0.0
        self._trial_s: float | None = None
        self._sure = False
        self._felt_kg: float | None = None
        self._stood = self.may_stand = pushed
        self._driven = DrivenDown(ship=ship)
        self.landed = False
        self.held = False
        self.doubt = ""
        self._heaviness_kg = 0.0
        self._touchdown_mps = 0.0
        self._press_n = self._most_n = 0.0  # onto the ground, and what can be had: once it is held
        self._grips_n = inf  # with which it stays in its place
        self._short = False  # it lifts more than what can be had
        self._loose = False  # it has come off it
        self._still_s = 0.0
        self._idle_m: tuple[float, float] | None = None  # where it was let go, not known to be down
        self._reported_s = 0.0
        self._reported: tuple[float | None, float | None] = (
            None,
            None,
        )  # newtons, and seconds of it
        self.resume(state)
        if down:
            self._begin_trial(state, low=True)

    @property
    def done(self) -> bool:
        return self.landed or self.held or bool(self.doubt)

    @property
    def idles(self) -> bool:
        return bool(self.doubt)

    @property
    def stands(self) -> bool:
        """Whether it lies on the ground, by all it knows."""
        return self.landed or bool(self.doubt) or (self.held and not self._loose)

    @property
    def down(self) -> bool:
        """Whether it has touched down; the trial may still be on."""
        return self.done or self._trial_s is not None

    @property
    def fraction(self) -> float:
        return 1.0 if self.done else max(0.0, min(0.99, 1.0 - self._height_m / self._start_m))

    @property
    def note(self) -> str:
        if self.doubt:
            return f"down? {self.doubt}: motors idle, still armed; look at the ship, then disarm"
        if not self.held and not self._short:
            return ""
        light = f"light by about {max(0.1, -1e3 * self._heaviness_kg):.1f} g"
        if not self.held:
            return (
                f"{light}: cannot be brought down: thrust pushes down with {self._most_n:.2g} N at "
                f"the most, and it lifts {self._lift_n:.2g} N"
            )
        if self._loose:
            return f"{light}: off the ground, pushed down; secure the ship, then disarm"
        given_n, lasts_s = self._reported
        if given_n is None:
            return (
                f"{light}: pressed down with {self._press_n:.2g} N if what is said to be broken "
                "gives it; secure the ship, then disarm"
            )
        if given_n < self._lift_n:
            return (
                f"{light}: cannot be held down: thrust gives {given_n:.2g} N and it lifts "
                f"{self._lift_n:.2g} N; secure the ship at once, then disarm"
            )
        lasts = "" if lasts_s is None else f" for about {lasts_s / 60.0:.0f} min of its battery"
        return (
            f"{light}: held down by thrust of {given_n:.2g} N{lasts}, still armed; "
            "secure the ship, then disarm"
        )

    @property
    def result(self) -> dict[str, Any]:
        return {
            "touchdown_mps": round(self._touchdown_mps, 3),
            "heaviness_g": round(1e3 * self._heaviness_kg, 1),
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
        if self.landed:
            return Setpoint(idle=True)
        if self.held or self.doubt:
            risen_m = max(0.0, state.altitude_m) - self._resting_m
            self._resting_m += within(risen_m, _WANDER_MPS * dt_s)
        if self.doubt and not self._rises(state) and not self._drifts(state):
            return Setpoint(idle=True)
        if self._trial_s is not None and not self.held:
            self._try(state, dt_s)
            return Setpoint(idle=True)
        if self._place_m is None and state.position_valid:
            self._place_m = state.position_ned_m[:2]
        n, e = self._place_m or (None, None)
        if self.held:
            return self._press(state, dt_s)
        self._height_m = state.altitude_m
        limits, wish = self._ship.airframe.limits, self._flare_mps()
        self._weigh_s = self._weigh_s - dt_s if self._must_weigh(state) else 0.0
        if self._weigh_s > 0.0:
            wish = 0.0
        step = limits.acceleration_mps2 * dt_s
        self._wish_mps = max(self._wish_mps - 2.0 * step, min(self._wish_mps + step, wish))
        # The reference sinks with the ship, never more than half a metre ahead of it.
        self._down_m = min(self._down_m + self._wish_mps * dt_s, 0.5 - self._height_m)
        if wish > 0.0:
            self._compare(dt_s)
            self._feel(state, dt_s)
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

    @property
    def _lift_n(self) -> float:
        return max(0.0, -GRAVITY_MPS2 * self._heaviness_kg)

    def _compare(self, dt_s: float) -> None:
        """Note whether the ship lifts more than what thrust can push down with."""
        self._reported_s += dt_s
        if self._reported_s >= _REPORT_S and self._ship.weighed():
            self._reported_s, self._most_n = 0.0, self._ship.push_n()
            self._heaviness_kg = self._ship.heaviness_kg()
            self._short = self._lift_n > self._most_n

    def _hold(self) -> None:
        """From now on it is pressed: the ground is under it, and it is light."""
        self.held, self._most_n = True, self._ship.push_n()
        least_n = GRAVITY_MPS2 * FELT * AIR_DENSITY_KGM3 * self._ship.airframe.hull.volume_m3
        self._press_n = max(self._press_n, self._lift_n + max(_PRESS * self._most_n, least_n))
        self._reported = (min(self._press_n, self._most_n), None)

    def _press(self, state: VehicleState, dt_s: float) -> Setpoint:
        """Press the ship onto the ground with a margin over its lift.

        No height pushes it up: it may have wandered. One that says that the ship has come off has
        it flown down again, until it lies still, and pressed harder: by the press alone one that
        was 0.2 m up touched down at 0.56 m/s.
        """
        still = abs(state.velocity_ned_mps[2]) < _STILL_MPS or not state.height_valid
        lifts, was_loose = self._lifts(state, dt_s), self._loose
        # Not begun again by each gust: in 0.8 m/s of wind a ship on the ground waited 16 s.
        still_s = max(0.0, self._still_s + (dt_s if still else -dt_s))
        self._still_s = 0.0 if lifts else still_s
        self._loose = lifts or (was_loose and self._still_s < _TOUCH_S)
        if self._loose:
            self._height_m = state.altitude_m
            return Setpoint(velocity_ned_mps=(0.0, 0.0, self._flare_mps()), yaw_rad=None)
        if was_loose:
            self._press_n = max(self._press_n, min(_HARDER * self._press_n, self._most_n))
        self._report(dt_s)
        press_n = min(self._press_n, self._most_n, max(self._grips_n, _LIFTED * self._lift_n))
        return Setpoint(position_ned_m=(None, None, _PRESS_M), press_n=press_n, yaw_rad=None)

    def _report(self, dt_s: float) -> None:
        """Note what the thrust gives, again only if that has changed by much."""
        self._reported_s += dt_s
        if self._reported_s < _REPORT_S:
            return
        self._reported_s, self._most_n = 0.0, self._ship.push_n()
        self._grips_n = self._ship.grips_n()
        now = (self._ship.pushes_n(), self._ship.lasts_s())
        if any(map(_is_news, now, self._reported)):
            self._reported = now

    @property
    def _weighed_heavy(self) -> bool:
        return self._ship.weighed() and self._ship.heaviness_kg() > sure_kg(self._ship.airframe)

    def _must_weigh(self, state: VehicleState) -> bool:
        high = state.height_valid and state.altitude_m > _WEIGH_M
        return self._weigh_s > 0.0 and high and not self._ship.weighed()

    def _feel(self, state: VehicleState, dt_s: float) -> None:
        """Touchdown: low, commanded to sink, and not sinking; blind, the same for longer."""
        under = state.height_valid and state.altitude_m < -0.5 * _PRESS_M  # whatever it seems to do
        if abs(state.velocity_ned_mps[2]) >= _STILL_MPS and not under:
            self._touch_s = 0.0
            self._sunk_m += dt_s * state.velocity_ned_mps[2]
            self.may_stand = self.may_stand and self._sunk_m < _CLEAR_M
            clear = state.altitude_m > _CLEAR_M and not self._stood
            if clear and self._ship.felt_kg is not None:
                self._felt_kg = self._ship.felt_kg()  # pushing the ground is no weighing
            if state.altitude_m > 0.05:
                self._touchdown_mps = max(0.0, state.velocity_ned_mps[2])
            return
        sinks = self._touch_m - state.altitude_m > _SINKS_M and not under
        if self._touch_s == 0.0 or sinks:
            self._touch_s, self._touch_m = 0.0, state.altitude_m
        self._touch_s += dt_s
        below = state.altitude_m < _CLEAR_M  # higher up, one that lost ballast stops as well
        self._stood = self._stood or (below and self._touch_s >= _TOUCH_S)
        low = state.altitude_m < _TOUCH_HEIGHT_M and state.height_valid
        needed_s = _TOUCH_S if low else _BLIND_S
        if self._ship.doubt():
            needed_s = _DOUBT_S
        # A light ship may take that long to sink by 0.1 m, with all its thrust.
        least_m = state.altitude_m - 3.0 * state.health.height.sigma
        if state.height_valid and least_m > _TOUCH_HEIGHT_M:
            needed_s = _CLEAR_S
        if self._touch_s < needed_s or not (low or state.altitude_m < _BLIND_HEIGHT_M):
            return
        self._begin_trial(state, low=low)

    def _begin_trial(self, state: VehicleState, *, low: bool) -> None:
        self._heaviness_kg = weighed_kg = self._ship.heaviness_kg()
        displaced_kg = AIR_DENSITY_KGM3 * self._ship.airframe.hull.volume_m3
        felt_kg = self._felt_kg
        if felt_kg is not None and felt_kg < self._heaviness_kg - FELT * displaced_kg:
            self._heaviness_kg = min(felt_kg, self._heaviness_kg)
        self._resting_m = max(0.0, state.altitude_m)  # an estimate below the ground is wrong
        # A few grams sink slowly.
        self._sure = low and self._weighed_heavy and self._heaviness_kg == weighed_kg
        # What it feels or its file says may be wrong: the trial tells.
        if self._ship.weighed() and weighed_kg < 0.0:
            self._hold()
        self._trial_s = None if self.held else 0.0

    def _lifts(self, state: VehicleState, dt_s: float) -> bool:
        """Whether it is off the ground, or just leaves it; a climb by itself may be noise."""
        risen_m = max(0.0, state.altitude_m) - self._resting_m
        rising = -state.velocity_ned_mps[2] > _RISING_MPS and risen_m > _LIFTED_M
        self._rising_s = self._rising_s + dt_s if rising else 0.0
        return state.height_valid and (risen_m > _clear_m(state) or self._rising_s > _LIFTS_S)

    def _rises(self, state: VehicleState) -> bool:
        """Whether it has left the place where it was let go: press it down again."""
        risen_m = max(0.0, state.altitude_m) - self._resting_m
        if not state.height_valid or risen_m < _clear_m(state):
            return False
        self._hold_again()
        return True

    def _hold_again(self) -> None:
        """It was let go and does not stay: taken for light, it is pressed down."""
        self._heaviness_kg = min(self._heaviness_kg, self._ship.heaviness_kg(), -1e-4)
        self.landed, self.doubt = False, ""
        self._hold()

    def _drifts(self, state: VehicleState) -> bool:
        """Whether it has moved from where it was let go: its feet do not hold it, press it down."""
        drifts = has_drifted(self._idle_m, state)
        if drifts:
            self._hold_again()
        return drifts

    def _try(self, state: VehicleState, dt_s: float) -> None:
        """Stop pushing for a moment, still armed: a ship that rises was light after all."""
        assert self._trial_s is not None
        self._trial_s += dt_s
        rising = -state.velocity_ned_mps[2] > _RISING_MPS and state.height_valid
        lifts = self._lifts(state, dt_s)
        if self._rises(state) or (self._trial_s > 1.0 and lifts):
            self._hold()
        elif state.height_valid and self._resting_m - max(0.0, state.altitude_m) > _RISEN_M:
            self._trial_s, self._touch_s = None, 0.0  # it hung in the air, and sinks
        elif self._trial_s >= (_SURE_TRIAL_S if self._sure else _TRIAL_S) and not rising:
            self.doubt = self._ship.doubt() or self._hidden()
            self._idle_m = place_of(state)
            self.landed = not self.doubt

    def _hidden(self) -> str:
        """Return why a trial that it stays down in proves nothing, or ""."""
        if not self._ship.airframe.ground.hold_n:
            return ""
        if self._heaviness_kg < 0.0:
            return f"felt {-1e3 * self._heaviness_kg:.0f} g light, and its feet would hold it"
        return "" if self._ship.weighed() else UNWEIGHED


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


def _is_news(now: float | None, before: float | None) -> bool:
    if now is None or before is None:
        return now is not before
    return not (now < _NEWS * before and before < _NEWS * now) and max(now, before) > 1e-3
