"""An airframe: one TOML file that says everything about a ship, and its reader.

The simulator reads the physics, the mixer the geometry, the controller the gains, the
board the device table: each takes its part of the same frozen `Airframe`.
"""

import math
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from blimp.constants import AIR_DENSITY_KGM3
from blimp.errors import AirframeError
from blimp.reading import ready
from blimp.suggest import suggestion, with_suggestion
from blimp.types import ZERO3, Mode, Vec3

EARTH_RADIUS_M = 6_371_000.0
_POLE_DEG = 89.99  # nearer to a pole, 1.1 km, east is no direction
# Nothing of a ship is smaller or larger, and arithmetic holds in between.
Positive = Annotated[float, Meta(ge=1e-9, lt=1e6)]
NotNegative = Annotated[float, Meta(ge=0.0, lt=1e6)]
Finite = Annotated[float, Meta(ge=-1e6, le=1e6)]
Finite3 = tuple[Finite, Finite, Finite]
NotNegative3 = tuple[NotNegative, NotNegative, NotNegative]
Name = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
MAX_DEAD_BAND = 0.3  # more is a motor, a bearing or a driver that needs mending
DeadBand = Annotated[float, Meta(ge=0.0, le=MAX_DEAD_BAND)]

# Numbers that earlier versions read and this one does not. A ship keeps its file over an upgrade:
# they are passed over wherever an airframe is read; `blimp airframe check` and `doctor` name them.
RETIRED = (
    "estimator.plumb_gain",
    "estimator.gyro_bias_gain",
    "estimator.thrust_accel_sigma_mps2",
    "estimator.wind_accel_drift_mps2",
)
_CRAWL = 0.05  # of full speed: with thrust by its square, 0.25 % of thrust
_TURNS = 0.1  # of an axis, across its hinge: less, 6 degrees, is no tilt


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all parts: an unknown key is a typing error, not something to ignore."""


class Hull(_Part, frozen=True, kw_only=True):
    """The envelope. Body origin and forces of buoyancy are at its centre of volume."""

    length_m: Positive
    diameter_m: Positive
    height_m: NotNegative = 0.0  # of a hull that is not round; 0 means the diameter
    volume_m3: Positive
    # Of the gas in the mass budget, whose item "helium" must weigh what it says.
    helium_purity: Annotated[float, Meta(gt=0.5, le=1.0)] | None = None
    # Foil holds taut_m3 at most, latex stretches; volume_m3 is the gas at ISA sea level.
    envelope: Literal["foil", "latex"] = "foil"
    taut_m3: NotNegative = 0.0  # 0 means volume_m3: a foil hull filled until it is taut
    leak_m3_per_day: NotNegative = 0.0


class Item(_Part, frozen=True, kw_only=True):
    """One entry of the mass budget, so that mass, balance and inertia can be recomputed."""

    name: Name
    mass_kg: NotNegative
    position_m: Finite3  # from the centre of buoyancy
    inertia_kg_m2: NotNegative3 = (0.0, 0.0, 0.0)  # about its own centre


class Moving(_Part, frozen=True, kw_only=True):
    """A part that a servo moves along the ship, such as a gondola on a rail.

    `mass` below balances the ship with this servo at angle 0.
    """

    servo: str
    mass_kg: Positive
    position_m: Finite3  # at angle 0, from the centre of buoyancy
    travel_m_per_rad: Finite3


class Mass(_Part, frozen=True, kw_only=True):
    """The ship's mass, gas included, and where it sits."""

    heaviness_kg: Finite  # weight minus buoyancy at ISA sea level, over g; the rest follows
    inertia_kg_m2: tuple[Positive, Positive, Positive]  # about the centre of gravity, gas in
    center_of_gravity_m: Finite3  # from the centre of buoyancy, body frame; z > 0 is below
    item: tuple[Item, ...] = ()  # where the numbers above come from; may be left out
    products_kg_m2: Finite3 = (0.0, 0.0, 0.0)  # sums of m x y, m x z and m y z about the same
    moving: tuple[Moving, ...] = ()


