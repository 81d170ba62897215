"""The flight loop: one cycle in flight order, and what it needs from outside.

`FlightLoop.step` is the whole firmware in one screen. It never waits: sensors and inbox
answer at once with the newest they have.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from blimp.control.battery import BatteryFilter
from blimp.control.bounds import lifts
from blimp.control.commander import Commander
from blimp.control.constants import GRAVITY_MPS2
from blimp.control.controller import Controller
from blimp.control.effect import EffectCheck
from blimp.control.estimator import Estimator
from blimp.control.failsafe import Flags
from blimp.control.mixer import Mixer
from blimp.control.pilot import Pilot
from blimp.control.pilot_link import PilotLink
from blimp.control.recovery import Recovery
from blimp.control.snapshot import build_snapshot
from blimp.control.supervisor import Supervisor
from blimp.control.timing import Timing
from blimp.control.transmitter import Transmitter
from blimp.control.witness import Witnesses
from blimp.errors import HardwareError
from blimp.rotation import yaw_of
from blimp.types import (
    ActuatorCommand,
    Command,
    FlightRecord,
    Heartbeat,
    Outcome,
    SensorReadings,
    SensorStatus,
    Setpoint,
    Snapshot,
    VehicleState,
)

_STALL_S = 0.25  # the watchdog has put the outputs safe by then
_LATE_S = 1.0  # nobody knows what the ship has done meanwhile: it needs an arm
_MAX_DT_S = 0.1  # a filter's longest step: of a cycle that came late
_PUBLISH_HZ = 20.0  # of snapshots: a screen shows no more
_RECORD_HZ = 10.0  # a successor reads it once; nothing in it changes faster
_PUSHED = 0.3  # of the vertical force: less may be a gust's
_ASKED = 0.5  # of the vertical force
_RISING_MPS = 0.1  # a ship that rises against its commands
_UNHEEDED_S = 4.0  # asked to sink, it does not: from then on height goes before all else
_UNHEEDED = 0.25  # of the sink rate that was asked for
_ASKED_MPS = 0.1  # less is not asked in earnest
_HEIGHT_FIRST_S = 10.0  # how long height goes before all else
_SILENT_S = 2.0  # without an order: two commands of a terminal follow each other sooner
_LEFT_S = 30.0  # the same, of a ship that neither rises nor sinks fast
_ASSERT_SAFE_HZ = 4.0  # how often safe outputs are written again


class Sensors(Protocol):
    """Every sensor of the ship. A sensor that fails is named, it does not raise."""

    def read(self, now_s: float) -> SensorReadings:
        """Return the newest good samples, reading the devices that are due."""
        ...

    def status(self, now_s: float) -> dict[str, SensorStatus]:
        """Return every device as a person sees it, by name."""
        ...


class Outputs(Protocol):
    """Motors and servos."""

    @property
    def last(self) -> Mapping[str, float]:
        """The last command to every actuator, by name: throttle or radians."""
        ...

    @property
    def enabled(self) -> bool:
        """Whether `drive` has an effect: `enable` was called last, not `safe`, by any thread."""
        ...

    def drive(self, command: ActuatorCommand) -> None:
        """Tell every actuator its value. May raise HardwareError."""
        ...

    def safe(self) -> object:
        """Stop every motor and let its driver sleep. Must not raise for one dead device."""
        ...

    def enable(self) -> None:
        """Wake the drivers, so that `drive` has an effect."""
        ...

    def disable(self) -> object:
        """Let the drivers sleep; safe first."""
        ...


class Inbox(Protocol):
    """The mailbox as the flight process sees it. Nothing here blocks."""

    def emergencies(self) -> Sequence[Command]:
        """Return every emergency stop that waits in their own socket."""
        ...

    def receive(self) -> Sequence[Command]:
        """Return the commands that have come since the last call, oldest first."""
        ...

    def heartbeats(self) -> Sequence[Heartbeat]:
        """Return the pilots' heartbeats that have come since the last call, oldest first."""
        ...

    def post(self, outcome: Outcome) -> None: ...

    def publish(self, snapshot: Snapshot) -> None: ...

    def link_age_s(self, now_s: float) -> float:
        """Return seconds since the broker last answered the worker."""
        ...

    def deaf(self, now_s: float) -> str:
        """Return why an emergency stop of the ground would not come, "" if it would."""
        ...


