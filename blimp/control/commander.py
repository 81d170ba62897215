"""Commands in, outcomes out: where queue time becomes flight time.

A command id acts once. A redelivered one gets its present outcome and moves nothing; a
stale one, one with an older fence or authority or one meant for another boot is refused. The
emergency stop passes all of that.
"""

from collections.abc import Callable, Sequence
from math import degrees, dist, hypot, isfinite, radians
from typing import Any, cast

import msgspec

from blimp import actions as forms
from blimp.ability import ability, lacking, without
from blimp.actions import ACTIONS, MODE_NEEDS, Need
from blimp.airframe import Airframe
from blimp.control.admission import Refusal, admit
from blimp.control.arguments import geofence_of, parse, payload_name, payload_rad, servo_of
from blimp.control.arming import Readiness, problems, substitutes
from blimp.control.authority import FLIES_BY_HAND, AuthorityFence, OlderAuthority
from blimp.control.failsafe import Action, Flags
from blimp.control.inside import check_leg, check_points, check_velocity
from blimp.control.memory import OutcomeMemory, Seen
from blimp.control.modes.auto import Auto
from blimp.control.modes.follow import Follow
from blimp.control.modes.land import Land
from blimp.control.modes.loiter import Loiter, heading_rad
from blimp.control.modes.manual import Order
from blimp.control.modes.mode import FlightMode, Stick
from blimp.control.modes.rtl import ReturnToPad
from blimp.control.modes.table import MODES
from blimp.control.modes.velocity import Velocity
from blimp.control.path import Reference
from blimp.control.pilot import Pilot
from blimp.control.running import (
    FlightInProgress,
    OrderInProgress,
    Running,
    WiresInProgress,
    judge,
)
from blimp.control.samples import role
from blimp.control.supervisor import Supervisor
from blimp.geofence import Geofence
from blimp.parameters import with_parameter
from blimp.types import STANDS, Command, Mode, Outcome, OutcomeState, SensorStatus, VehicleState
from blimp.wires.check import WireCheck