class Ground(_Part, frozen=True, kw_only=True):
    """What the ship stands on. The hull itself touches too, wherever it is lowest.

    Hook-and-loop feet on a landing mat, for a ship a few grams heavy would else be blown off
    its pad: grip_n is the side force that all feet together hold with no weight on them,
    hold_n the upward force that tears all of them off.
    """

    feet_m: tuple[Finite3, ...] = ()  # from the centre of buoyancy
    friction: NotNegative = 0.6
    grip_n: NotNegative = 0.0
    hold_n: NotNegative = 0.0


class Polar(_Part, frozen=True, kw_only=True):
    """Lift, side force and moments of a hull with wings, beside the drag by axis in `Aero`.

    Coefficients on 1/2 rho V^2 area_m2 (moments: times 1 m), rho of the ISA at sea level, over
    angle of attack a and sideslip b in radians, along the axes of the flow: drag back, side
    right, lift up.
    """

    area_m2: Positive
    drag: Finite3  # of 1, a^2, b^2
    side: Finite3  # of 1, a^2, b
    lift: Finite3  # of 1, a, b^2
    roll: Finite3  # of 1, a, b
    pitch: Finite3  # of 1, a, b^4
    yaw: Finite3  # of 1, a, b
    damping: NotNegative3 = (0.0, 0.0, 0.0)  # N m per rad/s of roll, pitch and yaw


class Aero(_Part, frozen=True, kw_only=True):
    """Forces on air-relative motion. Order: surge, sway, heave, roll, pitch, yaw."""

    added_mass_kg: NotNegative3
    added_inertia_kg_m2: NotNegative3
    linear_drag: tuple[
        NotNegative, NotNegative, NotNegative, NotNegative, NotNegative, NotNegative
    ]  # N per m/s, N m per rad/s
    quadratic_drag: tuple[
        NotNegative, NotNegative, NotNegative, NotNegative, NotNegative, NotNegative
    ]  # N per (m/s)^2, N m per (rad/s)^2
    fin_lift_per_rad: NotNegative = 0.0  # N per (m/s)^2 of both fin pairs at fin_position_m
    fin_position_m: Finite = 0.0  # along body x; negative is astern
    polar: Polar | None = None


_RIGHT: Vec3 = (0.0, 1.0, 0.0)


class Thruster(_Part, frozen=True, kw_only=True):
    """One propeller. Its axis is the direction of the force at positive throttle."""

    name: Name
    position_m: Finite3  # from the centre of buoyancy
    axis: Finite3  # unit vector; at tilt 0 where `tilted_by` names a servo
    max_thrust_n: Positive
    reverse_thrust_n: NotNegative
    exponent: Annotated[float, Meta(ge=1.0, le=3.0)] = 2.0  # thrust ~ throttle^exponent
    dead_band: DeadBand = 0.0  # throttle below which it stands; the curve begins there
    reverse_dead_band: DeadBand = 0.0
    lag_s: NotNegative = 0.1
    asymmetry: Annotated[float, Meta(ge=-0.5, le=0.5)] = 0.0  # true thrust is (1 + this) x
    max_current_a: NotNegative = 1.0
    tilted_by: str = ""  # the servo that turns its axis; several thrusters may share one
    # The hinge, a unit vector: a positive angle turns `axis` clockwise, seen along the hinge.
    # (0, 1, 0) turns forward to up, (0, 0, 1) forward to the right, (1, 0, 0) up to the right.
    tilt_axis: Finite3 = _RIGHT

    @property
    def turned(self) -> tuple[Vec3, Vec3, Vec3]:
        """The vectors a, b, c of its axis at a tilt t, a + b cos t + c sin t (Rodrigues)."""
        (x, y, z), (p, q, r) = self.axis, self.tilt_axis
        if not self.tilted_by:
            return self.axis, ZERO3, ZERO3
        along = x * p + y * q + z * r
        kept = (along * p, along * q, along * r)
        return (
            kept,
            (x - kept[0], y - kept[1], z - kept[2]),
            (q * z - r * y, r * x - p * z, p * y - q * x),
        )

    def throttle(self, thrust_n: float) -> float:
        """Return the throttle in [-1, 1] for a thrust, the inverse of its curve."""
        if thrust_n >= 0.0:
            share = min(1.0, thrust_n / self.max_thrust_n)
            return _past(self.dead_band, float(share ** (1.0 / self.exponent)))
        if self.reverse_thrust_n <= 0.0:
            return 0.0
        share = min(1.0, -thrust_n / self.reverse_thrust_n)
        return -_past(self.reverse_dead_band, float(share ** (1.0 / self.exponent)))

    def axis_at(self, tilt_rad: float) -> Vec3:
        """Return the direction of its force where its servo stands at `tilt_rad`."""
        (x, y, z), (a, b, c), (d, e, f) = self.turned
        cosine, sine = math.cos(tilt_rad), math.sin(tilt_rad)
        return (
            x + a * cosine + d * sine, y + b * cosine + e * sine, z + c * cosine + f * sine,
        )  # fmt: skip

    @property
    def ways(self) -> Vec3:
        """The most of its axis that can lie along surge, sway and heave, either way, 0 to 1.

        Of all tilts: travel of the servo is not counted in.
        """
        (x, y, z), (a, b, c), (d, e, f) = self.turned
        return (
            abs(x) + math.hypot(a, d), abs(y) + math.hypot(b, e), abs(z) + math.hypot(c, f),
        )  # fmt: skip


