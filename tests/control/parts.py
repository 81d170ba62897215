"""Small pieces that control's tests share: a ship on a bench of values, no physics."""

from collections.abc import Mapping
from math import cos, pi
from typing import Any

from msgspec import structs

from blimp import airframe as airframes
from blimp.airframe import Airframe
from blimp.control.build import build_flight_loop
from blimp.control.commander import Commander
from blimp.control.failsafe import Failsafe, Flags
from blimp.control.loop import FlightLoop
from blimp.control.modes.hold import Hold
from blimp.control.modes.mode import Ship
from blimp.control.pilot import Pilot
from blimp.control.supervisor import Supervisor
from blimp.control.weight import Weight, a_weight
from blimp.errors import HardwareError
from blimp.types import (
    ActuatorCommand,
    BaroSample,
    Command,
    Contact,
    Heartbeat,
    ImuSample,
    Outcome,
    PositionSample,
    PowerSample,
    RangeSample,
    SensorReadings,
    SensorStatus,
    Setpoint,
    Snapshot,
    Touch,
    TransmitterSample,
    Vec3,
    VehicleState,
)

GRAVITY_MPS2 = 9.80665


def twin() -> Airframe:
    return airframes.load("twin")


def gtmab() -> Airframe:
    return airframes.load("gtmab")


def weight(mean_kg: float = 0.005, *, weighed: bool = True, felt_kg: float | None = None) -> Weight:
    """Return a weight; felt_kg: by the last seconds, if that is something else."""
    found = a_weight(mean_kg, sigma_kg=0.001 if weighed else 0.04, weighed=weighed)
    return found if felt_kg is None else structs.replace(found, felt_kg=felt_kg)


def a_ship(
    *,
    heaviness_kg: float = 0.005,
    wind_mps: tuple[float, float] = (0.0, 0.0),
    steers: bool = True,
    weighed: bool = True,
) -> Ship:
    return Ship(
        airframe=twin(),
        weight=lambda: weight(heaviness_kg, weighed=weighed),
        wind_mps=lambda: wind_mps,
        steers=steers,
    )


def at(
    north_m: float = 0.0,
    east_m: float = 0.0,
    altitude_m: float = 0.0,
    *,
    t_s: float = 0.0,
    on_ground: bool = False,
    carried: bool = False,
    against: tuple[tuple[str, float], ...] = (),
    **fields: Any,
) -> VehicleState:
    contact = Contact.TOUCHING if on_ground else Contact.AIRBORNE
    touch = Touch(contact=contact, carried=carried, against=against)
    place = (north_m, east_m, -altitude_m)
    return VehicleState(t_s=t_s, position_ned_m=place, touch=touch, **fields)


UP, DOWN = at(altitude_m=3.0), at(on_ground=True)


class BenchSensors:
    """A ship that stands still, level, wherever it is put; every sample is exact."""

    def __init__(self) -> None:
        self.position_ned_m: Vec3 = (0.0, 0.0, 0.0)
        self.gyro: Vec3 = (0.0, 0.0, 0.0)
        self.accel: Vec3 = (0.0, 0.0, -GRAVITY_MPS2)
        self.battery_v = 8.2
        self.unhealthy: tuple[str, ...] = ()
        self.cut: set[str] = set()
        self.channels: dict[int, float] | None = None  # of a transmitter, beside its rest
        self.raises: Exception | None = None
        self._last: dict[str, Any] = {}

    def read(self, now_s: float) -> SensorReadings:
        if self.raises is not None:
            raise self.raises
        height_m = -self.position_ned_m[2]
        fresh: dict[str, Any] = {
            "imu": ImuSample(
                t_s=now_s,
                accel_body_mps2=self.accel,
                gyro_body_radps=self.gyro,
                temperature_c=25.0,
            ),
            "baro": BaroSample(
                t_s=now_s, pressure_pa=101325.0 - 12.0 * height_m, temperature_c=15.0
            ),
            "tag": PositionSample(t_s=now_s, position_ned_m=self.position_ned_m, accuracy_m=0.08),
            "power": PowerSample(t_s=now_s, voltage_v=self.battery_v, current_a=1.0),
        }
        if height_m > 0.2:
            fresh["ranger"] = RangeSample(t_s=now_s, distance_m=height_m)
        if self.channels is not None:
            values = [0.0] * 4 + [-1.0] * 12
            for number, value in self.channels.items():
                values[number - 1] = value
            fresh["transmitter"] = TransmitterSample(t_s=now_s, channels=tuple(values))
        self._last.update({k: v for k, v in fresh.items() if k not in self.cut})
        return SensorReadings(t_s=now_s, unhealthy=self.unhealthy, **self._last)

    def status(self, now_s: float) -> dict[str, SensorStatus]:
        names = ("imu", "baro", "ranger", "tag", "power")
        return {
            name: SensorStatus(
                value=1.0,
                unit="unit",
                age_s=0.0,
                healthy=name not in self.unhealthy,
                error="no answer" if name in self.unhealthy else "",
            )
            for name in names
        }


