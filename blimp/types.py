"""Every type that crosses a package.

SI units and radians throughout; temperatures in degrees Celsius. The world frame is
north-east-down (NED), the body frame forward-right-down (FRD); a quaternion is
(w, x, y, z) and turns a body vector into the world frame. Yaw is positive clockwise seen
from above. Unit and frame stand in the name.

Data only: frozen structs, no behaviour but what can be derived from the fields.
"""

from collections.abc import Callable
from enum import IntEnum, StrEnum
from math import inf
from typing import Any

import msgspec

from blimp.reading import ready

Vec3 = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]

ZERO3: Vec3 = (0.0, 0.0, 0.0)
LEVEL: Quaternion = (1.0, 0.0, 0.0, 0.0)
# What a ship does once its link has been lost for so long: see `blimp/control/failsafe.py`.
LINK_HOLD_S, LINK_RETURN_S, LINK_LAND_S = 3.0, 30.0, 60.0
VOTE_FRESH_S = 1.0  # an older vote is no witness

Progress = Callable[[float], object]  # called with the share that is done, 0 to 1


def unseen(share: float, /) -> None:
    """Progress that nobody looks at."""


class Mode(IntEnum):
    """Flight modes with ArduPilot Blimp's numbers; it has none from 7 on."""

    LAND = 0
    MANUAL = 1
    VELOCITY = 2
    LOITER = 3
    RTL = 4
    AUTO = 5
    HOLD = 6
    STABILIZE = 7
    ALTHOLD = 8
    FOLLOW = 9


# --- sensors: hardware -> estimator ---------------------------------------------------


class ImuSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One accelerometer and gyro reading, already turned into the body frame.

    magnetic_body_t: the field in tesla; None from a chip without a magnetometer,
    or one that does not answer.
    """

    t_s: float
    accel_body_mps2: Vec3  # specific force: (0, 0, -9.81) when level and at rest
    gyro_body_radps: Vec3
    temperature_c: float
    magnetic_body_t: Vec3 | None = None


class BaroSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    t_s: float
    pressure_pa: float
    temperature_c: float


class RangeSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Distance along the sensor's beam. An echo that cannot be trusted makes no sample."""

    t_s: float
    distance_m: float


class FlowSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How fast the ground moves in the view of a sensor that looks down, over `span_s`.

    Forward and right, positive as the ship goes there: its speed over its height, and its own
    turning (pitch forward, roll against right), which is not taken out. quality: of the surface,
    the more the better.
    """

    t_s: float
    span_s: float
    flow_body_radps: tuple[float, float]
    quality: int


class PositionSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A position from the indoor tag, in the room's frame (NED, origin at the pad).

    latency_s: how old it was at `t_s`; None if the receiver does not say. yaw_rad: of a motion
    capture system or a camera, which also see height; None from a tag. bias_m: of the accuracy,
    what is the same in the next sample, so that no average takes it out.
    """

    t_s: float
    position_ned_m: Vec3
    accuracy_m: float  # one standard deviation, horizontal
    latency_s: float | None = None
    yaw_rad: float | None = None
    yaw_accuracy_rad: float = 0.0
    bias_m: float = 0.0


class CameraPose(msgspec.Struct, frozen=True, kw_only=True, tag="camera-pose"):
    """What the camera's process tells the flight process of one picture, one datagram.

    boot_id: drawn when the camera's process starts; sequence: grows with each of its
    datagrams. exposed_s: the middle of the exposure, CLOCK_MONOTONIC. position_ned_m: of the
    hull's middle, from the pad; None if the picture has no position, and `reason` says why.
    accuracy_m: one standard deviation, horizontal, of which bias_m is the same in every picture.
    """

    boot_id: str
    sequence: int
    exposed_s: float
    position_ned_m: Vec3 | None = None
    yaw_rad: float = 0.0
    accuracy_m: float = 0.0
    bias_m: float = 0.0
    yaw_accuracy_rad: float = 0.0
    tags: int = 0
    reason: str = ""


class GpsSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    t_s: float
    latitude_deg: float
    longitude_deg: float
    altitude_msl_m: float
    velocity_ned_mps: Vec3 | None  # None if the receiver gives no course and speed
    accuracy_m: float
    satellites: int


class PowerSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    t_s: float
    voltage_v: float
    current_a: float | None  # out of the battery; None: not measured


class TransmitterSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The channels of a radio transmitter as shares, -1 to 1, the first one first.

    Empty: the receiver lives and hears no transmitter. doubted: numbers of the channels, counted
    from 1, that jump from frame to frame; what they have is what they had before that.
    """

    t_s: float
    channels: tuple[float, ...] = ()
    doubted: tuple[int, ...] = ()


class Sighting(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One thing that a camera saw.

    kind: a colour, "tag-7", or a name that somebody's own detector gives. direction_body: the
    unit vector from the camera to its middle. size_rad: the angle that its diameter fills.
    confidence: 0 to 1, as the detector has it.
    """

    kind: str
    direction_body: Vec3
    size_rad: float
    confidence: float = 1.0