def _past(dead_band: float, speed: float) -> float:
    """Return the throttle at which a motor with this dead band turns at `speed`, 0 to 1.

    Below `_CRAWL` the dead band is crossed on a line: a jump at 0 would let the motor be thrown
    from one direction to the other by a wish that is as good as none.
    """
    if dead_band <= 0.0:
        return speed
    return dead_band * min(1.0, speed / _CRAWL) + (1.0 - dead_band) * speed


class Servo(_Part, frozen=True, kw_only=True):
    """One servo, named; angles in radians, slew in rad/s, pulses in seconds."""

    name: Name
    min_rad: Finite
    max_rad: Finite
    slew_radps: Positive
    neutral_rad: Finite = 0.0  # its safe state
    backlash_rad: Annotated[float, Meta(ge=0.0, le=0.5)] = 0.0  # play of gears and linkage
    min_pulse_s: Positive = 0.001  # at min_rad
    max_pulse_s: Positive = 0.002  # at max_rad


class Surface(_Part, frozen=True, kw_only=True):
    """A fin that a servo moves: a force along `axis` of force_per_rad x (air speed)^2 x angle.

    force_per_rad is 1/2 rho x area x lift slope: some 1.5 N per (m/s)^2 and rad for a square metre
    of a low fin (slope 2.4 per rad).
    """

    servo: str
    position_m: Finite3
    axis: Finite3  # direction of the force at a positive angle
    force_per_rad: NotNegative  # N per (m/s)^2 per rad


class Battery(_Part, frozen=True, kw_only=True):
    """Thevenin's model with one time constant: under load the voltage drops by `resistance_ohm` at
    once, and by `polarisation_ohm` as the chemistry follows with `polarisation_s`.

    flight_time_s: how long a full one flies the ship, as a clock has measured it: in place of a
    power monitor, or beside one. 0: not said.
    """

    cells: Annotated[int, Meta(ge=1, le=12)]
    capacity_ah: Positive
    resistance_ohm: NotNegative
    polarisation_ohm: NotNegative = 0.0
    polarisation_s: Positive = 20.0
    idle_current_a: NotNegative = 0.3
    warn_v: Positive
    empty_v: Positive
    flight_time_s: NotNegative = 0.0

    @property
    def settled_ohm(self) -> float:
        """What a load that lasts drops, over its current."""
        return self.resistance_ohm + self.polarisation_ohm