_PROGRESS_S = 0.2  # between two reports of one command
_CAMERA_S = 3.0  # frames come 5 to 30 times a second: this is no hiccup
_SERVO_S = 10.0  # an angle without a time is kept this long
# The most of help first. MANUAL needs nothing.
FLOWN_BY_HAND = (Mode.ALTHOLD, Mode.STABILIZE, Mode.MANUAL)
_REFERENCE_M = 1.0  # a leg starts where the last one ended if the ship is this near


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler may look at."""

    now_s: float
    state: VehicleState
    flags: Flags


class Commander:
    """`handle` one command at a time; `progress` once a cycle for those under way."""

    def __init__(
        self,
        *,
        airframe: Airframe,
        pilot: Pilot,
        supervisor: Supervisor,
        sensors: Callable[[float], dict[str, SensorStatus]],
        boot_id: str,
        max_wind_mps: float,
        memory: OutcomeMemory | None = None,
        pad_deg: Callable[[], tuple[float, float] | None] = lambda: None,
        take_over: Callable[[Airframe], object] | None = None,
    ) -> None:
        """take_over: begins another flight loop with that airframe after this cycle; None where
        nobody can.
        """
        self._airframe = airframe
        self._lacks = lacking(airframe)
        self._pilot = pilot
        self._supervisor = supervisor
        self._sensors = sensors
        self._boot_id = boot_id
        self._max_wind_mps = max_wind_mps
        self._pad_deg = pad_deg
        self._take_over = take_over
        self._ends = False
        self._memory = memory or OutcomeMemory()
        self.authority = AuthorityFence()
        self._obeyed = 0
        self._running: list[Running] = []

    @property
    def _fence(self) -> Geofence:
        return self._pilot.ship.area.fence

    @property
    def active(self) -> str:
        """The flight command under way as "name id", or ""."""
        flights = [r.command for r in self._running if isinstance(r, FlightInProgress)]
        return f"{flights[-1].name} {flights[-1].id}" if flights else ""

    def handle(
        self, command: Command, *, now_s: float, state: VehicleState, flags: Flags
    ) -> Outcome:
        """Carry out `command`, or say why not. Never raises for what a command contains."""
        seen = self._memory.get(command.id)
        if seen is not None and (seen.name == command.name or command.name != "estop"):
            return self._answer_again(command, seen)
        authority = self.authority
        if authority.held and authority.silent and authority.takes(command):
            # Who takes control is there instead of the one who is lost.
            flags = msgspec.structs.replace(flags, pilot_lost_s=None)
        situation = Situation(now_s=now_s, state=state, flags=flags)
        try:
            authority.admit(command)
            admit(command, boot_id=self._boot_id)
            outcome = self._dispatch(command, situation)
            if authority.held and authority.takes(command) and command.name not in FLIES_BY_HAND:
                self._pilot.abandon(state, reason=_superseded(command))
            authority.obeyed(command)
        except OlderAuthority as refusal:
            newest = {"authority": self.authority.newest}
            outcome = self._outcome(
                command, OutcomeState.REFUSED, reason=str(refusal), result=newest
            )
        except (Refusal, ValueError) as refusal:
            outcome = self._outcome(command, OutcomeState.REFUSED, reason=str(refusal))
        self._memory.put(outcome, name=command.name, fence=command.fence)
        return outcome

    def obey(
        self, name: str, /, *, now_s: float, state: VehicleState, flags: Flags, **arguments: Any
    ) -> str:
        """Carry out a command of the pilot at the transmitter; return why not, or ""."""
        self._obeyed += 1
        command = Command(
            id=f"transmitter-{self._obeyed}",
            name=name,
            arguments=arguments,
            source="the transmitter",
        )
        try:
            self._dispatch(command, Situation(now_s=now_s, state=state, flags=flags))
        except (Refusal, ValueError) as refusal:
            return str(refusal)
        return ""

    def lift(self, number: Mode, *, now_s: float, state: VehicleState, flags: Flags) -> str:
        """Let a mode that sticks fly begin on the ground; return why not, or ""."""
        at = Situation(now_s=now_s, state=state, flags=flags)
        mode = MODES[number](state, self._pilot.ship)
        try:
            self._must_fly(at)
            if decision := self._supervisor.decision.text:  # it would rest again at once
                raise Refusal(f"failsafe in force: {decision}")
            self._must_have(MODE_NEEDS[number], at, number.name)
        except Refusal as refusal:
            return str(refusal)
        self._pilot.enter(mode, reason="the transmitter's stick")
        return ""

    def _answer_again(self, command: Command, seen: Seen) -> Outcome:
        """Answer an id that was answered before: nothing moves."""
        reason = ""
        if seen.name != command.name:
            reason = f"id {command.id} was that of a {seen.name}: use a new one"
        elif command.fence < seen.fence and command.name != "estop":
            reason = f"fence {command.fence} is older than {seen.fence}, the newest seen"
        if reason:
            return self._outcome(command, OutcomeState.REFUSED, reason=reason)
        self._memory.put(seen.outcome, name=seen.name, fence=command.fence)
        return seen.outcome

    def progress(self, now_s: float) -> list[Outcome]:
        """Return what has become of commands under way: at 5 Hz, and once at their end."""
        if not self._running:
            return []
        news = []
        for running in tuple(self._running):
            outcome = self._tell(running, now_s)
            if outcome is None:
                continue
            news.append(outcome)
            name, fence = running.command.name, running.command.fence
            self._memory.put(outcome, name=name, fence=fence)
            if outcome.state is not OutcomeState.IN_PROGRESS:
                self._running.remove(running)
        return news

    def arming_reasons(self, *, now_s: float, state: VehicleState, flags: Flags) -> tuple[str, ...]:
        """Return every reason not to arm, each with its cure."""
        return problems(self._readiness(now_s, state, flags))

    def _readiness(self, now_s: float, state: VehicleState, flags: Flags) -> Readiness:
        sensors = self._sensors(now_s)
        return Readiness(
            airframe=self._airframe,
            state=state,
            flags=flags,
            sensors=sensors,
            max_wind_mps=self._max_wind_mps,
        )

    # --- handlers ----------------------------------------------------------------------

    def _dispatch(self, command: Command, situation: Situation) -> Outcome:
        handler = HANDLERS.get(command.name)
        if handler is None:
            raise Refusal(f"no command {command.name!r}; commands are {', '.join(HANDLERS)}")
        if command.name == "estop":  # whatever its arguments say
            return handler(self, command, forms.Nothing(), situation)
        parsed = parse(command.name, command.arguments, self._airframe)
        self._must_have(ACTIONS[command.name].needs, situation, command.name)
        return handler(self, command, parsed, situation)

    def ping(self, command: Command, _: forms.Nothing, at: Situation) -> Outcome:
        return self._done(command, at, {"t_s": at.now_s, "boot_id": self._boot_id})

    def limits(self, command: Command, _: forms.Nothing, at: Situation) -> Outcome:
        found = ability(self._airframe, battery_v=at.flags.battery_v, pad_deg=self._pad_deg())
        return self._done(command, at, cast(dict[str, Any], msgspec.to_builtins(found)))

    def sensor(self, command: Command, wish: forms.Sensor, at: Situation) -> Outcome:
        statuses = self._sensors(at.now_s)
        status = statuses.get(wish.name)
        if status is None:
            known = ", ".join(sorted(statuses)) or "none"
            raise Refusal(f"sensor: name: no sensor {wish.name!r}; sensors are {known}")
        return self._done(command, at, cast(dict[str, Any], msgspec.to_builtins(status)))

    def arm(self, command: Command, wish: forms.Arm, at: Situation) -> Outcome:
        supervisor = self._supervisor
        if self._ends:
            raise Refusal("arm: a parameter is being set: send arm again in a moment")
        if supervisor.armed and not supervisor.recovering:
            supervisor.review(at.state, at.flags, now_s=at.now_s, armed=True)
            return self._done(command, at, {"armed": True})
        issued_s = at.now_s - max(0.0, command.age_s) - command.waited_s
        if supervisor.killed and issued_s <= supervisor.killed_s:
            raise Refusal("arm was sent before the emergency stop: send a new arm")
        if wish.force:
            if not supervisor.bench:
                raise Refusal("arm: force works only on the bench (start with --bench)")
        elif not supervisor.recovering:  # else its motors run already: a pilot takes over
            found = self.arming_reasons(now_s=at.now_s, state=at.state, flags=at.flags)
            if found:
                raise Refusal("not ready to arm: " + " | ".join(found))
        supervisor.arm(at.state)
        for note in substitutes(self._readiness(at.now_s, at.state, at.flags)):
            supervisor.say(note)
        return self._done(command, at, {"armed": True})

    def disarm(self, command: Command, _: forms.Nothing, at: Situation) -> Outcome:
        if self._supervisor.armed:
            # A person may say what no sensor can: that a ship that lies there is down.
            said = self._pilot.resting or self._supervisor.believed in STANDS
            if not (at.state.on_ground or said):
                where = f"in the air at {at.state.altitude_m:.1f} m"
                if not at.state.height_valid:
                    where = "height not known, so perhaps in the air"
                raise Refusal(f"{where}: send land, or estop to stop the motors at once")
            self._supervisor.disarm(at.state, reason=f"by {_who(command)}")
        return self._done(command, at, {"armed": False})

    def estop(self, command: Command, _: forms.Nothing, at: Situation) -> Outcome:
        reason = f"emergency stop by {_who(command)}"
        # It may have been sent after this cycle began: what was issued before it is older.
        sent_s = command.sent_s if isfinite(command.waited_s) else None
        killed_s = at.now_s if sent_s is None else max(at.now_s, sent_s)
        self._supervisor.kill(at.state, now_s=killed_s, reason=reason)
        return self._done(command, at, {"killed": True})

    def set_mode(self, command: Command, wish: forms.SetMode, at: Situation) -> Outcome:
        number = Mode[wish.name.upper()]
        if number is Mode.MANUAL:
            manual = self._pilot.manual
            if self._pilot.flying is not manual:
                flies = not self._pilot.rests(at.state) and not at.state.on_ground
                manual.begin(at.now_s, in_flight=flies)
            self._pilot.enter(manual, reason=_superseded(command))
            return self._entered(command, at, {"mode": number.name})
        factory = MODES.get(number)
        mode = None if factory is None else factory(at.state, self._pilot.ship)
        self._must_have(MODE_NEEDS[number], at, number.name)
        if number is Mode.HOLD:
            return self.hold(command, forms.Nothing(), at)
        if self._pilot.rests(at.state) and not (mode is not None and mode.steered):
            if number is Mode.LAND:
                self._pilot.rest(at.state, reason=_superseded(command))
                return self._done(command, at, {"mode": number.name, "on_ground": True})
            raise Refusal(f"mode: {number.name}: on the ground: send takeoff first")
        if mode is None:
            command_name = "follow" if number is Mode.FOLLOW else "trajectory"
            raise Refusal(f"mode: {number.name} cannot be entered: send a {command_name}")
        self._pilot.enter(mode, reason=_superseded(command))
        return self._entered(command, at, {"mode": number.name})

    def takeoff(self, command: Command, wish: forms.Takeoff, at: Situation) -> Outcome:
        north, east, _ = at.state.position_ned_m
        check_leg("takeoff", self._fence, at.state, (north, east), wish.altitude_m)
        target = (north, east, -wish.altitude_m)
        return self._fly(command, at, Loiter(at.state, ship=self._pilot.ship, target_ned_m=target))

    def goto(self, command: Command, wish: forms.Goto, at: Situation) -> Outcome:
        check_leg("goto", self._fence, at.state, (wish.north_m, wish.east_m), wish.altitude_m)
        mode = Loiter(
            at.state,
            ship=self._pilot.ship,
            target_ned_m=(wish.north_m, wish.east_m, -wish.altitude_m),
            start_ned_m=self._leg_start(at.state),
            yaw_rad=None if wish.yaw_deg is None else heading_rad(wish.yaw_deg),
            speed_mps=wish.speed_mps,
            before=self._reference(at.state, wish),
        )
        return self._fly(command, at, mode)

    def set_velocity(self, command: Command, wish: forms.SetVelocity, at: Situation) -> Outcome:
        check_velocity(self._fence, at.state, wish, self._airframe.limits)
        mode = Velocity(
            at.state,
            ship=self._pilot.ship,
            velocity_ned_mps=(wish.north_mps, wish.east_mps, -wish.up_mps),
            seconds=wish.seconds,
            yaw_rad=self._pilot.heading_rad(at.state),
            before=self._pilot.flying.demand,
        )
        return self._fly(command, at, mode)

    def trajectory(self, command: Command, wish: forms.FlyTrajectory, at: Situation) -> Outcome:
        mode = self._pilot.mode
        before = mode.end_before(wish.name, wish.points)
        check_points(self._fence, wish.points, before=before)
        if before is not None:
            mode.extend(wish.points, last=wish.last)
        else:
            mode = Auto(
                at.state, ship=self._pilot.ship, name=wish.name, points=wish.points, last=wish.last
            )
            self._pilot.enter(mode, reason=_superseded(command))
        if wish.last:
            return self._follow(command, at, mode)
        return self._entered(command, at, {**mode.result, "until_s": wish.points[-1].t_s})

    def follow(self, command: Command, wish: forms.FollowSeen, at: Situation) -> Outcome:
        mode = Follow(at.state, ship=self._pilot.ship, wish=wish, before=self._pilot.flying.demand)
        return self._fly(command, at, mode)

    def stick(self, command: Command, wish: forms.PushStick, at: Situation) -> Outcome:
        stick = Stick(
            forward=wish.forward_percent / 100.0,
            right=wish.right_percent / 100.0,
            up=wish.up_percent / 100.0,
            turn=wish.turn_percent / 100.0,
            until_s=at.now_s + wish.seconds,
        )
        mode = self._pilot.number.name
        if not self._pilot.flying.push(stick):
            raise Refusal(f"stick: works only in STABILIZE and ALTHOLD; the mode is {mode}")
        return self._done(command, at, {"mode": mode, "seconds": wish.seconds})

    def hold(self, command: Command, _: forms.Nothing, at: Situation) -> Outcome:
        self._pilot.hold(at.state, reason=_superseded(command))
        return self._done(command, at, {"mode": Mode.HOLD.name})

    def land(self, command: Command, _: forms.Nothing, at: Situation) -> Outcome:
        supervisor, refusal = self._supervisor, self._supervisor.refusal()
        if supervisor.armed and self._pilot.rests(
            at.state
        ):  # nothing moves, whatever else is in force
            doubt = supervisor.let_go(at.state, reason="landed")
            result = {"touchdown_mps": 0.0, **({"doubt": doubt} if doubt else {})}
            return self._done(command, at, result)
        returning = supervisor.armed and self._pilot.mode.remedy is Action.RETURN
        if refusal and not returning and not supervisor.recovering:
            raise Refusal(refusal)
        return self._fly(command, at, Land(at.state, ship=self._pilot.ship, weigh=True))

    def return_to_pad(self, command: Command, _: forms.Nothing, at: Situation) -> Outcome:
        return self._fly(command, at, ReturnToPad(at.state, ship=self._pilot.ship))

    def set_geofence(self, command: Command, wish: forms.SetGeofence, at: Situation) -> Outcome:
        self._pilot.ship.area.fence = geofence_of(wish)
        return self._done(command, at, {"zones": len(wish.zones), "rally": len(wish.rally)})

    def set_parameter(self, command: Command, wish: forms.SetParameter, at: Situation) -> Outcome:
        if self._ends:
            raise Refusal("param: another parameter is being set: send this one again in a moment")
        changed = with_parameter(self._airframe, wish.name, wish.value)
        if changed != self._airframe:
            if self._take_over is None:
                raise Refusal("param: this flight loop cannot change its airframe")
            self._take_over(changed)
            self._ends = True
        return self._done(command, at, {"name": wish.name, "value": wish.value})

    def payload(self, command: Command, wish: forms.Payload, at: Situation) -> Outcome:
        name, angle_rad = payload_name(wish, self._airframe), payload_rad(wish, self._airframe)
        self._pilot.payload.turn(name, angle_rad)
        return self._done(command, at, {"name": name, "deg": round(degrees(angle_rad), 1)})

    def motor(self, command: Command, wish: forms.Motor, at: Situation) -> Outcome:
        return self._order(command, at, wish.name, wish.percent / 100.0, wish.seconds, wait=True)

    def servo(self, command: Command, wish: forms.Servo, at: Situation) -> Outcome:
        seconds = _SERVO_S if wish.seconds is None else wish.seconds
        wait = wish.seconds is not None
        servo = servo_of(self._airframe, wish.name)
        angle = max(servo.min_rad, min(servo.max_rad, radians(wish.deg)))
        return self._order(command, at, wish.name, angle, seconds, wait=wait)

    def wires(self, command: Command, _: forms.Nothing, at: Situation) -> Outcome:
        manual = self._pilot.manual
        imu = next((d.name for d in self._airframe.device if role(d) == "imu"), "")
        if manual.in_flight:
            raise Refusal("wires: works only while the ship is held or on a string, not in flight")
        if not imu:
            raise Refusal(f"wires: {self._airframe.name} has no imu that could feel a push")
        manual.clear()
        manual.check = WireCheck(
            airframe=self._airframe, imu=imu, felt=lambda now_s: self._sensors(now_s).get(imu)
        )
        self._running.append(
            WiresInProgress(
                command=command, accepted_s=at.now_s, reported_s=at.now_s, check=manual.check
            )
        )
        return self._outcome(command, OutcomeState.IN_PROGRESS, accepted_s=at.now_s)

    # --- what handlers share -------------------------------------------------------------

    def _must_have(self, needs: Sequence[Need], at: Situation, what: str) -> None:
        """Refuse what this airframe can never do, and then what cannot be done now."""
        for need in needs:
            if need in self._lacks:
                by_hand = [m for m in FLOWN_BY_HAND if not {*MODE_NEEDS[m]} & {*self._lacks}]
                instead = "" if need is Need.CAMERA else f"; fly {by_hand[0].name}"
                raise Refusal(
                    f"{what} needs {need}: {self._airframe.name} has {without(need)}{instead}"
                )
        for need in needs:
            _CHECKS[need](self, at, what)

    def _must_fly(self, at: Situation, _: str = "") -> None:
        decision = self._supervisor.review(at.state, at.flags, now_s=at.now_s, armed=False)
        refusal = self._supervisor.refusal(decision)
        if refusal:
            raise Refusal(refusal)

    def _must_be_up(self, at: Situation, what: str) -> None:
        if self._pilot.rests(at.state):
            raise Refusal(f"{what}: on the ground: send takeoff first")

    def _must_see(self, at: Situation, what: str) -> None:
        seen = self._pilot.seen
        if seen is None or at.now_s - seen.t_s > _CAMERA_S:
            age = "nothing yet" if seen is None else f"nothing for {at.now_s - seen.t_s:.1f} s"
            raise Refusal(f"{what}: the camera has sent {age}: is blimp camera running?")

    def _must_be_by_hand(self, _: Situation, what: str) -> None:
        supervisor, pilot = self._supervisor, self._pilot
        if supervisor.killed:
            raise Refusal("killed: send arm first")
        if supervisor.armed and pilot.flying is not pilot.manual:
            raise Refusal(
                f"{what}: works only in MANUAL or on the bench; the mode is {pilot.number.name}"
            )
        if not supervisor.armed and not supervisor.bench:
            raise Refusal(f"{what}: not armed: arm and enter MANUAL, or start with --bench")

    def _must_be_disarmed(self, _: Situation, what: str) -> None:
        if self._supervisor.armed or self._supervisor.recovering:
            raise Refusal(f"{what}: works only while disarmed: no flight changes on the way")
        if self._supervisor.killed:  # a person looks at a stopped ship first
            raise Refusal(f"{what}: killed: arm and disarm first")

    def _must_rest(self, at: Situation, what: str) -> None:
        if not self._pilot.rests(at.state):
            raise Refusal(
                f"{what}: works only on the ground: no flight loses its limits on the way"
            )

    def _leg_start(self, state: VehicleState) -> tuple[float, float, float] | None:
        """Return the corner the last leg ended at, so that legs join; None if it is far."""
        mode = self._pilot.mode
        corner = mode.target_ned_m
        if self._pilot.paused or corner is None or not mode.done:
            return None
        off = hypot(*(a - b for a, b in zip(corner, state.position_ned_m, strict=True)))
        return corner if off < _REFERENCE_M else None

    def _reference(self, state: VehicleState, wish: forms.Goto) -> Reference | None:
        """Return where the leg under way is; None if far, or if the way leaves the fence."""
        reference = None if self._pilot.paused else self._pilot.mode.reference
        if reference is None:
            return None
        north, east, down = reference.position_ned_m
        place = (wish.north_m, wish.east_m, wish.altitude_m)
        if dist(reference.position_ned_m, state.position_ned_m) >= _REFERENCE_M:
            return None
        return None if self._fence.way_problem((north, east, -down), place) else reference

    def _fly(self, command: Command, at: Situation, mode: FlightMode) -> Outcome:
        self._pilot.enter(mode, reason=_superseded(command))
        return self._follow(command, at, mode)

    def _follow(self, command: Command, at: Situation, mode: FlightMode) -> Outcome:
        """Tell of `mode` until it is done."""
        self._running.append(
            FlightInProgress(command=command, accepted_s=at.now_s, reported_s=at.now_s, mode=mode)
        )
        return self._outcome(
            command, OutcomeState.IN_PROGRESS, reason=self._waits(), accepted_s=at.now_s
        )

    def _waits(self) -> str:
        """Return which failsafe keeps the entered mode from flying now, or ""."""
        decision, pilot = self._supervisor.decision, self._pilot
        held = pilot.paused or pilot.mode.remedy < decision.action
        return f"waits: {decision.text}" if held and decision.text else ""

    def _entered(self, command: Command, at: Situation, result: dict[str, Any]) -> Outcome:
        """Return the end of a command that enters a mode and does not follow it."""
        waits = self._waits()
        return self._done(command, at, {**result, "note": waits} if waits else result)

    def _order(
        self,
        command: Command,
        at: Situation,
        name: str,
        value: float,
        seconds: float,
        *,
        wait: bool,
    ) -> Outcome:
        order = Order(
            value=value,
            started_s=at.now_s,
            until_s=at.now_s + seconds,
            command_id=command.id,
        )
        if self._pilot.manual.checks:
            raise Refusal(f"{command.name}: the wires are being tried: wait for the end, or stop")
        self._pilot.manual.order(name, order)
        if not wait:
            return self._done(command, at, {"value": value, "seconds": seconds})
        self._running.append(
            OrderInProgress(
                command=command,
                accepted_s=at.now_s,
                reported_s=at.now_s,
                actuator=name,
                order=order,
            )
        )
        return self._outcome(command, OutcomeState.IN_PROGRESS, accepted_s=at.now_s)

    # --- outcomes ------------------------------------------------------------------------

    def _tell(self, running: Running, now_s: float) -> Outcome | None:
        """Return what to tell of `running` now: its end, its progress, or nothing yet."""
        standing, reason = judge(running, pilot=self._pilot, now_s=now_s), ""
        if standing.state is OutcomeState.IN_PROGRESS:
            if now_s - running.reported_s < _PROGRESS_S:
                return None
            running.reported_s, reason = now_s, self._waits()
        return self._outcome(
            running.command,
            standing.state,
            reason=standing.reason or reason,
            fraction=standing.fraction,
            result=standing.result,
            accepted_s=running.accepted_s,
        )

    def _done(self, command: Command, at: Situation, result: dict[str, Any]) -> Outcome:
        return self._outcome(
            command, OutcomeState.DONE, fraction=1.0, result=result, accepted_s=at.now_s
        )

    def _outcome(
        self,
        command: Command,
        state: OutcomeState,
        *,
        reason: str = "",
        fraction: float = 0.0,
        result: dict[str, Any] | None = None,
        accepted_s: float | None = None,
    ) -> Outcome:
        return Outcome(
            id=command.id,
            state=state,
            reason=reason,
            fraction=fraction,
            result=result or {},
            accepted_s=accepted_s,
            boot_id=self._boot_id,
        )


def _superseded(command: Command) -> str:
    return f"superseded by {command.name} {command.id}"


def _who(command: Command) -> str:
    return command.source or "the ground"


def _known(noun: str, *, works: str = "land works") -> "_Check":
    """Return the check that the estimate has this quantity. works: what does without it."""

    def check(_: Commander, at: Situation, what: str) -> None:
        if getattr(at.state, f"{noun}_valid"):
            return
        lost = f"{noun} not known"
        if noun == "position" and not at.state.heading_valid:
            lost = "heading not known"
        elif noun == "position":
            lost = f"position lost for {min(at.state.position_age_s, 999.0):.1f} s"
        raise Refusal(f"{what}: {lost}: {works} without one")

    return check


# A handler for each row of the table of actions.
HANDLERS: dict[str, Callable[..., Outcome]] = {
    "ping": Commander.ping,
    "limits": Commander.limits,
    "arm": Commander.arm,
    "disarm": Commander.disarm,
    "mode": Commander.set_mode,
    "takeoff": Commander.takeoff,
    "goto": Commander.goto,
    "velocity": Commander.set_velocity,
    "trajectory": Commander.trajectory,
    "follow": Commander.follow,
    "hold": Commander.hold,
    "land": Commander.land,
    "return": Commander.return_to_pad,
    "geofence": Commander.set_geofence,
    "param": Commander.set_parameter,
    "payload": Commander.payload,
    "estop": Commander.estop,
    "stick": Commander.stick,
    "motor": Commander.motor,
    "servo": Commander.servo,
    "wires": Commander.wires,
    "sensor": Commander.sensor,
}
_Check = Callable[[Commander, Situation, str], None]
_CHECKS: dict[Need, _Check] = {
    Need.ARMED: Commander._must_fly,
    Need.UP: Commander._must_be_up,
    Need.ATTITUDE: _known("attitude"),
    Need.HEIGHT: _known("height"),
    Need.POSITION: _known("position", works="hold and land work"),
    Need.CAMERA: Commander._must_see,
    Need.MANUAL: Commander._must_be_by_hand,
    Need.DISARMED: Commander._must_be_disarmed,
    Need.GROUND: Commander._must_rest,
}