class SeenSample(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="camera-seen"):
    """What a camera saw in one frame, one datagram of its process to the flight process.

    t_s: the middle of the exposure, CLOCK_MONOTONIC. camera_body_m: where the camera is, from the
    centre of buoyancy. axis_body: where it looks.
    """

    t_s: float
    found: tuple[Sighting, ...] = ()
    camera_body_m: Vec3 = ZERO3
    axis_body: Vec3 = (1.0, 0.0, 0.0)


class SensorReadings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The newest good sample of every sensor; its `t_s` tells a new one from an old one.

    `None` until the first. `unhealthy` names the devices that do not answer, are frozen
    or contradict themselves; their last good sample stays, and ages.
    """

    t_s: float
    imu: ImuSample | None = None
    baro: BaroSample | None = None
    ranger: RangeSample | None = None
    sonar: RangeSample | None = None
    tag: PositionSample | None = None
    gps: GpsSample | None = None
    power: PowerSample | None = None
    transmitter: TransmitterSample | None = None
    camera: PositionSample | None = None
    flow: FlowSample | None = None  # measured and shown; the estimator does not use it yet
    seen: SeenSample | None = None  # a mode uses it, no filter does
    unhealthy: tuple[str, ...] = ()


class SensorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One device as a person sees it. `value` is None until the first good sample."""

    value: float | tuple[float, ...] | None
    unit: str
    age_s: float | None
    healthy: bool
    error: str = ""


# --- state: estimator -> controller, and the simulator's truth --------------------------