class Device(_Part, frozen=True, kw_only=True):
    """One row of the board table.

    bus: "i2c-1", "gpio" or "serial". outputs: which actuator hangs on which channel
    (DRV8833 "a"/"b", PCA9685 "0".."15"). options: what the chip's driver documents.
    """

    name: Name
    chip: Name
    bus: str
    address: Annotated[int, Meta(ge=0x03, le=0x77)] | None = None
    pins: dict[str, Annotated[int, Meta(ge=0, le=27)]] = {}
    port: str = ""
    baud: Annotated[int, Meta(ge=300, le=1_000_000)] = 115200
    outputs: dict[str, str] = {}
    rate_hz: Positive = 10.0
    required: bool = True  # arming needs it healthy
    options: dict[str, Any] = {}


class CameraRow(_Part, frozen=True, kw_only=True):
    """The options of a camera's row. A path is from the directory of the process that reads it.

    position_m: of the lens from the centre of buoyancy. At angles of 0 it looks forward, its
    picture upright; pitch -90 looks down, the bow at the top. lens: a file that `blimp camera
    calibrate` writes; without one, horizontal_fov_deg of the data sheet. tags: the map of the
    room's tags, a path or "hall", the simulator's; "" gives no position. sees: the colours that it
    looks for, and "tags". detector: a class of somebody's own that finds other things,
    "package.module:Class".
    """

    width: Annotated[int, Meta(ge=64, le=4608)] = 728
    height: Annotated[int, Meta(ge=64, le=2592)] = 544
    horizontal_fov_deg: Annotated[float, Meta(ge=20.0, le=150.0)] = 66.0
    lens: str = ""
    tags: str = ""
    sees: tuple[str, ...] = ()
    detector: str = ""
    position_m: tuple[Finite, Finite, Finite] = (0.0, 0.0, 0.0)
    roll_deg: Annotated[float, Meta(ge=-180.0, le=180.0)] = 0.0
    pitch_deg: Annotated[float, Meta(ge=-180.0, le=180.0)] = -90.0
    yaw_deg: Annotated[float, Meta(ge=-180.0, le=180.0)] = 0.0


class Channel(_Part, frozen=True, kw_only=True):
    """A channel of the radio transmitter, counted from 1 as on its screen."""

    channel: Annotated[int, Meta(ge=1, le=16)]
    reverse: bool = False


Share = Annotated[float, Meta(ge=-1.0, le=1.0)]
_STICK_NAMES = ("forward", "right", "up", "turn")


class Transmitter(_Part, frozen=True, kw_only=True):
    """What the channels of a radio transmitter do. A switch is on in its upper part.

    mode_names: the mode of each position of the switch `modes`, the lowest first. takes_control:
    by a stick that is moved, or by arm or mode switch; by the switch `control`, which no other
    setting uses; or never, so that only `stop` acts. manual: of each output in MANUAL the shares of
    the sticks that it follows: `left = { forward = 1.0, turn = 0.5 }`. It may be empty where no
    position of `modes` is MANUAL.
    """

    forward: Channel = Channel(channel=2)
    right: Channel = Channel(channel=1)
    up: Channel = Channel(channel=3)
    turn: Channel = Channel(channel=4)
    arm: Channel = Channel(channel=5)
    modes: Channel = Channel(channel=6)
    stop: Channel = Channel(channel=7)
    control: Channel = Channel(channel=8)
    mode_names: Annotated[tuple[str, ...], Meta(min_length=2, max_length=3)] = (
        "STABILIZE",
        "ALTHOLD",
        "VELOCITY",
    )
    deadband: DeadBand = 0.05  # of a stick's way to one side
    takes_control: Literal["stick", "switch", "never"] = "stick"
    manual: dict[str, dict[Literal["forward", "right", "up", "turn"], Share]] = {}

    def problems(self, outputs: tuple[str, ...]) -> list[str]:
        """Return what no schema can say; outputs: the ship's, by name."""
        known = [name for name in Mode.__members__ if name not in ("AUTO", "FOLLOW")]
        found = [
            f"transmitter: mode_names: no mode {name!r}; modes are {', '.join(known)}"
            for name in self.mode_names
            if name not in known
        ]
        uses: dict[int, str] = {}
        for name in self.__struct_fields__:
            use = getattr(self, name)
            if not isinstance(use, Channel) or (
                name == "control" and self.takes_control != "switch"
            ):
                continue
            other = uses.setdefault(use.channel, name)
            if other != name:
                found.append(f"transmitter: {other} and {name} both use channel {use.channel}")
        if "MANUAL" in self.mode_names and not self.manual:
            found.append(
                "transmitter: manual: empty, and mode_names has MANUAL: no stick would move an "
                "output; give one its shares, as in left = { forward = 1.0 }"
            )
        found += [
            f"transmitter: manual: {name!r} follows no stick; leave it out, or give it shares of "
            f"{', '.join(_STICK_NAMES)}"
            for name, shares in self.manual.items()
            if not any(shares.values())
        ]
        return found + [
            f"transmitter: manual: {name!r} is no output; outputs are {', '.join(outputs)}"
            for name in self.manual
            if name not in outputs
        ]


