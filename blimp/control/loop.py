"""The flight loop: one cycle in flight order, and what it needs from outside.

`FlightLoop.step` is the whole firmware in one screen. It never waits: sensors and inbox
answer at once with the newest they have.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from blimp.control.actuation import Actuation
from blimp.control.battery import BatteryFilter
from blimp.control.commander import Commander
from blimp.control.estimator import Estimator
from blimp.control.failsafe import FLIGHT_TIME_LOW, Flags
from blimp.control.pilot import Pilot
from blimp.control.pilot_link import PilotLink
from blimp.control.recovery import Recovery
from blimp.control.snapshot import RecordWriter, SnapshotBuilder
from blimp.control.supervisor import Supervisor
from blimp.control.timing import Timing
from blimp.control.transmitter import Transmitter
from blimp.errors import HardwareError
from blimp.types import (
    ON_GROUND,
    ActuatorCommand,
    Command,
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
        actuation: Actuation,
        battery: BatteryFilter,
        transmitter: Transmitter,
        timing: Timing,
        snapshots: SnapshotBuilder,
        record: RecordWriter,
        recovery: Recovery | None = None,
    ) -> None:
        """recovery: looks for a ship in the air, if the last flight process died there."""
        self._sensors = sensors
        self._outputs = outputs
        self._inbox = inbox
        self._estimator = estimator
        self._pilot = pilot
        self._commander = commander
        self._supervisor = supervisor
        self._actuation = actuation
        self._battery = battery
        self._transmitter = transmitter
        self.timing = timing
        self._snapshots = snapshots
        self._record = record
        self._recovery = recovery
        self._pilot_link = PilotLink()
        self._last_s: float | None = None
        self._flags_seen: Flags | None = None
        self._stalled_s = float("-inf")
        self._driving = False
        self._powered = False
        self.setpoint = Setpoint(idle=True)
        self.state = VehicleState(
            t_s=0.0,
            attitude_valid=False,
            height_valid=False,
            position_valid=False,
            touch=ON_GROUND,
        )

    @property
    def armed(self) -> bool:
        return self._supervisor.armed

    @property
    def broken(self) -> tuple[str, ...]:
        """The outputs that do not do what is commanded."""
        return self._actuation.broken

    @property
    def mode_result(self) -> dict[str, Any]:
        return self._pilot.mode.result

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
        lands = self._found_in_air(readings, now_s)
        flown = self._powered or (self.armed and not self._pilot.resting)  # idle on trial, too
        flown = flown or bool(self._supervisor.adrift)  # no motor turns, and it is not at rest
        state = self._estimator.update(
            readings,
            now_s=now_s,
            powered=flown,
            believed=self._supervisor.believed,
            thrust=self._actuation.thrust,
        )
        if lands:
            self._supervisor.recover(state)
        self._pilot.seen = readings.seen
        flags = self._flags(readings, now_s)
        self._transmitter.act(state, flags, now_s=now_s)
        for command in self._inbox.receive():
            outcome = self._commander.handle(command, now_s=now_s, state=state, flags=flags)
            self._inbox.post(outcome)
        if flags.pilot_lost_s is not None and self._transmitter.lost_s(now_s) is None:
            flags = msgspec.structs.replace(flags, pilot_lost_s=None)  # a ground pilot took over
        setpoint = self._supervisor.decide(state, flags, now_s=now_s, dt_s=dt_s)
        actuators = self._actuation.allocate(state, setpoint, unhealthy=flags.unhealthy, dt_s=dt_s)
        self._actuation.watch(state, setpoint, powered=self._powered, dt_s=dt_s)
        self._drive(self._pilot.payload.onto(actuators), setpoint, now_s)
        self.state, self.setpoint, self._flags_seen = state, setpoint, flags
        if self._recovery is None:
            self._record.write(state, now_s)
        self._report(now_s)

    def _obey_emergencies(self, now_s: float) -> None:
        """Stop before anything else is read; confirm when the outputs are safe."""
        for command in self._inbox.emergencies():
            flags = self._flags_seen or Flags()
            outcome = self._commander.handle(command, now_s=now_s, state=self.state, flags=flags)
            if self._driving and self._supervisor.killed:
                self.close()
            self._record.write(self.state, now_s)
            self._inbox.post(outcome)

    def _found_in_air(self, readings: SensorReadings, now_s: float) -> bool:
        """Say once that this ship, whose last flight process died in the air, may be landed."""
        recovery, supervisor = self._recovery, self._supervisor
        if recovery is None:
            return False
        is_up = recovery.judge(readings, now_s)
        if is_up is None and not supervisor.armed:
            return False
        self._recovery = None
        if not is_up or supervisor.armed:
            if supervisor.adrift and recovery.is_blind:
                supervisor.say("too few sensors: it may be in the air, and no motor turns")
            supervisor.adrift = ""
            return False
        self._estimator.begin_in_air(recovery.height_m, readings.baro)
        return recovery.may_land and not supervisor.killed

    def _drive(self, actuators: ActuatorCommand, setpoint: Setpoint, now_s: float) -> None:
        """Ask the gate once more, then drive; or make safe, and say so again at 4 Hz."""
        refusal = self._supervisor.gate(actuators, now_s=now_s)
        self._powered = not refusal and not setpoint.idle
        if refusal:
            if self._driving and self.armed:
                self._supervisor.say(f"outputs safe: {refusal}")
            if self._driving or self.timing.is_due(_ASSERT_SAFE_HZ):
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
        if self.timing.is_due(_PUBLISH_HZ):
            self._inbox.publish(self.snapshot(now_s))

    def snapshot(self, now_s: float) -> Snapshot:
        """Return what the ground may know at `now_s`."""
        return self._snapshots.build(
            self.state,
            self.setpoint,
            self._flags_seen or Flags(),
            now_s=now_s,
            pilot_age_s=self._pilot_age_s(now_s),
            sensors=self._sensors.status(now_s),
            actuators=self._outputs.last,
        )

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
        battery, actuation, transmitter = self._battery, self._actuation, self._transmitter
        battery.update(readings.power, now_s)
        self._record.note(readings)
        for heartbeat in self._inbox.heartbeats():
            self._pilot_link.receive(heartbeat, now_s)
        transmitter.hear(readings.transmitter, now_s)
        ground_s = max(self._inbox.link_age_s(now_s), self._pilot_age_s(now_s) or 0.0)
        return Flags(
            link_age_s=min(ground_s, transmitter.age_s(now_s)),
            pilot_lost_s=transmitter.lost_s(now_s),
            heard=transmitter.heard,
            stops=transmitter.stops,
            stopped=transmitter.stopped,
            deaf=self._inbox.deaf(now_s),
            broken=actuation.broken,
            astray=actuation.astray,
            spared=actuation.spared,
            power_age_s=battery.age_s(now_s, armed=self.armed),
            flown=self._flown(now_s),
            rising_s=actuation.rising_s,
            unmoved_s=actuation.unmoved_s,
            driven_up=actuation.driven_up,
            weight=actuation.weight,
            unattended=self._pilot.is_unattended(self.state, now_s),
            battery_v=battery.volts,
            unhealthy=readings.unhealthy,
            gyro_settled=self._estimator.gyro_settled,
            since_stall_s=now_s - self._stalled_s,
        )

    def _flown(self, now_s: float) -> float:
        flown = self._battery.flown(now_s, armed=self.armed)
        if self._flags_seen is not None and self._flags_seen.flown < FLIGHT_TIME_LOW <= flown:
            self._supervisor.say("flight time nearly over: land, and change the battery")
        return flown

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