class Vote(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one sensor, or one model, says of a quantity beside the estimate of it.

    value: in the quantity's unit; of a position and a velocity the distance from the estimate.
    agrees: it is within its gate, so the estimate may use it; with False it is outvoted.
    """

    sensor: str  # "baro", "ranger", "sonar", "tag", "camera", "gps", "imu", "thrust", ...
    value: float
    innovation: float  # value minus estimate when it came
    age_s: float
    agrees: bool


class QuantityHealth(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How good the estimate of one quantity is, and who says so.

    sigma: one standard deviation as the filter believes, in the quantity's unit.
    age_s: since a sensor that agrees was last used.
    doubt: why this estimate may be wrong and must not decide alone; "" if there is no reason.
    contested: of the heading: gyro and commanded torque are apart, and one of them is wrong.
    """

    sigma: float = 0.0
    age_s: float = 0.0
    doubt: str = ""
    votes: tuple[Vote, ...] = ()
    contested: bool = False

    @property
    def witnesses(self) -> tuple[str, ...]:
        """The sensors that agree with the estimate and are not old."""
        return tuple(v.sensor for v in self.votes if v.agrees and v.age_s <= VOTE_FRESH_S)


class EstimateHealth(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The health of each part of a `VehicleState`; truth has no doubts.

    SI units: height m, climb m/s, position m, velocity m/s, attitude (tilt) and heading rad.
    """

    height: QuantityHealth = QuantityHealth()
    climb: QuantityHealth = QuantityHealth()
    position: QuantityHealth = QuantityHealth()
    velocity: QuantityHealth = QuantityHealth()
    attitude: QuantityHealth = QuantityHealth()
    heading: QuantityHealth = QuantityHealth()

    @property
    def in_doubt(self) -> bool:
        """Whether there is any doubt; asked every cycle."""
        return bool(
            self.height.doubt
            or self.climb.doubt
            or self.position.doubt
            or self.velocity.doubt
            or self.attitude.doubt
            or self.heading.doubt
        )

    @property
    def doubts(self) -> tuple[str, ...]:
        """Every doubt there is, each naming its quantity."""
        names = self.__struct_fields__
        found = ((name, getattr(self, name).doubt) for name in names)
        return tuple(f"{name}: {doubt}" for name, doubt in found if doubt)


class Contact(StrEnum):
    """What carries the ship."""

    UNKNOWN = "unknown"  # what would tell is missing, or contradicts itself
    AIRBORNE = "airborne"  # air and thrust alone
    TOUCHING = "touching"  # the ground carries some of it, and nothing says that it stays
    RESTING = "resting"  # it lies on the ground by its weight, or by its feet, without thrust
    PRESSED = "pressed"  # thrust holds it on the ground
    HELD = "held"  # somebody holds it


STANDS = (Contact.RESTING, Contact.PRESSED)  # on the ground for good, by what brought it there


class Touch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How the ship touches the world, and what says so: made once a cycle, read by all.

    carried: two families of raw heights say that the ground carries it: then no height moves it.
    probability: of that, by all of them. against: families that say otherwise, unless outnumbered,
    each with its height.
    """

    contact: Contact = Contact.UNKNOWN
    carried: bool = False
    probability: float = 0.0
    against: tuple[tuple[str, float], ...] = ()

    @property
    def doubt(self) -> str:
        """Return why it may be in the air, "" if nothing says so."""
        return ", ".join(f"{name} says {height_m:.1f} m" for name, height_m in self.against)

    @property
    def on_ground(self) -> bool:
        return self.contact is Contact.TOUCHING or self.contact in STANDS


IN_AIR = Touch(contact=Contact.AIRBORNE)
ON_GROUND = Touch(contact=Contact.TOUCHING)


class VehicleState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where the ship is and how it moves. Position is that of the centre of buoyancy.

    The pad the ship started from is the origin; down is 0 when it stands there.
    The validity flags and ages are the estimator's; truth has them all good.
    """

    t_s: float
    attitude: Quaternion = LEVEL
    rates_body_radps: Vec3 = ZERO3
    position_ned_m: Vec3 = ZERO3
    velocity_ned_mps: Vec3 = ZERO3
    attitude_valid: bool = True
    height_valid: bool = True
    position_valid: bool = True  # and where the nose points: good to steer by
    position_age_s: float = 0.0  # of the place alone
    heading_valid: bool = True
    coasting: bool = False  # attitude and rates are a model's: the IMU is silent
    touch: Touch = IN_AIR
    health: EstimateHealth = EstimateHealth()

    @property
    def on_ground(self) -> bool:
        return self.touch.on_ground

    @property
    def altitude_m(self) -> float:
        """Height above the pad, up-positive."""
        return -self.position_ned_m[2]


# --- demand: mode -> controller -> mixer -> drivers ---------------------------------------


class ActuatorCommand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The commands to the drivers, in the airframe's order.

    motors: one throttle in [-1, 1] per thruster. servos: one angle in radians per servo. asleep:
    the thrusters that are not to turn: a driver of no other one sleeps, if it can, and then even a
    stuck input turns none.
    """

    motors: tuple[float, ...]
    servos: tuple[float, ...]
    asleep: tuple[str, ...] = ()


class Wrench(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Force and torque about the centre of gravity, body frame."""

    force_body_n: Vec3 = ZERO3
    torque_body_nm: Vec3 = ZERO3


class Setpoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a mode wants, absolute, latest wins.

    A field that is None is not controlled. `velocity_ned_mps` is the demand itself if
    `position_ned_m` is None, else a feed-forward beside it. `thrust_body`: the share, -1 to 1, of
    the force that the ship has forward, right and down, where a person asks for it instead; down
    comes beside the ship's weight. `sink_mps`: thrust and weight together must not be enough for a
    faster descent, whatever the estimate says. `climb_mps` is the fastest climb, also of a push;
    below 0 the ship sinks. `press_n` presses a ship onto the ground with this
    force, in place of every other wish. `actuators`
    (MANUAL and bench only) bypasses controller and mixer, never the motor gate.
    """

    position_ned_m: tuple[float | None, float | None, float | None] = (None, None, None)
    velocity_ned_mps: Vec3 = ZERO3
    acceleration_ned_mps2: Vec3 = ZERO3  # feed-forward
    yaw_rad: float | None = None
    yaw_rate_radps: float = 0.0
    thrust_body: tuple[float | None, float | None, float | None] = (None, None, None)
    sink_mps: float | None = None
    climb_mps: float | None = None
    press_n: float | None = None
    actuators: ActuatorCommand | None = None
    idle: bool = False  # outputs at their safe state: disarmed, killed or resting on the ground


# --- a path in time: ground -> mode ----------------------------------------------------------


class TrajectoryPoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One row: time since the trajectory began, place, velocity over ground, heading.

    yaw_rad: not wrapped, so that two turns are two turns; None: any heading.
    """

    t_s: float
    north_m: float
    east_m: float
    altitude_m: float
    north_mps: float
    east_mps: float
    up_mps: float
    yaw_rad: float | None = None
    yaw_rate_radps: float = 0.0


# --- the mailbox: worker <-> flight process ------------------------------------------------


MAX_AUTHORITY = 2**54


class Command(msgspec.Struct, frozen=True, kw_only=True, tag="command"):
    """One command to the flight process.

    id: the task id; a command that comes again with it gets its first outcome again.
    fence: the delivery count of the task; an older one than seen for this id is refused.
    age_s: how old the command was at `sent_s`, on the broker's clock.
    ttl_s: the age past which it must not act. None where age does not matter (ping).
    boot_id: the flight process it was meant for; "" accepts any.
    sent_s: when `age_s` held, on the clock that both processes have (CLOCK_MONOTONIC).
    waited_s: how long ago that was when it was received, which the receiver measures;
        infinite if it does not say, or names a time to come or before the receiver began.
    authority: under which it was let through, a number that grows whenever control of the
        ship changes; an older one than seen before is refused. 0 if nobody asked.
    trace: which trace it belongs to, a W3C traceparent; "" for none. Reported, never acted on.
    """

    id: str
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    fence: int = 1
    age_s: float = 0.0
    ttl_s: float | None = None
    boot_id: str = ""
    source: str = ""
    sent_s: float | None = None
    waited_s: float = 0.0
    authority: int = 0
    trace: str = ""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag="heartbeat"):
    """One sign of life of a pilot, that the worker found fresh, signed and of who has control.

    session: of the pilot's program. sequence: grows with each of a session.
    authority: as a command's. ends: the session says goodbye.
    sent_s, waited_s: as a command's, since the worker read it. Of a goodbye that the worker found
        late, or of somebody else than who has control, waited_s is infinite.
    """

    session: str
    sequence: int
    authority: int
    ends: bool = False
    sent_s: float | None = None
    waited_s: float = 0.0


class OutcomeState(StrEnum):
    DONE = "done"
    REFUSED = "refused"
    IN_PROGRESS = "in_progress"


class Outcome(msgspec.Struct, frozen=True, kw_only=True, tag="outcome"):
    """What became of a command. Refusals are values with a reason, never exceptions.

    accepted_s: when the flight process took the command (its monotonic clock).
    """

    id: str
    state: OutcomeState
    reason: str = ""
    fraction: float = 0.0
    result: dict[str, Any] = msgspec.field(default_factory=dict)
    accepted_s: float | None = None
    boot_id: str = ""


class LoopStatus(msgspec.Struct, frozen=True, kw_only=True):
    rate_hz: float
    cycles: int = 0
    overruns: int = 0
    wakeup_error_ms: dict[str, float] = msgspec.field(default_factory=dict)  # p50, p99, p999
    step_ms: dict[str, float] = msgspec.field(default_factory=dict)  # mean, p99
    refused: tuple[str, ...] = ()  # what the kernel does not allow for punctuality


class FlightRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a flight process leaves for its successor, should it die in the air.

    t_s: on the machine's monotonic clock. heaviness_kg: as weighed in flight, 0 before.
    pressure_pa: at `height_m`; 0 if it is not known.
    yaw_sigma_rad: of the heading; infinite if there is none to steer by.
    """

    t_s: float
    armed: bool
    killed: bool
    airborne: bool
    height_m: float
    heaviness_kg: float
    pressure_pa: float
    yaw_rad: float = 0.0
    yaw_sigma_rad: float = inf
    gyro_bias_radps: Vec3 = ZERO3


class Attitude(msgspec.Struct, frozen=True, kw_only=True):
    """Attitude as people read it, radians."""

    roll: float
    pitch: float
    yaw: float


@ready
class Snapshot(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot"):
    """Everything the ground may know about the ship at one instant."""

    t_s: float
    boot_id: str
    vehicle: str
    mode: str
    armed: bool
    killed: bool
    failsafe: str  # "" or the named action that is in force, e.g. "link lost: holding"
    position_ned_m: Vec3
    velocity_ned_mps: Vec3
    altitude_m: float
    attitude_rad: Attitude
    battery_v: float | None
    actuators: dict[str, float]  # motors as throttle [-1, 1], servos as radians
    sensors: dict[str, SensorStatus]
    loop: LoopStatus
    simulated: bool
    current_a: float | None = None  # out of the battery; None: not measured
    servos: tuple[str, ...] = ()  # those of `actuators` that are angles
    active_command: str = ""
    messages: tuple[str, ...] = ()
    health: EstimateHealth = EstimateHealth()  # of the estimate that the ship flies by
    link_age_s: float = 0.0  # what the failsafe judges: the older of the broker's and the pilot's
    deaf: str = ""  # why an emergency stop would not come by the broker; "" if it would
    pilot_age_s: float | None = None  # of the pilot's heartbeat; None: no pilot sends one
    heaviness_kg: float | None = None  # as level flight has weighed it; None before any
    contact: str = (
        Contact.UNKNOWN.value
    )  # what carries the ship; a text, for readers that are older
    target_ned_m: tuple[float | None, float | None, float | None] = (None, None, None)  # asked for
    wind_ned_mps: Vec3 | None = None  # as flight has shown it, horizontal; None before any
    wind_age_s: float | None = None  # since flight last showed it: without a position it does not
