"""From a setpoint to the actuators, and whether the ship does what they are sent."""

from blimp.constants import GRAVITY_MPS2
from blimp.control.bounds import lifts
from blimp.control.controller import Controller
from blimp.control.effect import EffectCheck
from blimp.control.mixer import Mixer
from blimp.control.pilot import Pilot
from blimp.control.supervisor import Supervisor
from blimp.control.weight import EVEN, Weight
from blimp.types import ActuatorCommand, Contact, Setpoint, VehicleState, Wrench

_PUSHED = 0.3  # of the vertical force: less may be a gust's
_ASKED = 0.5  # of the vertical force
_RISING_MPS = 0.1  # a ship that rises against its commands
_UNHEEDED_S = 4.0  # asked to sink, it does not: from then on height goes before all else
_UNHEEDED = 0.25  # of the sink rate that was asked for
_ASKED_MPS = 0.1  # less is not asked in earnest
_HEIGHT_FIRST_S = 10.0  # how long height goes before all else


class Actuation:
    """Call `allocate` once a cycle, and then `watch`.

    rising_s: sent down and rising all the same, for so long. unmoved_s: pushed down and not
    sinking, for so long. driven_up: it rises faster than it would without thrust.
    """

    def __init__(
        self,
        *,
        controller: Controller,
        mixer: Mixer,
        effect: EffectCheck,
        supervisor: Supervisor,
        pilot: Pilot,
    ) -> None:
        self._controller = controller
        self._mixer = mixer
        self._effect = effect
        self._supervisor = supervisor
        self._pilot = pilot
        self.rising_s = self.unmoved_s = 0.0
        self.driven_up = self._was_armed = self._says_light = False
        self._unheeded_s = self._height_first_s = 0.0

    @property
    def broken(self) -> tuple[str, ...]:
        """The outputs that do not do what is commanded."""
        return self._effect.broken

    @property
    def astray(self) -> bool:
        """Whether a motor that lifts the ship, or pushes it down, runs by itself."""
        airframe = self._pilot.ship.airframe
        return any(fault.runs and lifts(airframe, fault.names) for fault in self._effect.faults)

    @property
    def spared(self) -> float:
        """The share of surge, heave and yaw that is left without one that does nothing."""
        effect = self._effect
        is_one = len(effect.faults) == 1 and effect.only_dead and not effect.asleep
        return self._mixer.left_over if is_one else 0.0

    @property
    def weight(self) -> Weight:
        """What it weighs, as flight has shown it."""
        return self._controller.weight

    @property
    def thrust(self) -> Wrench | None:
        """What the thrusters give; None if that is not what the mixer says."""
        return self._mixer.achieved if self._knows_thrust else None

    @property
    def _knows_thrust(self) -> bool:
        return self._effect.only_dead and not self._mixer.doubted

    def allocate(
        self, state: VehicleState, setpoint: Setpoint, *, unhealthy: tuple[str, ...], dt_s: float
    ) -> ActuatorCommand:
        """Setpoint to actuators: straight through if a person holds the sticks.

        unhealthy: the devices that do not answer.
        """
        self._mixer.leave_out(self._effect.fixed_n, asleep=self._effect.asleep)
        stuck_rad = self._effect.stuck_rad
        if setpoint.idle or setpoint.actuators is not None:
            if setpoint.idle:
                self._controller.reset()
            actuators = setpoint.actuators or self._mixer.neutral
            self._mixer.follow(actuators, dt_s=dt_s, unhealthy=unhealthy, stuck_rad=stuck_rad)
            return actuators
        height_first = self._height_first_s > 0.0
        wrench = self._controller.update(
            state,
            setpoint,
            dt_s=dt_s,
            achieved=self._mixer.achieved,
            saturated=self._mixer.saturated,
            sways=self._mixer.sways,
            straight=self._mixer.straight,
            weighs=self._knows_thrust and not state.touch.carried,
            height_first=height_first,
        )
        command = self._mixer.allocate(
            wrench,
            dt_s=dt_s,
            forward_mps=self._controller.forward_mps(state),
            unhealthy=unhealthy,
            stuck_rad=stuck_rad,
            height_first=height_first,
        )
        return self._effect.correct(command)

    def watch(self, state: VehicleState, setpoint: Setpoint, *, powered: bool, dt_s: float) -> None:
        """Compare what the outputs were sent with what the ship does.

        powered: whether they were driven in the last cycle.
        """
        if self._supervisor.armed and not self._was_armed:
            self._controller.weigh_again()  # somebody may have changed its ballast
            self._says_light = False
        self._was_armed = self._supervisor.armed
        self._check_effect(state, dt_s)
        self._check_height(state, setpoint, powered=powered, dt_s=dt_s)
        self._check_weight(state)

    def _check_effect(self, state: VehicleState, dt_s: float) -> None:
        """Name what is newly broken, and what follows its commands again."""
        effect, supervisor = self._effect, self._supervisor
        thrusts_n, known = self._mixer.thrusts_n, effect.faults
        rises = -state.velocity_ned_mps[2] > _RISING_MPS  # no ground makes it
        if not supervisor.armed:
            effect.reset()
            known = ()  # forgotten for a new flight, not taken back
        elif (
            thrusts_n is None
            or state.coasting
            or supervisor.is_down(state)
            or supervisor.believed is Contact.UNKNOWN
            or (state.touch.carried and not rises)
        ):
            effect.pause()  # what lies on the ground does not follow a push; a model always does
        else:
            tilts_rad = self._mixer.tilts_rad
            effect.update(
                state,
                thrusts_n,
                tilts_rad,
                weight_n=GRAVITY_MPS2 * self.weight.mean_kg,
                fins=self._mixer.fins_made,
                wind_ned_mps=(*self._controller.wind.north_east_mps, 0.0),
                heavy=self.weight.may_let_go,
                dt_s=dt_s,
            )
        for fault in effect.faults:
            if fault in known:
                continue
            supervisor.say(fault.message)
            self._controller.correct(lifts=lifts(self._pilot.ship.airframe, fault.names))
        for fault in known:
            if not set(fault.names) & set(effect.broken):
                supervisor.say(f"{' and '.join(fault.names)}: follows its commands again")

    def _check_weight(self, state: VehicleState) -> None:
        """Ask a person to hold a ship that lifts more than its thrust can press down."""
        weight = self.weight
        if self._says_light or state.on_ground or weight.mean_kg >= 0.0:
            return
        push_n = self._mixer.reach_n(2, 1.0)
        if weight.p_light(push_n / GRAVITY_MPS2) > EVEN:
            self._says_light = True
            light_g = -1e3 * weight.mean_kg
            self._supervisor.say(
                f"light by about {light_g:.1f} g, {weight.evidence}, and thrust pushes down "
                f"{1e3 * push_n / GRAVITY_MPS2:.1f} g at the most: hold the ship"
            )

    def _check_height(
        self, state: VehicleState, setpoint: Setpoint, *, powered: bool, dt_s: float
    ) -> None:
        """Count for how long a ship that is sent down does not sink."""
        down_n = self._mixer.achieved.force_body_n[2]
        pushed = down_n > _PUSHED * self._mixer.limit_n(2)
        # A broken output may leave no push to command: what is asked counts, if slower.
        asked = not setpoint.idle and setpoint.velocity_ned_mps[2] > 0.0
        free = not state.touch.carried  # else no push moves it
        commanded = powered and state.height_valid and free and (pushed or asked)
        rises = -state.velocity_ned_mps[2] > _RISING_MPS and not state.on_ground
        share = 1.0 if pushed else _ASKED
        self.rising_s = self.rising_s + share * dt_s if commanded and rises else 0.0
        down_mps = self._controller.asked_mps
        unheeded = (
            powered
            and state.height_valid
            and free
            and not state.on_ground
            and down_mps > _ASKED_MPS
            and state.velocity_ned_mps[2] < _UNHEEDED * down_mps
        )
        self._unheeded_s = self._unheeded_s + dt_s if unheeded else 0.0
        self.unmoved_s = self.unmoved_s + dt_s if unheeded and pushed else 0.0
        if not self._supervisor.armed:
            self._height_first_s = 0.0
        elif not state.on_ground:  # held down there, it would come off again
            self._height_first_s = max(0.0, self._height_first_s - dt_s)
        if self._unheeded_s > _UNHEEDED_S:
            self._height_first_s = _HEIGHT_FIRST_S
        weight_n = GRAVITY_MPS2 * self.weight.level_kg
        self.driven_up = -state.velocity_ned_mps[2] > self._effect.float_mps(weight_n)