class Gains(_Part, frozen=True, kw_only=True):
    """The controller's numbers. See `blimp/control/controller.py` for the law they feed."""

    position_p: Positive  # 1/s: metres of error to m/s
    velocity_p: Positive  # 1/s: m/s of error to m/s^2, times the mass with added mass
    velocity_i: NotNegative  # 1/s^2
    height_p: Positive
    climb_p: Positive
    climb_i: NotNegative
    yaw_p: Positive  # 1/s: radians of error to rad/s
    yaw_rate_p: Positive  # 1/s: rad/s of error to rad/s^2, times the inertia
    yaw_rate_i: NotNegative
    # The ratio by which thrust damps the swing: 0 switches it off, see `blimp/control/swing.py`.
    swing_damping: Annotated[float, Meta(ge=0.0, le=0.5)] = 0.0


class Estimation(_Part, frozen=True, kw_only=True):
    """Noises, gains and gates of the estimator's filters, which say in `blimp/control` what each
    is for. A sigma is one standard deviation; a drift is a random walk per square root of a second.
    """

    baro_sigma_m: Positive = 0.25  # gusts on the static port, not the chip's noise
    ranger_sigma_m: Positive = 0.05
    baro_drift_m: Positive = 0.008
    # Both pairs: white noise per sqrt(s), and the drift that the attitude's errors make of g.
    # Measured by `python -m benchmarks.consistency`: so large that no ship is overconfident.
    accel_up_sigma_mps2: Positive = 0.02
    accel_up_drift_mps2: Positive = 0.002
    height_gate_m: Positive = 0.4  # an innovation within it is never refused
    accel_sigma_mps2: Positive = 0.01
    accel_drift_mps2: Positive = 0.003
    position_gate_m: Positive = 0.6
    gps_share: Positive = 0.3  # of its stated accuracy that is noise; the rest wanders slowly
    gps_floor_m: Positive = 0.5
    gps_velocity_sigma_mps: Positive = 0.15
    # From the air to the estimator: ranging or solving, the line, and half a polling period.
    tag_latency_s: NotNegative = 0.1
    gps_latency_s: NotNegative = 0.2
    gate_sigmas: Positive = 5.0
    gyro_drift_radps: Positive = 2e-5  # of its bias, warming up
    heading_drift_rad: Positive = 2e-3  # what scale and misalignment add
    magnetometer_sigma_rad: Positive = 0.15  # iron in a hall


class Limits(_Part, frozen=True, kw_only=True):
    """What a mode may ask of this ship."""

    speed_mps: Positive  # along a leg
    climb_mps: Positive
    descent_mps: Positive
    column_mps: Positive  # straight up or down over one place
    touchdown_mps: Positive
    acceleration_mps2: Positive
    yaw_rate_radps: Positive
    max_altitude_m: Positive
    max_distance_m: Positive


