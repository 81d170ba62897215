"""Armed, killed, and the last word on every setpoint and every actuator command."""

from collections import deque
from collections.abc import Callable
from math import isfinite

from blimp.control.ceiling import Ceiling
from blimp.control.failsafe import Action, Decision, Failsafe, Flags
from blimp.control.modes.descend import Descend
from blimp.control.modes.driven import DrivenDown
from blimp.control.modes.hold import Hold
from blimp.control.modes.idle import Idle
from blimp.control.modes.land import UNWEIGHED, Land, has_drifted, place_of
from blimp.control.modes.mode import FlightMode
from blimp.control.modes.rtl import ReturnToPad
from blimp.control.pilot import IDLE, Pilot
from blimp.control.recovery import adrift
from blimp.control.response import RESPONSE_TO, Deed, Response, Stance
from blimp.control.sides import Sides
from blimp.geofence import Geofence
from blimp.types import STANDS, ActuatorCommand, Contact, Setpoint, VehicleState

_CLIMB_M = 0.4  # below the lowest takeoff, 0.5 m; a stick that was touched asks for less
_WAIT_S = 5.0  # of a takeoff: a first heartbeat comes in 0.5 s, and is passed on within 1 s
_AGAIN = "see why with 'ground status'; once the failsafe is over, send takeoff again"
_MESSAGES = 8  # that a snapshot has room for
_MESSAGE_LETTERS = 200  # see above
_DESCENDED_S = 3.0  # this long on the ground ends a descent
_LIFT_S = 20.0  # by then a ship that can lift has left the ground
_LEFT = "left the ground with its motors idle: it is light, or somebody lifts it; hold it"
_LIES_S = 3.0  # this long on the ground without power, a ship is down


