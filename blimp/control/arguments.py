"""The arguments of every command, typed and bounded by the ship's limits.

`parse` raises ValueError with a sentence that names the argument, its value and the limit:
the commander turns it into a refusal.
"""

from math import degrees, hypot, isfinite, radians
from typing import Any, TypeVar

import msgspec

from blimp.ability import payload_servos
from blimp.airframe import Airframe
from blimp.control import trajectory
from blimp.control.trajectory import TrajectoryPoint
from blimp.geofence import Geofence, Rally, Zone
from blimp.parameters import with_parameter
from blimp.types import Mode

MIN_ALTITUDE_M = 0.5  # lower, a gust sets a hovering ship down
MIN_SPEED_MPS = 0.05  # slower, a leg has no end
MAX_SECONDS = 60.0  # of one velocity: a forgotten one ends
MAX_ACTUATOR_SECONDS = 30.0  # of one push on an output by hand
MAX_NAME_LETTERS = 40  # of a trajectory


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: an unknown argument is a mistake, not something to ignore."""

    def check(self, airframe: Airframe) -> None:
        """Raise ValueError if a value is outside what this ship may be asked."""


class Nothing(Arguments, frozen=True, kw_only=True):
    pass


class Arm(Arguments, frozen=True, kw_only=True):
    force: bool = False


class SetMode(Arguments, frozen=True, kw_only=True):
    name: str

    def check(self, airframe: Airframe) -> None:  # noqa: ARG002
        if self.name.upper() not in Mode.__members__:
            raise ValueError(
                f"name: no mode {self.name!r}; modes are {', '.join(Mode.__members__)}"
            )


class Takeoff(Arguments, frozen=True, kw_only=True):
    altitude_m: float

    def check(self, airframe: Airframe) -> None:
        _within("altitude_m", self.altitude_m, MIN_ALTITUDE_M, airframe.limits.max_altitude_m, "m")


class Goto(Arguments, frozen=True, kw_only=True):
    north_m: float
    east_m: float
    altitude_m: float
    yaw_deg: float | None = None
    speed_mps: float | None = None  # over ground; its fastest by default

    def check(self, airframe: Airframe) -> None:
        limits = airframe.limits
        _within("altitude_m", self.altitude_m, MIN_ALTITUDE_M, limits.max_altitude_m, "m")
        for name, value in (("north_m", self.north_m), ("east_m", self.east_m)):
            if not isfinite(value):
                raise ValueError(f"{name} is {value}, must be a finite number")
        distance_m = hypot(self.north_m, self.east_m)
        if distance_m > limits.max_distance_m + 1e-6:
            raise ValueError(
                f"distance from the pad is {distance_m:g} m, the limit is "
                f"{limits.max_distance_m:g} m (max_distance_m of {airframe.name})"
            )
        if self.yaw_deg is not None:
            _within("yaw_deg", self.yaw_deg, -360.0, 360.0, "degrees")
        if self.speed_mps is not None:
            _within("speed_mps", self.speed_mps, MIN_SPEED_MPS, limits.speed_mps, "m/s")


class SetGeofence(Arguments, frozen=True, kw_only=True):
    """The whole fence of the next flight; what is left out is not limited."""

    zones: tuple[Zone, ...] = ()
    ceiling_m: float | None = None
    floor_m: float | None = None
    rally: tuple[Rally, ...] = ()

    @property
    def fence(self) -> Geofence:
        return Geofence(
            zones=self.zones, ceiling_m=self.ceiling_m, floor_m=self.floor_m, rally=self.rally
        )

    def check(self, airframe: Airframe) -> None:
        limits = airframe.limits
        problem = self.fence.problem(
            max_altitude_m=limits.max_altitude_m, max_distance_m=limits.max_distance_m
        )
        if problem:
            raise ValueError(problem)


class SetVelocity(Arguments, frozen=True, kw_only=True):
    north_mps: float
    east_mps: float
    up_mps: float
    seconds: float

    def check(self, airframe: Airframe) -> None:
        limits = airframe.limits
        _within("north_mps", self.north_mps, -limits.speed_mps, limits.speed_mps, "m/s")
        _within("east_mps", self.east_mps, -limits.speed_mps, limits.speed_mps, "m/s")
        speed_mps = hypot(self.north_mps, self.east_mps)
        _within("horizontal speed", speed_mps, 0.0, limits.speed_mps, "m/s")
        _within("up_mps", self.up_mps, -limits.descent_mps, limits.climb_mps, "m/s")
        _within("seconds", self.seconds, 0.0, MAX_SECONDS, "s")


class FlyTrajectory(Arguments, frozen=True, kw_only=True):
    """One chunk of a trajectory. last: no more will come, so that its end is the end."""

    name: str
    points: tuple[TrajectoryPoint, ...]
    last: bool = True

    def check(self, airframe: Airframe) -> None:
        if not 0 < len(self.name) <= MAX_NAME_LETTERS or not self.name.isprintable():
            raise ValueError(f"name {self.name[:40]!r}: must have 1 to {MAX_NAME_LETTERS} letters")
        trajectory.check(self.points, airframe)


class PushStick(Arguments, frozen=True, kw_only=True):
    """Of what the ship has; `up_percent` of the climb in ALTHOLD, `turn_percent` of the turn."""

    forward_percent: float = 0.0
    right_percent: float = 0.0
    up_percent: float = 0.0
    turn_percent: float = 0.0
    seconds: float

    def check(self, airframe: Airframe) -> None:  # noqa: ARG002
        for name in ("forward_percent", "right_percent", "up_percent", "turn_percent"):
            _within(name, getattr(self, name), -100.0, 100.0, "%")
        _within("seconds", self.seconds, 0.0, MAX_ACTUATOR_SECONDS, "s")


class Motor(Arguments, frozen=True, kw_only=True):
    name: str
    percent: float
    seconds: float

    def check(self, airframe: Airframe) -> None:
        _known("name", "motor", self.name, airframe.thruster_names)
        _within("percent", self.percent, -100.0, 100.0, "%")
        _within("seconds", self.seconds, 0.0, MAX_ACTUATOR_SECONDS, "s")


class Servo(Arguments, frozen=True, kw_only=True):
    name: str
    deg: float
    seconds: float | None = None

    def check(self, airframe: Airframe) -> None:
        _known("name", "servo", self.name, airframe.servo_names)
        servo = airframe.servo[airframe.servo_names.index(self.name)]
        _within("deg", self.deg, degrees(servo.min_rad), degrees(servo.max_rad), "degrees")
        if self.seconds is not None:
            _within("seconds", self.seconds, 0.0, MAX_ACTUATOR_SECONDS, "s")


class Payload(Arguments, frozen=True, kw_only=True):
    """A servo that steers nothing, by its name or by its channel, counted from 1 as in MAVLink.

    deg, or pulse_us: the pulse for that angle.
    """

    name: str | None = None
    channel: int | None = None
    deg: float | None = None
    pulse_us: float | None = None

    def check(self, airframe: Airframe) -> None:
        if (self.name is None) == (self.channel is None):
            raise ValueError("must have a name or a channel")
        if (self.deg is None) == (self.pulse_us is None):
            raise ValueError("must have deg or pulse_us")
        names = tuple(servo.name for servo in payload_servos(airframe))
        _known("name", "payload servo", self.servo(airframe), names)
        servo = airframe.servo[airframe.servo_names.index(self.servo(airframe))]
        if self.deg is not None:
            _within("deg", self.deg, degrees(servo.min_rad), degrees(servo.max_rad), "degrees")
        if self.pulse_us is not None:
            low, high = 1e6 * servo.min_pulse_s, 1e6 * servo.max_pulse_s
            _within("pulse_us", self.pulse_us, low, high, "us")

    def servo(self, airframe: Airframe) -> str:
        """Return the servo's name; "channel 9" for a channel that drives none."""
        if self.name is not None:
            return self.name
        channel = self.channel or 0
        driven = (row.outputs.get(str(channel - 1), "") for row in airframe.device)
        return next((name for name in driven if name in airframe.servo_names), f"channel {channel}")

    def angle_rad(self, airframe: Airframe) -> float:
        servo = airframe.servo[airframe.servo_names.index(self.servo(airframe))]
        if self.deg is not None:
            return max(servo.min_rad, min(servo.max_rad, radians(self.deg)))
        pulse_s = 1e-6 * (self.pulse_us or 0.0)
        share = (pulse_s - servo.min_pulse_s) / (servo.max_pulse_s - servo.min_pulse_s)
        return servo.min_rad + max(0.0, min(1.0, share)) * (servo.max_rad - servo.min_rad)


class SetParameter(Arguments, frozen=True, kw_only=True):
    name: str  # "limits.speed_mps"
    value: float

    def check(self, airframe: Airframe) -> None:
        with_parameter(airframe, self.name, self.value)


class Sensor(Arguments, frozen=True, kw_only=True):
    name: str


A = TypeVar("A", bound=Arguments)


def parse(command: str, arguments: dict[str, Any], form: type[A], airframe: Airframe) -> A:
    """Return `arguments` as `form`. Raises ValueError with "command: argument value limit"."""
    try:
        parsed = msgspec.convert(arguments, form)
        parsed.check(airframe)
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"{command}: {error}") from error
    return parsed


def _within(name: str, value: float, low: float, high: float, unit: str) -> None:
    if not isfinite(value):
        raise ValueError(f"{name} is {value}, must be a finite number")
    if not low - 1e-6 <= value <= high + 1e-6:
        raise ValueError(f"{name} is {value:g}, must be within {low:g} to {high:g} {unit}")


def _known(argument: str, kind: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise ValueError(
            f"{argument}: no {kind} {name!r}; {kind}s are {', '.join(names) or 'none'}"
        )