@ready
class Home(_Part, frozen=True, kw_only=True):
    """Where the pad is on Earth; the local frame's origin for GPS."""

    latitude_deg: Annotated[float, Meta(ge=-90.0, le=90.0)]
    longitude_deg: Annotated[float, Meta(ge=-180.0, le=180.0)]
    altitude_msl_m: Annotated[float, Meta(ge=-500.0, le=9000.0)]  # where there is land

    def local_m(self, latitude_deg: float, longitude_deg: float) -> tuple[float, float]:
        """Return metres north and east of the pad, on a sphere: 0.3 % of a leg."""
        north_m, east_m = self._m_per_deg
        east_deg = (longitude_deg - self.longitude_deg + 180.0) % 360.0 - 180.0
        return (latitude_deg - self.latitude_deg) * north_m, east_deg * east_m

    def global_deg(self, north_m: float, east_m: float) -> tuple[float, float]:
        """Return latitude and longitude of a place so far from the pad; inverse of `local_m`."""
        per_north_m, per_east_m = self._m_per_deg
        longitude_deg = self.longitude_deg + east_m / per_east_m
        longitude_deg = (longitude_deg + 180.0) % 360.0 - 180.0
        return self.latitude_deg + north_m / per_north_m, longitude_deg

    @property
    def _m_per_deg(self) -> tuple[float, float]:
        north_m = math.radians(1.0) * EARTH_RADIUS_M
        return north_m, north_m * math.cos(math.radians(self.latitude_deg))


@ready
class Airframe(_Part, frozen=True, kw_only=True):
    name: Name
    description: str
    source: Annotated[str, Meta(min_length=1)]
    hull: Hull
    mass: Mass
    aero: Aero
    ground: Ground = Ground()
    thruster: Annotated[tuple[Thruster, ...], Meta(min_length=1)]
    servo: tuple[Servo, ...] = ()
    surface: tuple[Surface, ...] = ()
    battery: Battery
    device: tuple[Device, ...]
    gains: Gains
    limits: Limits
    home: Home
    estimator: Estimation = Estimation()
    transmitter: Transmitter = Transmitter()
    # Whether it lands under power if its flight process died in the air; else it comes back
    # disarmed. "light": if flight has shown that it would not come down by itself.
    resume_after_crash: Literal["never", "light", "always"] = "light"

    def with_pad_east(self, metres: float) -> "Airframe":
        """Return the same ship with its home so far east: several must not start in one place.

        On a sphere. Raises AirframeError at a pole, which has no east.
        """
        if not metres:
            return self
        if abs(self.home.latitude_deg) > _POLE_DEG:
            raise AirframeError(
                f"airframe {self.name}: home: latitude {self.home.latitude_deg:g} is a pole, "
                f"a pad cannot be {metres:g} m east of it"
            )
        _, longitude_deg = self.home.global_deg(0.0, metres)
        home = msgspec.structs.replace(self.home, longitude_deg=longitude_deg)
        return msgspec.structs.replace(self, home=home)

    @property
    def mass_kg(self) -> float:
        """Everything that has to be moved: structure, gas and ballast, without added mass."""
        return AIR_DENSITY_KGM3 * self.hull.volume_m3 + self.mass.heaviness_kg

    @property
    def stand_m(self) -> float:
        """How far the floor is below the hull's centre when the ship stands on it, level."""
        half_m = 0.5 * (self.hull.height_m or self.hull.diameter_m)
        return max([half_m, *(foot[2] for foot in self.ground.feet_m)])

    @property
    def thruster_names(self) -> tuple[str, ...]:
        return tuple(thruster.name for thruster in self.thruster)

    @property
    def servo_names(self) -> tuple[str, ...]:
        return tuple(servo.name for servo in self.servo)