class Supervisor:
    """Owns the armed flag and the kill latch, and carries out the failsafe's decisions.

    Only `arm` clears `killed`; nothing else in this class or outside it does.
    """

    def __init__(
        self,
        *,
        pilot: Pilot,
        failsafe: Failsafe,
        bench: bool,
        on_landed: Callable[[], None],
        killed_s: float | None = None,
    ) -> None:
        """killed_s: when a flight process before this one was last seen killed, if it was."""
        self._pilot = pilot
        self._failsafe = failsafe
        self._bench = bench
        self._on_landed = on_landed
        self._descended_s = 0.0
        self._lifting_s = 0.0
        self._waited_s = 0.0
        self._grounded = ""  # by which failsafe, on the ground
        self._grounded_m: tuple[float, float] | None = None  # and where
        self._driven = DrivenDown(ship=pilot.ship)
        self._ceiling = Ceiling(ship=pilot.ship)
        self._sides = Sides(ship=pilot.ship)
        self.armed = False
        self.recovering = False  # armed to land after a crash, and for nothing else
        self.killed = killed_s is not None  # a restart is no arm
        self.killed_s = float("-inf") if killed_s is None else killed_s
        self.decision = Decision()
        self.adrift = ""  # that it is in the air without power, "" if it is not
        self._lies_s = 0.0
        self.response: Response | None = None  # of the last cycle under power
        self.messages: deque[str] = deque(maxlen=_MESSAGES)

    @property
    def trouble(self) -> str:
        """What is wrong with the ship now, as every face says it, "" if nothing is known."""
        if self.recovering and not self.decision.text:
            return "the flight process died in the air: landing, and nothing else until an arm"
        return self.decision.text or self.adrift

    @property
    def bench(self) -> bool:
        return self._bench

    def arm(self, state: VehicleState) -> None:
        """Arm and clear the kill latch. The checks are the caller's (see arming.py)."""
        self._driven = DrivenDown(ship=self._pilot.ship)
        self.killed = self.recovering = False
        self._grounded = self.adrift = ""
        self.armed = True
        self._failsafe.reset()
        self._pilot.payload.clear()
        self._pilot.rest(state, reason="armed")
        self.say("armed")

    def recover(self, state: VehicleState) -> None:
        """Land a ship whose flight process died in the air. The checks are the caller's."""
        self.armed = self.recovering = True
        self.adrift = ""
        self._failsafe.reset()
        land = Land(state, ship=self._pilot.ship, weigh=True)
        self._pilot.enter(land, reason="resumed after a crash")
        self.say("resumed after a crash in the air: landing, and nothing else until an arm")

    def disarm(self, state: VehicleState, *, reason: str) -> None:
        self.armed = self.recovering = False
        self.decision = Decision()
        self._pilot.rest(state, reason=reason)
        self._pilot.ship.area.fence = Geofence()  # it was that of this flight
        self.say(f"disarmed: {reason}")

    def let_go(self, state: VehicleState, *, reason: str) -> str:
        """Disarm a ship that rests on the ground, or return why it stays armed, motors idle.

        It has not weighed itself since the arm, and feet that hold can hide that it is light. A
        push upwards would not show it: a heavy ship in wind leaves its feet with less thrust than a
        light one in calm air. If it stays armed, it is held down when it rises.
        """
        if not self._pilot.ship.airframe.ground.hold_n:
            self.disarm(state, reason=reason)
            return ""
        doubt = f"{UNWEIGHED}: idle, still armed; look at it, then disarm"
        self.say(doubt)
        return doubt

    def kill(self, state: VehicleState, *, now_s: float, reason: str) -> None:
        """Latch the kill. The outputs are safe in the cycle this is called in."""
        if not self.killed:
            self.say(f"killed: {reason}")
        if self.adrift or (self.armed and not state.on_ground):
            self.adrift = adrift("killed", heaviness_kg=self._pilot.ship.weight().mean_kg)
        self.killed = True
        self.killed_s = now_s
        self.armed = self.recovering = False
        self.decision = Decision()
        self._pilot.rest(state, reason=reason)

    def say(self, message: str) -> None:
        """Add a message for the ground, unless it repeats the last one."""
        message = message[:_MESSAGE_LETTERS]  # a snapshot is one datagram
        if not self.messages or self.messages[-1] != message:
            self.messages.append(message)

    def review(self, state: VehicleState, flags: Flags, *, now_s: float, armed: bool) -> Decision:
        """Let a pilot's command end a failsafe whose cause is gone. armed: that command is `arm`.

        Return what is then in force. A failsafe whose cause persists continues until the pilot
        commands another mode.
        """
        if self.decision.action < Action.RETURN:
            return self.decision
        self._failsafe.release(state, flags, up_to=Action.IDLE if armed else Action.LAND)
        decision = self._failsafe.update(now_s, state, flags)
        if armed:  # any other command may still be refused, and then ends nothing
            self._note_decision(decision)
        return decision

    def refusal(self, decision: Decision | None = None) -> str:
        """Return why a flight command must not be taken now, or "". decision: after `review`."""
        decision = decision or self.decision
        if self.killed:
            return "killed: send arm first"
        if not self.armed:
            return "not armed: send arm first"
        if decision.action >= Action.RETURN:
            return f"failsafe in force: {decision.text}"
        if self.recovering:
            return "landing after a crash of the flight process: send arm first"
        if self._grounded and self._pilot.resting:
            return f"grounded ({self._grounded}): send disarm, then arm"
        return ""

    def decide(self, state: VehicleState, flags: Flags, *, now_s: float, dt_s: float) -> Setpoint:
        """Return the setpoint of this cycle, after the failsafe's action."""
        if self.killed or not self.armed:
            self._note_lying(state, dt_s)
            if self._bench and not self.killed and self._pilot.manual.active(now_s):
                return self._pilot.manual.update(state, dt_s=dt_s)
            return IDLE
        decision = self._failsafe.update(now_s, state, flags)
        if self.believed in STANDS and Action.LAND <= decision.action < Action.IDLE:
            lost, _, _ = decision.text.partition(":")
            decision = Decision(
                action=decision.action, text=f"{lost}: on the ground, it stays there"
            )
        self._note_decision(decision)
        self._act(decision, state)
        self._waited_s = self._waited_s + dt_s if self._pilot.paused else 0.0
        self._note_lift(state, dt_s)
        held, rested = self._sides.holds, self._pilot.resting
        setpoint = self._pilot.update(state, dt_s=dt_s)
        if rested and not self._pilot.resting:
            self.say(_LEFT)
        setpoint = self._sides.within(setpoint, state, steered=self._pilot.flying.steered)
        if self._sides.holds and not held:
            self.say("held inside the fence: steer back from it")
        setpoint = self._ceiling.under(setpoint, state)
        self._note_landing(state, dt_s)
        # Both may have disarmed. On the ground a pilot's setpoint is idle, so it needs no test.
        return IDLE if self._pilot.resting or self._is_driven(state, setpoint, dt_s) else setpoint

    def _is_driven(self, state: VehicleState, setpoint: Setpoint, dt_s: float) -> bool:
        by_hand = setpoint.actuators is not None or setpoint.thrust_body[2] is not None
        lands = self._pilot.flying.remedy is Action.LAND  # that asks itself
        if setpoint.idle or by_hand or lands:
            return False
        descent_mps = self._pilot.ship.airframe.limits.descent_mps
        return self._driven.update(state, max(descent_mps, setpoint.velocity_ned_mps[2]), dt_s)

    def gate(self, actuators: ActuatorCommand, *, now_s: float) -> str:
        """Return why these outputs must not be driven, or "": asked just before they are."""
        if self.killed:
            return "killed"
        if not self.armed and not (self._bench and self._pilot.manual.active(now_s)):
            return "not armed"
        if not isfinite(sum(actuators.motors) + sum(actuators.servos)):
            return "an actuator value is not finite"
        return ""

    def _note_decision(self, decision: Decision) -> None:
        if decision.text != self.decision.text:
            self.say(decision.text or f"over: {self.decision.text}")
        self.decision = decision

    def _act(self, decision: Decision, state: VehicleState) -> None:
        pilot, action, reason = self._pilot, decision.action, decision.text
        self.response = RESPONSE_TO[self._stance(decision, state), action]
        match self.response.does:
            case Deed.GROUND if self._grounded != reason:
                self._grounded, self._grounded_m = reason, place_of(state)
                self.let_go(state, reason=f"on the ground, {reason}")
            case Deed.LAND_AGAIN:
                land = Land(state, ship=pilot.ship, down=True)
                pilot.enter(land, reason="it does not stay where it was let go")
            case Deed.RESUME:
                pilot.resume(state)
            case Deed.WAIT if self._waited_s > _WAIT_S:
                pilot.rest(state, reason=f"{reason}: for {_WAIT_S:g} s: {_AGAIN}")
            case Deed.HOLD | Deed.WAIT:
                lost = pilot.mode.remedy is Action.RETURN and not state.position_valid
                held = pilot.flying.remedy >= action and not lost
                if not held and not pilot.paused:
                    pilot.pause(Hold(state, ship=pilot.ship, yaw_rad=pilot.heading_rad(state)))
            case Deed.REST:
                pilot.rest(state, reason=reason)
            case Deed.LAND:
                land = Land(state, ship=pilot.ship, pushed=True)
                pilot.enter(land, reason="attitude and height are known again")
                self.say(f"{pilot.reason}: landing, until a mode is commanded")
            case Deed.ENTER if pilot.flying.remedy < action:
                pilot.enter(self._remedy(action, state), reason=reason)

    def _stance(self, decision: Decision, state: VehicleState) -> Stance:
        """Return the one that holds: what rests has no landing, and no landing may rest."""
        pilot = self._pilot
        if pilot.rests(state):
            same = self._grounded == decision.text
            return Stance.STRAYED if same and has_drifted(self._grounded_m, state) else Stance.RESTS
        if pilot.can_rest(state):
            return Stance.STARTS if self._takes_off(state) else Stance.STANDS
        if self.is_down(state):
            return Stance.DOWN
        return Stance.BLIND if pilot.flying.remedy is Action.DESCEND else Stance.FLIES

    def _takes_off(self, state: VehicleState) -> bool:
        target = self._pilot.mode.target_ned_m
        return target is not None and state.position_ned_m[2] - target[2] > _CLIMB_M

    @property
    def believed(self) -> Contact:
        """What the mode that flies has found out about the ground."""
        return self._pilot.flying.contact if self.armed else Contact.AIRBORNE

    def is_down(self, state: VehicleState) -> bool:
        """Whether it has landed: nothing else may release a held ship, or move one in doubt.

        A person has read that its motors are idle, and comes to look.
        """
        contact = self._pilot.flying.contact
        return contact in STANDS or (contact is Contact.TOUCHING and state.height_valid)

    def _remedy(self, action: Action, state: VehicleState) -> FlightMode:
        ship = self._pilot.ship
        if action == Action.IDLE:
            return Idle(ship=ship)
        if action == Action.DESCEND:
            return Descend(state, ship=ship)
        if action == Action.LAND:
            return Land(state, ship=ship)
        return ReturnToPad(state, ship=ship)

    def _note_lift(self, state: VehicleState, dt_s: float) -> None:
        """Stop the motors of a ship that does not leave the ground, and inform its pilot."""
        pilot = self._pilot
        lifting = (
            pilot.flying.lifts and not pilot.resting and state.on_ground and state.height_valid
        )
        self._lifting_s = self._lifting_s + dt_s if lifting else 0.0
        if self._lifting_s > _LIFT_S:
            reason = f"does not lift in {_LIFT_S:g} s: too heavy, held, or motors without thrust"
            pilot.rest(state, reason=reason)
            self.say(reason)
            self._lifting_s = 0.0

    def _note_lying(self, state: VehicleState, dt_s: float) -> None:
        """End what is said of a ship without power once it lies on the ground."""
        lies = bool(self.adrift) and state.on_ground and state.height_valid
        self._lies_s = self._lies_s + dt_s if lies else 0.0
        if self._lies_s > _LIES_S:
            self.adrift = ""
            self.say("down, without power")

    def _note_landing(self, state: VehicleState, dt_s: float) -> None:
        mode = self._pilot.flying
        if mode.landed and mode.remedy is Action.LAND:
            self._on_landed()  # in doubt, or held after it rose, nothing is set to 0
            self.disarm(state, reason="landed")
        elif mode.note:
            self.say(mode.note)
        if mode.landed and mode.remedy is Action.IDLE:
            self.disarm(state, reason="down after the last stage")
        down = mode.remedy is Action.DESCEND and state.height_valid and state.on_ground
        down = down and not state.touch.doubt
        self._descended_s = self._descended_s + dt_s if down else 0.0
        if self._descended_s > _DESCENDED_S:
            land = Land(state, ship=self._pilot.ship, pushed=True, down=True)
            self._pilot.enter(land, reason="down after losing attitude")