class RecordingOutputs:
    """Keeps every call in order; `dead` makes drive raise as a stuck bus would."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.command: ActuatorCommand | None = None
        self.dead = False
        self.enabled = False

    @property
    def last(self) -> Mapping[str, float]:
        return {"left": self.command.motors[0] if self.command else 0.0}

    def drive(self, command: ActuatorCommand) -> None:
        if self.dead:
            raise HardwareError("pca9685 at i2c-1 0x40: no answer")
        self.calls.append("drive")
        self.command = command

    def safe(self) -> None:
        self.calls.append("safe")
        self.command = None
        self.enabled = False

    def enable(self) -> None:
        self.calls.append("enable")
        self.enabled = True

    def disable(self) -> None:
        self.calls.append("disable")


class ListInbox:
    """Commands from a list, outcomes and snapshots in others, a link that can be cut."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.beats: list[Heartbeat] = []
        self.outcomes: list[Outcome] = []
        self.snapshots: list[Snapshot] = []
        self.why_deaf = ""
        self.link_age = 0.0

    def emergencies(self) -> list[Command]:
        stops = [command for command in self.commands if command.name == "estop"]
        self.commands = [command for command in self.commands if command.name != "estop"]
        return stops

    def receive(self) -> list[Command]:
        commands, self.commands = self.commands, []
        return commands

    def heartbeats(self) -> list[Heartbeat]:
        beats, self.beats = self.beats, []
        return beats

    def post(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def publish(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def link_age_s(self, now_s: float) -> float:
        return self.link_age

    def deaf(self, now_s: float) -> str:
        return self.why_deaf

    def of(self, id: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.id == id]


class Bench:
    """A whole flight loop over the pieces above, settled and ready to arm."""

    def __init__(
        self, *, bench: bool = False, settle_s: float = 4.0, airframe: Airframe | None = None
    ) -> None:
        self.sensors = BenchSensors()
        self.outputs = RecordingOutputs()
        self.inbox = ListInbox()
        self.taken_over: list[Airframe] = []
        self.loop: FlightLoop = build_flight_loop(
            airframe or twin(),
            sensors=self.sensors,
            outputs=self.outputs,
            inbox=self.inbox,
            vehicle="test",
            boot_id="boot-1",
            bench=bench,
            take_over=self.taken_over.append,
        )
        self.now_s = 0.0
        self._sent = 0
        self.run(settle_s)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 100.0)):
            self.now_s += 0.01
            self.loop.step(self.now_s)

    def lift(self, altitude_m: float) -> None:
        """Raise the ship at 1 m/s in the mean, as if it were carried: its IMU feels it."""
        start_m = -self.sensors.position_ned_m[2]
        way_m = altitude_m - start_m
        steps = max(1, round(abs(way_m) * 100.0))
        for k in range(1, steps + 1):
            share = 0.5 - 0.5 * cos(pi * k / steps)
            up_mps2 = 0.5 * way_m * (pi / (0.01 * steps)) ** 2 * cos(pi * k / steps)
            n, e, _ = self.sensors.position_ned_m
            self.sensors.position_ned_m = (n, e, -start_m - way_m * share)
            self.sensors.accel = (0.0, 0.0, -GRAVITY_MPS2 - up_mps2)
            self.run(0.01)
        self.sensors.accel = (0.0, 0.0, -GRAVITY_MPS2)
        self.run(2.0)

    def send(self, command: Command) -> Outcome:
        """Give a command and run one cycle; return its newest outcome."""
        self.inbox.commands.append(command)
        self.run(0.01)
        return self.inbox.of(command.id)[-1]

    def tell(self, name: str, /, **arguments: Any) -> Outcome:
        self._sent += 1
        return self.send(Command(id=f"{name}-{self._sent}", name=name, arguments=arguments))

    def snapshot(self) -> Snapshot:
        return self.loop.snapshot(self.now_s)

    def motors_driven(self) -> bool:
        return self.outputs.command is not None and any(self.outputs.command.motors)


class Alone:
    """A commander without a loop, armed, of a ship that flies or rests."""

    def __init__(
        self, state: VehicleState = UP, *, armed: bool = True, killed_s: float | None = None
    ) -> None:
        self.pilot = Pilot(ship=a_ship())
        self.supervisor = Supervisor(
            pilot=self.pilot,
            failsafe=Failsafe(airframe=twin()),
            bench=False,
            on_landed=lambda: None,
            killed_s=killed_s,
        )
        self.commander = Commander(
            airframe=twin(),
            pilot=self.pilot,
            supervisor=self.supervisor,
            sensors=BenchSensors().status,
            boot_id="boot-1",
            max_wind_mps=1.2,
        )
        self.state = state
        if armed:
            self.supervisor.arm(state)
        if not state.on_ground:
            self.pilot.enter(Hold(state), reason="flying")
        self._sent = 0

    def send(self, command: Command) -> Outcome:
        flags = Flags(battery_v=8.0)
        return self.commander.handle(command, now_s=1.0, state=self.state, flags=flags)

    def tell(self, name: str, /, **arguments: Any) -> Outcome:
        self._sent += 1
        return self.send(Command(id=str(self._sent), name=name, arguments=arguments))

    def wish(self, seconds: float = 0.02) -> Setpoint:
        """What the mode that flies asks for after so long."""
        for _ in range(round(seconds / 0.02)):
            setpoint = self.pilot.flying.update(self.state, dt_s=0.02)
        return setpoint