class FlightLoop:
    """One ship's control, stepped by a runner or by a simulation."""

    def __init__(
        self,
        *,
        sensors: Sensors,
        outputs: Outputs,
        inbox: Inbox,
        estimator: Estimator,
        pilot: Pilot,
        commander: Commander,
        supervisor: Supervisor,
        controller: Controller,
        mixer: Mixer,
        witnesses: Witnesses,
        effect: EffectCheck,
        battery: BatteryFilter,
        transmitter: Transmitter,
        measures_power: bool,
        vehicle: str,
        boot_id: str,
        rate_hz: float,
        simulated: bool,
        servos: tuple[str, ...] = (),
        recorder: Callable[[FlightRecord], object] | None = None,
        recovery: Recovery | None = None,
    ) -> None:
        self._sensors = sensors
        self._outputs = outputs
        self._inbox = inbox
        self._estimator = estimator
        self._pilot = pilot
        self._commander = commander
        self._supervisor = supervisor
        self._controller = controller
        self._mixer = mixer
        self._witnesses = witnesses
        self._effect = effect
        self._transmitter = transmitter
        self._measures_power = measures_power
        self._power_s: float | None = None
        self._rising_s = 0.0
        self._unmoved_s = 0.0
        self._driven_up = self._was_armed = False
        self._unheeded_s = self._height_first_s = 0.0
        self._vehicle = vehicle
        self._boot_id = boot_id
        self._simulated = simulated
        self._servos = servos
        self._recorder = recorder
        self._recovery = recovery
        self._recorded: tuple[bool, bool, bool] | None = None
        self._pressure_pa = 0.0
        self.timing = Timing(rate_hz=rate_hz)
        self._battery = battery
        self._pilot_link = PilotLink()
        self._publish_every = max(1, round(rate_hz / _PUBLISH_HZ))
        self._record_every = max(1, round(rate_hz / _RECORD_HZ))
        self._assert_safe_every = max(1, round(rate_hz / _ASSERT_SAFE_HZ))
        self._last_s: float | None = None
        self._flags_seen: Flags | None = None
        self._stalled_s = float("-inf")
        self._driving = False
        self._powered = False
        self._battery_v: float | None = None
        self.setpoint = Setpoint(idle=True)
        self.state = VehicleState(
            t_s=0.0, attitude_valid=False, height_valid=False, position_valid=False, on_ground=True
        )

    @property
    def armed(self) -> bool:
        return self._supervisor.armed

    @property
    def broken(self) -> tuple[str, ...]:
        """The outputs that do not do what is commanded."""
        return self._effect.broken

    @property
    def mode_result(self) -> dict[str, Any]:
        return self._pilot.mode.result

    @property
    def _knows_thrust(self) -> bool:
        """Whether the thrusters give what the mixer says."""
        return self._effect.only_dead and not self._mixer.doubted

    def step(self, now_s: float) -> None:
        """Run one cycle. An exception leaves the outputs safe and passes through."""
        try:
            self._cycle(now_s)
        except BaseException:
            self.close()
            raise

    def _cycle(self, now_s: float) -> None:
        dt_s = self._elapsed(now_s)
        self._obey_emergencies(now_s)
        readings = self._sensors.read(now_s)
        is_adrift = self._found_in_air(readings, now_s)
        thrust = self._mixer.achieved if self._knows_thrust else None
        flown = self._powered or (self.armed and not self._pilot.resting)  # idle on trial, too
        state = self._estimator.update(
            readings, now_s=now_s, powered=flown, stands=self._supervisor.stands, thrust=thrust
        )
        if is_adrift:
            self._supervisor.recover(state)
        self._witnesses.update(readings, state, now_s, at_rest=not flown)
        flags = self._flags(readings, now_s)
        self._transmitter.act(state, flags, now_s=now_s)
        for command in self._inbox.receive():
            outcome = self._commander.handle(command, now_s=now_s, state=state, flags=flags)
            self._inbox.post(outcome)
        if flags.pilot_lost_s is not None and self._transmitter.lost_s(now_s) is None:
            flags = msgspec.structs.replace(flags, pilot_lost_s=None)  # a ground pilot took over
        setpoint = self._supervisor.decide(state, flags, now_s=now_s, dt_s=dt_s)
        actuators = self._pilot.payload.onto(self._allocate(state, setpoint, flags, dt_s))
        self._note_effect(state, setpoint, dt_s)
        self._drive(actuators, setpoint, now_s)
        self.state, self.setpoint, self._flags_seen = state, setpoint, flags
        self._leave_record(now_s)
        self._report(now_s)

    def _obey_emergencies(self, now_s: float) -> None:
        """Stop before anything else is read; confirm when the outputs are safe."""
        for command in self._inbox.emergencies():
            flags = self._flags_seen or Flags()
            outcome = self._commander.handle(command, now_s=now_s, state=self.state, flags=flags)
            if self._driving and self._supervisor.killed:
                self.close()
            self._recovery = None
            self._leave_record(now_s)
            self._inbox.post(outcome)

    def _found_in_air(self, readings: SensorReadings, now_s: float) -> bool:
        """Say once that this ship is in the air and its last flight process died there."""
        recovery, supervisor = self._recovery, self._supervisor
        if recovery is None:
            return False
        is_up = recovery.judge(readings, now_s)
        if is_up is None and not supervisor.armed and not supervisor.killed:
            self._powered = True  # not known to be at rest
            return False
        self._recovery = None
        if not is_up or supervisor.armed or supervisor.killed:
            return False
        self._estimator.begin_in_air(recovery.height_m, readings.baro)
        return True

    def _leave_record(self, now_s: float) -> None:
        """Leave word for a successor: ten times a second, and of every change at once."""
        supervisor = self._supervisor
        status = (supervisor.armed, supervisor.killed, self.state.on_ground)
        is_due = self.timing.cycles % self._record_every == 0 or status != self._recorded
        if self._recorder is None or self._recovery is not None or not is_due:
            return
        self._recorded = status
        self._recorder(
            FlightRecord(
                t_s=now_s,
                armed=supervisor.armed,
                killed=supervisor.killed,
                airborne=not self.state.on_ground,
                height_m=self.state.altitude_m,
                heaviness_kg=self._controller.weighed_kg or 0.0,
                pressure_pa=self._pressure_pa,
                yaw_rad=yaw_of(self.state.attitude),
                yaw_sigma_rad=self._estimator.yaw_sigma_rad,
                gyro_bias_radps=self._estimator.gyro_bias_radps,
            )
        )

    def _allocate(
        self, state: VehicleState, setpoint: Setpoint, flags: Flags, dt_s: float
    ) -> ActuatorCommand:
        """Setpoint to actuators: straight through if a person holds the sticks."""
        self._mixer.leave_out(self._effect.fixed_n)
        if setpoint.idle or setpoint.actuators is not None:
            if setpoint.idle:
                self._controller.reset()
            actuators = setpoint.actuators or self._mixer.neutral
            stuck_rad = self._effect.stuck_rad
            self._mixer.follow(actuators, dt_s=dt_s, unhealthy=flags.unhealthy, stuck_rad=stuck_rad)
            return actuators
        wrench = self._controller.update(
            state,
            setpoint,
            dt_s=dt_s,
            achieved=self._mixer.achieved,
            saturated=self._mixer.saturated,
            sways=self._mixer.sways,
            straight=self._mixer.straight,
            weighs=self._knows_thrust,
            height_first=self._height_first_s > 0.0,
        )
        forward_mps = self._controller.forward_mps(state)
        return self._mixer.allocate(
            wrench,
            dt_s=dt_s,
            forward_mps=forward_mps,
            unhealthy=flags.unhealthy,
            stuck_rad=self._effect.stuck_rad,
            height_first=self._height_first_s > 0.0,
        )

    def _note_effect(self, state: VehicleState, setpoint: Setpoint, dt_s: float) -> None:
        """Compare what the outputs were sent with what the ship does."""
        thrusts_n, known = self._mixer.thrusts_n, self._effect.faults
        if self.armed and not self._was_armed:
            self._controller.weigh_again()  # somebody may have changed its ballast
        self._was_armed = self.armed
        if not self.armed:
            self._effect.reset()
            known = ()  # forgotten for a new flight, not taken back
        elif thrusts_n is None or self._supervisor.may_stand(state):
            self._effect.pause()  # what lies on the ground does not follow a push
        else:
            tilts_rad = self._mixer.tilts_rad
            self._effect.update(
                state,
                thrusts_n,
                tilts_rad,
                weight_n=GRAVITY_MPS2 * self._controller.believed_kg,
                wind_ned_mps=(*self._controller.wind.north_east_mps, 0.0),
                dt_s=dt_s,
            )
        for fault in self._effect.faults:
            if fault in known:
                continue
            self._supervisor.say(f"{' and '.join(fault.names)}: {fault.what}")
            self._controller.correct(lifts=lifts(self._pilot.ship.airframe, fault.names))
        for fault in known:
            if not set(fault.names) & set(self._effect.broken):
                self._supervisor.say(f"{' and '.join(fault.names)}: follows its commands again")
        down_n = self._mixer.achieved.force_body_n[2]
        pushed = down_n > _PUSHED * self._mixer.limit_n(2)
        # A broken output may leave no push to command: what is asked counts, if slower.
        asked = not setpoint.idle and setpoint.velocity_ned_mps[2] > 0.0
        commanded = self._powered and state.height_valid and (pushed or asked)
        rises = -state.velocity_ned_mps[2] > _RISING_MPS and not state.on_ground
        share = 1.0 if pushed else _ASKED
        self._rising_s = self._rising_s + share * dt_s if commanded and rises else 0.0
        down_mps = self._controller.asked_mps
        unheeded = (
            self._powered
            and state.height_valid
            and not state.on_ground
            and down_mps > _ASKED_MPS
            and state.velocity_ned_mps[2] < _UNHEEDED * down_mps
        )
        self._unheeded_s = self._unheeded_s + dt_s if unheeded else 0.0
        self._unmoved_s = self._unmoved_s + dt_s if unheeded and pushed else 0.0
        if not self.armed:
            self._height_first_s = 0.0
        elif not state.on_ground:  # held down there, it would come off again
            self._height_first_s = max(0.0, self._height_first_s - dt_s)
        if self._unheeded_s > _UNHEEDED_S:
            self._height_first_s = _HEIGHT_FIRST_S
        weight_n = GRAVITY_MPS2 * self._controller.heaviness_kg
        self._driven_up = -state.velocity_ned_mps[2] > self._effect.float_mps(weight_n)

    def _drive(self, actuators: ActuatorCommand, setpoint: Setpoint, now_s: float) -> None:
        """Ask the gate once more, then drive; or make safe, and say so again at 4 Hz."""
        refusal = self._supervisor.gate(actuators, now_s=now_s)
        self._powered = not refusal and not setpoint.idle
        if refusal:
            if self._driving and self.armed:
                self._supervisor.say(f"outputs safe: {refusal}")
            if self._driving or self.timing.cycles % self._assert_safe_every == 0:
                self._outputs.safe()
            if self._driving:
                self._outputs.disable()
                self._driving = False
            return
        try:
            if not self._driving:
                self._outputs.enable()
                self._driving = True
            self._outputs.drive(actuators)
        except HardwareError as error:
            # One output that does not answer must not take the others with it.
            self._supervisor.say(f"outputs: {error}")

    def _report(self, now_s: float) -> None:
        for outcome in self._commander.progress(now_s):
            self._inbox.post(outcome)
        self.timing.cycles += 1
        if self.timing.cycles % self._publish_every == 0:
            self._inbox.publish(self.snapshot(now_s))

    def snapshot(self, now_s: float) -> Snapshot:
        """Return what the ground may know at `now_s`."""
        supervisor = self._supervisor
        return build_snapshot(
            state=self.state,
            boot_id=self._boot_id,
            vehicle=self._vehicle,
            mode=self._pilot.number.name,
            armed=supervisor.armed,
            killed=supervisor.killed,
            failsafe=supervisor.decision.text,
            battery_v=self._battery_v,
            actuators=self._outputs.last,
            servos=self._servos,
            sensors=self._sensors.status(now_s),
            loop=self.timing.status(),
            simulated=self._simulated,
            active_command=self._commander.active,
            messages=tuple(supervisor.messages),
            link_age_s=0.0 if self._flags_seen is None else self._flags_seen.link_age_s,
            deaf=self._deaf,
            pilot_age_s=self._pilot_age_s(now_s),
            heaviness_kg=self._controller.weighed_kg,
            target_ned_m=self.setpoint.position_ned_m,
            wind_ned_mps=self._controller.wind_ned_mps(),
            wind_age_s=self._controller.wind_age_s(now_s),
        )

    @property
    def _deaf(self) -> str:
        """Why a stop of the ground would not come, and who can stop the ship all the same."""
        flags = self._flags_seen or Flags()
        stops = flags.deaf and flags.stops
        return f"{flags.deaf}; the transmitter's switch stops it" if stops else flags.deaf

    def problems(self) -> tuple[str, ...]:
        """Return every reason why `arm` would be refused now, each with its cure."""
        if self._flags_seen is None:
            return ("loop: no cycle yet; wait for the first",)
        return self._commander.arming_reasons(
            now_s=self._last_s or 0.0, state=self.state, flags=self._flags_seen
        )

    def close(self) -> None:
        """Leave the outputs safe and asleep. May be called any number of times."""
        self._driving = self._powered = False
        try:
            self._outputs.safe()
        finally:
            self._outputs.disable()

    def _flags(self, readings: SensorReadings, now_s: float) -> Flags:
        self._battery_v = self._battery.update(readings.power, now_s)
        self._pressure_pa = readings.baro.pressure_pa if readings.baro is not None else 0.0
        for heartbeat in self._inbox.heartbeats():
            self._pilot_link.receive(heartbeat, now_s)
        effect, transmitter = self._effect, self._transmitter
        transmitter.hear(readings.transmitter, now_s)
        ground_s = max(self._inbox.link_age_s(now_s), self._pilot_age_s(now_s) or 0.0)
        if self._battery_v is not None or self._power_s is None or not self.armed:
            self._power_s = now_s
        return Flags(
            link_age_s=min(ground_s, transmitter.age_s(now_s)),
            pilot_lost_s=transmitter.lost_s(now_s),
            heard=transmitter.heard,
            stops=transmitter.stops,
            stopped=transmitter.stopped,
            deaf=self._inbox.deaf(now_s),
            broken=effect.broken,
            astray=not effect.only_dead,
            spared=self._mixer.left_over if len(effect.faults) == 1 and effect.only_dead else 0.0,
            power_age_s=now_s - self._power_s if self._measures_power else 0.0,
            rising_s=self._rising_s,
            unmoved_s=self._unmoved_s,
            driven_up=self._driven_up,
            heavy=self._controller.heavy,
            unattended=self._is_unattended(now_s),
            battery_v=self._battery_v,
            unhealthy=readings.unhealthy,
            gyro_settled=self._estimator.gyro_settled,
            since_stall_s=now_s - self._stalled_s,
        )

    def _is_unattended(self, now_s: float) -> bool:
        """Whether nobody drives a ship in MANUAL: for long, or while it rises or sinks fast."""
        pilot, state, limits = self._pilot, self.state, self._pilot.ship.airframe.limits
        if pilot.flying is not pilot.manual or not state.height_valid or state.on_ground:
            return False
        slow = -limits.climb_mps < state.velocity_ned_mps[2] < limits.descent_mps
        return pilot.manual.silent_s(now_s) > (_LEFT_S if slow else _SILENT_S)

    def _pilot_age_s(self, now_s: float) -> float | None:
        return self._pilot_link.age_s(now_s, armed=self.armed)

    def _elapsed(self, now_s: float) -> float:
        """Return this cycle's dt, and notice a stall that the watchdog has ended."""
        last_s, self._last_s = self._last_s, now_s
        if last_s is None:
            return 1.0 / self.timing.rate_hz
        elapsed_s = now_s - last_s
        was_driving = self._driving or self.armed
        # The watchdog counts from the end of a cycle, so it may see a stall that is none here.
        slept = self._driving and not self._outputs.enabled
        if slept or elapsed_s > _STALL_S:
            self._stalled_s = now_s
            self._driving = False  # the watchdog has put the drivers to sleep: wake them
            self._supervisor.say(f"loop stalled for {elapsed_s:.2f} s")
        if elapsed_s > _LATE_S and was_driving:
            self.close()
            reason = f"the loop stood still for {elapsed_s:.1f} s; arm again, looking at the ship"
            self._supervisor.kill(self.state, now_s=now_s, reason=reason)
        return max(0.0, min(_MAX_DT_S, elapsed_s))