def names() -> tuple[str, ...]:
    """Return the names of the airframes that come with the package, sorted."""
    files = resources.files("blimp.airframes").iterdir()
    return tuple(sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml")))


def load(name_or_path: str) -> Airframe:
    """Read an airframe by its name, or from a path ending in `.toml`, or in `.json` as a flight
    process leaves it.

    Raises AirframeError naming the file, the key and the limit.
    """
    if name_or_path.endswith(".json"):
        return _from_json(Path(name_or_path))
    if name_or_path.endswith(".toml"):
        path = Path(name_or_path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise AirframeError(f"airframe file {path}: {error}") from error
    else:
        text = _known(name_or_path, else_="give the path of a .toml file")
    return parse(text, where=name_or_path)


def _known(name: str, *, else_: str) -> str:
    if name not in names():
        raise AirframeError(
            f"no airframe {name!r}{suggestion(name, names())}: "
            f"known are {', '.join(names())}, or {else_}"
        )
    return (resources.files("blimp.airframes") / f"{name}.toml").read_text("utf-8")


def room_file(name_or_path: str) -> Path:
    """Return the map of tags that a camera's row names: a room of the package, or a path."""
    room = Path(str(resources.files("blimp.airframes") / "rooms" / f"{name_or_path}.toml"))
    return room if name_or_path.isalnum() and room.exists() else Path(name_or_path)


def from_table(table: object) -> Airframe:
    """Convert what a file, a log or a ship has, of this version or an earlier one.

    Raises msgspec.ValidationError naming the key. What must match, see `parse`, is not checked.
    """
    if isinstance(table, Mapping):
        for key in _retired(table):
            section, _, name = key.partition(".")
            part = {k: v for k, v in table[section].items() if k != name}
            table = {**table, section: part}
    return msgspec.convert(table, Airframe)


def retired(name_or_path: str) -> tuple[str, ...]:
    """Return the keys of an airframe's file that this version passes over."""
    if not name_or_path.endswith(".toml"):
        return ()
    try:
        return tuple(_retired(tomllib.loads(Path(name_or_path).read_text("utf-8"))))
    except (OSError, ValueError, RecursionError):
        return ()  # `load` says why


def _retired(table: Mapping[str, Any]) -> Iterator[str]:
    for key in RETIRED:
        section, _, name = key.partition(".")
        part = table.get(section)
        if isinstance(part, Mapping) and name in part:
            yield key


def _from_json(path: Path) -> Airframe:
    try:
        airframe = from_table(msgspec.json.decode(path.read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        raise AirframeError(f"airframe file {path}: {error}") from error
    return _checked(airframe, where=str(path))


def parse(text: str, *, where: str) -> Airframe:
    """Read an airframe from TOML text; `where` names it in errors.

    `like` names a known airframe, whose tables stand for those that the text leaves out.
    """
    try:
        table = tomllib.loads(text)
        while "like" in table:
            like = str(table.pop("like"))
            table = tomllib.loads(_known(like, else_=f"no `like` in {where}")) | table
        airframe = from_table(table)
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        problem = with_suggestion(str(error), Airframe)
        raise AirframeError(f"airframe {where}: {problem}") from error
    return _checked(airframe, where=where)


def _checked(airframe: Airframe, *, where: str) -> Airframe:
    for problem in _problems(airframe):
        raise AirframeError(f"airframe {where}: {problem}")
    return airframe


def _problems(airframe: Airframe) -> list[str]:
    """What no schema can say: names that must match, and axes that must be unit vectors."""
    found: list[str] = []
    outputs = airframe.thruster_names + airframe.servo_names
    found += [f"two outputs are named {n!r}" for n in set(outputs) if outputs.count(n) > 1]
    found += airframe.transmitter.problems(outputs)
    devices = [device.name for device in airframe.device]
    found += [f"two devices are named {n!r}" for n in set(devices) if devices.count(n) > 1]
    if not airframe.mass_kg > 0.0:
        found.append(
            f"mass: heaviness_kg {airframe.mass.heaviness_kg:g} leaves {airframe.mass_kg:g} kg "
            f"of a hull of {airframe.hull.volume_m3:g} m3, must be above 0"
        )
    hull = airframe.hull
    box_m3 = hull.length_m * hull.diameter_m * (hull.height_m or hull.diameter_m)
    if hull.volume_m3 > box_m3:
        found.append(
            f"hull: volume_m3 {hull.volume_m3:g} is more than its length, diameter and height "
            f"can hold, {box_m3:g}"
        )
    reach_m = max(hull.length_m, hull.diameter_m, hull.height_m)
    if math.hypot(*airframe.mass.center_of_gravity_m) > reach_m:
        found.append(
            f"mass: center_of_gravity_m {airframe.mass.center_of_gravity_m} is farther from the "
            f"centre of buoyancy than the hull is long, {reach_m:g} m"
        )
    for thruster in airframe.thruster:
        if thruster.tilted_by and thruster.tilted_by not in airframe.servo_names:
            found.append(f"thruster {thruster.name!r} is tilted by no servo {thruster.tilted_by!r}")
        found += _tilt_problems(thruster)
    tilting = {thruster.tilted_by for thruster in airframe.thruster}
    for surface in airframe.surface:
        if surface.servo not in airframe.servo_names:
            found.append(f"a surface is moved by no servo {surface.servo!r}")
        if surface.servo in tilting:
            found.append(
                f"servo {surface.servo!r} tilts a thruster and moves a surface: it can be asked "
                "for one of them"
            )
        if surface.force_per_rad <= 0.0:
            found.append(
                f"the surface on {surface.servo!r}: force_per_rad {surface.force_per_rad:g} is a "
                "fin without area: it is about 1.5 times its area in square metres"
            )
        found += _axis_problem(f"the surface on {surface.servo!r}", surface.axis)
    for moving in airframe.mass.moving:
        if moving.servo not in airframe.servo_names:
            found.append(f"a moving mass is moved by no servo {moving.servo!r}")
        if moving.mass_kg >= airframe.mass_kg:
            found.append(
                f"the mass on {moving.servo!r} weighs {moving.mass_kg:g} kg, must be less than "
                f"the ship's {airframe.mass_kg:g} kg"
            )
    if 0.0 < hull.taut_m3 < hull.volume_m3:
        found.append(
            f"hull: taut_m3 {hull.taut_m3:g} is less than the gas in it, volume_m3 "
            f"{hull.volume_m3:g}; 0 means the same"
        )
    for servo in airframe.servo:
        if (
            not servo.min_rad <= servo.neutral_rad <= servo.max_rad
            or servo.min_rad >= servo.max_rad
        ):
            found.append(
                f"servo {servo.name!r}: min_rad {servo.min_rad} < neutral_rad "
                f"{servo.neutral_rad} < max_rad {servo.max_rad} does not hold"
            )
    driven = [name for device in airframe.device for name in device.outputs.values()]
    found += [f"no device drives {name!r}" for name in outputs if name not in driven]
    found += [f"output {name!r} is driven twice" for name in set(driven) if driven.count(name) > 1]
    found += [
        f"a device drives {name!r}, which is no output" for name in driven if name not in outputs
    ]
    return found


def _tilt_problems(thruster: Thruster) -> list[str]:
    what = f"thruster {thruster.name!r}"
    found = _axis_problem(what, thruster.axis)
    found += _axis_problem(what, thruster.tilt_axis, key="tilt_axis")
    if not thruster.tilted_by and thruster.tilt_axis != _RIGHT:
        found.append(f"{what}: tilt_axis is given, and no tilted_by: no servo would turn it")
    if thruster.tilted_by and not found and math.hypot(*thruster.turned[2]) < _TURNS:
        found.append(
            f"{what}: servo {thruster.tilted_by!r} tilts nothing: axis lies along tilt_axis "
            f"{thruster.tilt_axis}, the hinge"
        )
    return found


def _axis_problem(what: str, axis: Vec3, *, key: str = "axis") -> list[str]:
    length = math.hypot(*axis)
    return [] if abs(length - 1.0) < 1e-3 else [f"{what}: {key} has length {length:.4f}, must be 1"]
