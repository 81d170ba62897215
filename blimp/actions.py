"""The one table of what a ship can be asked to do.

Command line, page, HTTP, Python and the documents are made from it or checked against it; the
worker makes a task of each row, and the flight process has a handler for each that flies
(`blimp/control/commander.py`). What depends on the ship that flies is checked in
`blimp/control/arguments.py`. `tests/contracts/test_actions.py` is red while a row reaches only some
of the faces: what one of them does not have is `Absent` in the row, with the reason.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import degrees, isnan
from typing import Annotated, Any

import msgspec

from blimp.forms import Arguments, arguments_of, quantity, sent
from blimp.geofence import MAX_M, Rally, Zone
from blimp.types import Mode, TrajectoryPoint

START_TTL_S = 5.0  # the age past which a command must not begin
# How long to wait for the end of a command:
SHORT_S = 10.0
FLIGHT_S = 180.0
PARAMETER_S = 20.0  # its new flight loop may take a moment to begin
WIRES_S = 180.0  # of ten outputs
HELD_S = 10.0  # beyond the seconds a command runs for
MIN_ALTITUDE_M = 0.5  # lower, a gust sets a hovering ship down
MIN_SPEED_MPS = 0.05  # slower, a leg has no end
MAX_SPEED_MPS = 10.0  # of any ship: each has its own, lower one
MAX_SECONDS = 60.0  # of one velocity: a forgotten one ends
MAX_FOLLOW_SECONDS = 600.0
KIND = re.compile("[a-z0-9][a-z0-9_-]{0,39}")  # of what a detector finds
PLACE = ("north_m", "east_m", "altitude_m")  # from the pad: a map's face reckons it
FORCE = 21196.0  # parameter 2 of MAVLink's COMPONENT_ARM_DISARM that skips the checks
MIN_PHOTO_S = 1.0  # between two photographs; a still of 12 megapixels takes a Zero 2 W about that
PHOTO_S = 15.0  # a camera that starts takes seconds
MAX_ACTUATOR_SECONDS = 30.0  # of one push on an output by hand


class Need(StrEnum):
    """What must hold for an action to begin; the flight process checks it in this order."""

    ARMED = "armed, no failsafe in force"
    UP = "off the ground"
    ATTITUDE = "an attitude"
    HEIGHT = "a height"
    POSITION = "a position"
    BATTERY = "the battery's voltage"
    CAMERA = "a camera"
    MANUAL = "MANUAL, or disarmed on the bench"
    DISARMED = "disarmed"
    GROUND = "on the ground"


# What a mode needs beside what arming does. One that only ends a flight needs nothing: it does what
# is left to do.
MODE_NEEDS: dict[Mode, tuple[Need, ...]] = {
    Mode.LAND: (),
    Mode.MANUAL: (),
    Mode.VELOCITY: (Need.POSITION,),
    Mode.LOITER: (Need.POSITION,),
    Mode.RTL: (Need.POSITION,),
    Mode.AUTO: (Need.POSITION,),
    Mode.HOLD: (),
    Mode.STABILIZE: (Need.ATTITUDE,),
    Mode.ALTHOLD: (Need.ATTITUDE, Need.HEIGHT),
    Mode.FOLLOW: (Need.POSITION, Need.CAMERA),
}


class Progress(StrEnum):
    """What the per cent of an action that is under way are a share of."""

    NONE = "done at once"
    WAY = "of the way"
    TIME = "of its seconds"


# --- the forms of their arguments ----------------------------------------------------------


class Nothing(Arguments, frozen=True, kw_only=True):
    pass


class Arm(Arguments, frozen=True, kw_only=True):
    force: Annotated[
        bool, quantity("Skip the checks; the ship accepts this on the bench only.")
    ] = False


class SetMode(Arguments, frozen=True, kw_only=True):
    name: Annotated[str, quantity(f"{', '.join(Mode.__members__)}.", names="mode")]


_altitude = quantity(
    "Metres above the pad.",
    "m",
    MIN_ALTITUDE_M,
    MAX_M,
    ship=("", "max_altitude_m"),
    metavar="ALT_M",
    example=3.0,
)


class Takeoff(Arguments, frozen=True, kw_only=True):
    altitude_m: Annotated[float, _altitude]


class Goto(Arguments, frozen=True, kw_only=True):
    """The distance from the pad has a limit of the airframe, too: `max_distance_m`."""

    north_m: Annotated[float, quantity("Metres north of the pad.", "m", -MAX_M, MAX_M, example=0.0)]
    east_m: Annotated[float, quantity("Metres east of the pad.", "m", -MAX_M, MAX_M, example=0.0)]
    altitude_m: Annotated[float, _altitude]
    yaw_deg: Annotated[
        float | None,
        quantity("Heading to turn to, clockwise from north.", "degrees", -360.0, 360.0),
    ] = None
    speed_mps: Annotated[
        float | None,
        quantity(
            "Speed over ground; by default the fastest allowed.",
            "m/s", MIN_SPEED_MPS, MAX_SPEED_MPS, ship=("", "speed_mps"),
        ),
    ] = None  # fmt: skip


class SetVelocity(Arguments, frozen=True, kw_only=True):
    """North and east together have the limit `speed_mps`, too."""

    north_mps: Annotated[
        float,
        quantity(
            "Speed to the north.", "m/s", -MAX_SPEED_MPS, MAX_SPEED_MPS,
            ship=("-speed_mps", "speed_mps"), metavar="NORTH",
        ),
    ]  # fmt: skip
    east_mps: Annotated[
        float,
        quantity(
            "Speed to the east.", "m/s", -MAX_SPEED_MPS, MAX_SPEED_MPS,
            ship=("-speed_mps", "speed_mps"), metavar="EAST",
        ),
    ]  # fmt: skip
    up_mps: Annotated[
        float,
        quantity(
            "Speed upwards.", "m/s", -MAX_SPEED_MPS, MAX_SPEED_MPS,
            ship=("-descent_mps", "climb_mps"), metavar="UP",
        ),
    ]  # fmt: skip
    seconds: Annotated[float, quantity("Duration.", "s", 0.0, MAX_SECONDS, option="--seconds")]


class FollowSeen(Arguments, frozen=True, kw_only=True):
    """The distance is known by the angle that the thing fills, so by its size."""

    kind: Annotated[str, quantity("Colour, tag-NUMBER, or a name of your own detector.")]
    distance_m: Annotated[
        float, quantity("Distance to keep; 0 flies into it.", "m", 0.0, 20.0, option="--distance-m")
    ] = 2.0
    size_m: Annotated[
        float, quantity("Its diameter, or a tag's side.", "m", 0.02, 5.0, option="--size-m")
    ] = 0.28  # a toy balloon of 11 inches
    seconds: Annotated[
        float, quantity("Duration.", "s", 1.0, MAX_FOLLOW_SECONDS, option="--seconds")
    ] = 60.0

    def problem(self) -> str:
        return "" if KIND.fullmatch(self.kind) else "kind: must have 1 to 40 of a-z, 0-9, - and _"


class FlyTrajectory(Arguments, frozen=True, kw_only=True):
    """One chunk of a trajectory."""

    name: Annotated[str, quantity("Name of the trajectory.")]
    points: Annotated[tuple[TrajectoryPoint, ...], quantity("Its points, in order of time.")]
    last: Annotated[bool, quantity("True for the last chunk: the trajectory ends with it.")] = True


def _share(stick: str, about: str) -> msgspec.Meta:
    return quantity(about, "%", -100.0, 100.0, option=f"--{stick}", metavar="PERCENT")


_pushed_s = quantity("Duration.", "s", 0.0, MAX_ACTUATOR_SECONDS, option="--seconds")


class PushStick(Arguments, frozen=True, kw_only=True):
    """Shares of the ship's greatest force; `up_percent` of the climb in ALTHOLD, `turn_percent` of
    the turn."""

    forward_percent: Annotated[float, _share("forward", "Thrust forward; negative is back.")] = 0.0
    right_percent: Annotated[float, _share("right", "Thrust to the right.")] = 0.0
    up_percent: Annotated[float, _share("up", "Thrust upwards; in ALTHOLD the climb.")] = 0.0
    turn_percent: Annotated[float, _share("turn", "Turn to the right.")] = 0.0
    seconds: Annotated[float, _pushed_s]


class Motor(Arguments, frozen=True, kw_only=True):
    name: Annotated[str, quantity("A motor of the airframe.", names="motor")]
    percent: Annotated[
        float, quantity("Throttle; negative turns it backwards.", "%", -100.0, 100.0)
    ]
    seconds: Annotated[float, _pushed_s]


class Servo(Arguments, frozen=True, kw_only=True):
    """The angle has the limits of the servo. Without `seconds` it is kept for 10 s."""

    name: Annotated[str, quantity("A servo of the airframe.", names="servo")]
    deg: Annotated[float, quantity("Its angle.", "degrees", -180.0, 180.0)]
    seconds: Annotated[float | None, _pushed_s] = None


class Payload(Arguments, frozen=True, kw_only=True):
    """By name or by channel; to an angle or a pulse; each within the limits of the servo."""

    name: Annotated[str | None, quantity("A servo that steers nothing.")] = None
    # A PCA9685 has 16 channels, the header of a Pi 28 pins.
    channel: Annotated[
        int | None, quantity("Its channel, counted from 1 as in MAVLink.", "", 1.0, 28.0)
    ] = None
    deg: Annotated[float | None, quantity("Its angle.", "degrees", -180.0, 180.0)] = None
    pulse_us: Annotated[
        float | None, quantity("The pulse for that angle.", "us", 400.0, 2600.0)
    ] = None

    def problem(self) -> str:
        if (self.name is None) == (self.channel is None):
            return "must have a name or a channel"
        return "must have deg or pulse_us" if (self.deg is None) == (self.pulse_us is None) else ""


class SetGeofence(Arguments, frozen=True, kw_only=True):
    """The whole fence of the next flight; anything left out is not limited."""

    zones: Annotated[tuple[Zone, ...], quantity("Zones where it may or may not fly.")] = ()
    ceiling_m: Annotated[float | None, quantity("Highest altitude.", "m")] = None
    floor_m: Annotated[float | None, quantity("Lowest altitude.", "m")] = None
    rally: Annotated[tuple[Rally, ...], quantity("Places to return to, besides the pad.")] = ()


class SetParameter(Arguments, frozen=True, kw_only=True):
    name: Annotated[str, quantity('"limits.speed_mps".', names="parameter")]
    value: Annotated[float, quantity("In the parameter's unit and limits.")]


class Sensor(Arguments, frozen=True, kw_only=True):
    name: Annotated[str, quantity("A device of the airframe.", names="sensor")]


class TakePhoto(Arguments, frozen=True, kw_only=True):
    every_s: Annotated[
        float | None,
        quantity("Take more, so long after each other.", "s", MIN_PHOTO_S, 3600.0),
    ] = None
    count: Annotated[
        int | None, quantity("How many; by default one, or until they are stopped.", "", 1, 10_000)
    ] = None

    def problem(self) -> str:
        """Several need a time between them."""
        several = self.count is not None and self.count > 1
        return "count above 1 needs every_s" if several and self.every_s is None else ""


# --- the table -----------------------------------------------------------------------------


class Absent(msgspec.Struct, frozen=True):
    """Why a face does not have an action."""

    why: str


class MavCommand(msgspec.Struct, frozen=True):
    """The command of MAVLink's common message set that means an action.

    number, name: MAV_CMD. params: the argument that a parameter (1 to 7) is; NaN leaves it out.
    `north_m`, `east_m` and `altitude_m` are its latitude, longitude and altitude, in its frame.
    only: the values that other parameters must have: with them several actions share a number.
    radians: the parameters that are in radians where the form has degrees.
    true: the value of a parameter that means yes.
    """

    number: int
    name: str
    params: Mapping[int, str] = {}
    only: Mapping[int, float] = {}
    radians: tuple[int, ...] = ()
    true: float = 1.0


class Leg(msgspec.Struct, frozen=True):
    """An action in a mission.

    without: the arguments that a mission does not have. moves: it ends at a place that no plan
    knows, unless `ground_station/legs.py` has a form of its own for it.
    """

    without: tuple[str, ...] = ()
    moves: bool = False


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One row: the command `name` to the flight process, which is the task `blimp.<name>`.

    about: one sentence. more: what else its help says.
    examples: of its command line, which begins with its name.
    http: None for `POST api/command/NAME`.
    python: the method of `Ship`; "" for its name.
    mavlink: the command that means it. leg: what it is in a mission.
    in_parts: it comes in several commands while it is flown, which each face makes of one thing.
    needs: what must hold for it to begin.
    asks: the question to a person at a terminal, in which arguments may stand. insists: the one
        that a program answers with --yes, too, if it says `force`.
    progress, wait_s: what its per cent mean, and how long its end is waited for.
    idempotent: False if a message that was delivered again must not run again.
    needs_ttl: the message must carry a time to live (START_TTL_S here). Commands that only ask or
        only stop need none.
    needs_issue_time: the message must say when it was issued.
    needs_control: if a pilot holds control of the ship, only that pilot may send it. Anybody
        may send what only asks or only stops.
    comes_to_rest: it only brings the ship to rest, and is better late, or by another boot than
        it was sent to, than refused: no doubt about the clock or the boot keeps it out.
    is_emergency: it passes every other command in the queue.
    flies: the flight process carries it out; else the worker does, without it.
    """

    name: str
    about: str
    more: str = ""
    examples: tuple[str, ...] | Absent
    http: Absent | None = None
    python: str | Absent = ""
    mavlink: MavCommand | Absent
    leg: Leg | Absent
    in_parts: bool = False
    arguments: type[Arguments] = Nothing
    needs: tuple[Need, ...] = ()
    asks: str = ""
    insists: str = ""
    progress: Progress = Progress.NONE
    wait_s: float = SHORT_S
    idempotent: bool = True
    needs_ttl: bool = True
    needs_issue_time: bool = False
    needs_control: bool = True
    comes_to_rest: bool = False
    is_emergency: bool = False
    flies: bool = True

    def timeout_s(self, arguments: Mapping[str, Any]) -> float:
        """Return for how long to wait for the end."""
        lasts_s = arguments.get("seconds") if self.progress is Progress.TIME else None
        if self.in_parts and arguments.get("last", True):
            lasts_s = arguments["points"][-1][0]  # the time of its end, from its begin on
        return self.wait_s + (lasts_s or 0.0)

    def from_mavlink(self, params: Sequence[float | None]) -> dict[str, Any]:
        """Return the arguments that the seven parameters of its command say, but for places.

        NaN and None are left out, and so is what is no more than 0 where the least is more: -1
        stands for a default there. Raises ValueError for what means another action.
        """
        row = self.mavlink
        if isinstance(row, Absent):
            raise ValueError(f"{self.name}: MAVLink has no command for it: {row.why}")
        for number, only in row.only.items():
            if params[number - 1] != only:
                raise ValueError(f"parameter {number} is {params[number - 1]}, must be {only:g}")
        found: dict[str, Any] = {}
        for argument in arguments_of(self.arguments):
            number = next((n for n, name in row.params.items() if name == argument.name), 0)
            value = params[number - 1] if number and argument.name not in PLACE else None
            if value is None or isnan(value):
                continue
            if argument.kind is bool:
                found |= {argument.name: True} if value == row.true else {}
            elif not argument.is_required and value <= 0.0 < argument.low:
                continue
            elif argument.kind is int and value.is_integer():
                found[argument.name] = int(value)
            else:
                found[argument.name] = degrees(value) if number in row.radians else value
        return found

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what to send of `arguments`, see `sent`. Raises ValueError."""
        return sent(self.name, self.arguments, arguments)


_IN_FLIGHT = (Need.ARMED, Need.UP, Need.POSITION)

_ROWS = (
    Action(
        name="ping",
        about="Ask whether the ship answers.",
        more="The question goes through the queue; the flight process answers it.",
        examples=("ping",),
        mavlink=Absent("the gateway answers MAVLink's own PING"),
        leg=Absent("the flyer asks the ship by itself"),
        needs_ttl=False,
        needs_control=False,
    ),
    Action(
        name="limits",
        about="Return what the ship can do, and what its battery has left for a mission.",
        examples=("limits",),
        mavlink=Absent("they are parameters there, LIM_SPEED and others"),
        leg=Absent("the flyer asks for them before the first leg"),
        needs_ttl=False,
        needs_control=False,
    ),
    Action(
        name="arm",
        about="Arm the ship: allow the propellers to turn.",
        examples=("arm",),
        mavlink=MavCommand(400, "COMPONENT_ARM_DISARM", {2: "force"}, only={1: 1.0}, true=FORCE),
        leg=Leg(without=("force",)),
        arguments=Arm,
        asks="Arm? The propellers may start to turn.",
        insists="Arm without any check?",
        # A message that was left over must never arm a ship that restarted on its own, and only
        # an arm that is later than the last emergency stop undoes that stop.
        idempotent=False,
        needs_issue_time=True,
    ),
    Action(
        name="disarm",
        about="Stop the propellers. In the air the ship refuses it.",
        examples=("disarm",),
        mavlink=MavCommand(400, "COMPONENT_ARM_DISARM", only={1: 0.0}),
        leg=Leg(),
    ),
    Action(
        name="mode",
        about="Change the flight mode.",
        examples=("mode LOITER",),
        mavlink=MavCommand(176, "DO_SET_MODE", {2: "name"}),
        leg=Absent("each leg enters the mode that it needs"),
        arguments=SetMode,
        needs=(Need.ARMED,),  # and what the mode needs
    ),
    Action(
        name="takeoff",
        about="Climb from the pad to an altitude and stay there.",
        examples=("takeoff 3",),
        mavlink=MavCommand(22, "NAV_TAKEOFF", {7: "altitude_m"}),
        leg=Leg(),
        arguments=Takeoff,
        needs=(Need.ARMED, Need.POSITION),
        progress=Progress.WAY,
        wait_s=FLIGHT_S,
    ),
    Action(
        name="goto",
        about="Fly to a place, in metres from the pad, and stay there.",
        examples=("goto 10 0 3", "goto -3 4 5 --yaw-deg -90"),
        mavlink=MavCommand(
            192,
            "DO_REPOSITION",
            {1: "speed_mps", 4: "yaw_deg", 5: "north_m", 6: "east_m", 7: "altitude_m"},
            radians=(4,),
        ),
        leg=Leg(),
        arguments=Goto,
        needs=_IN_FLIGHT,
        progress=Progress.WAY,
        wait_s=FLIGHT_S,
    ),
    Action(
        name="velocity",
        about="Fly at a velocity for a time, then stay there.",
        examples=("velocity -0.2 0 0.1 --seconds 3",),
        mavlink=Absent("velocities are a stream there, SET_POSITION_TARGET_LOCAL_NED"),
        leg=Leg(),
        arguments=SetVelocity,
        needs=_IN_FLIGHT,
        progress=Progress.TIME,
        wait_s=HELD_S,
    ),
    Action(
        name="trajectory",
        about="Fly points of a path in time; more of them may follow until the last.",
        examples=("trajectory circle.csv",),
        http=Absent("its parts are sent while it is flown"),
        in_parts=True,
        mavlink=Absent("no command carries its points"),
        leg=Absent("its parts are sent while it is flown"),
        arguments=FlyTrajectory,
        needs=_IN_FLIGHT,
        progress=Progress.WAY,
    ),
    Action(
        name="follow",
        about="Fly to what the camera sees, and keep a distance to it for a time.",
        more="It looks around for what it has lost. Not found for a minute, it holds.",
        examples=("follow red", "follow tag-7 --distance-m 1.5 --size-m 0.2 --seconds 120"),
        mavlink=Absent("MAVLink follows a beacon with a position, not what a camera sees"),
        leg=Leg(moves=True),
        arguments=FollowSeen,
        needs=(*_IN_FLIGHT, Need.CAMERA),
        progress=Progress.TIME,
        wait_s=HELD_S,
    ),
    Action(
        name="hold",
        about="Hold height and heading. It needs no position, so the wind moves the ship.",
        examples=("hold",),
        mavlink=Absent("it is a mode there: DO_SET_MODE"),
        leg=Leg(),
        needs=(Need.ARMED,),
        comes_to_rest=True,
    ),
    Action(
        name="land",
        about="Land at this place and disarm.",
        examples=("land",),
        mavlink=MavCommand(21, "NAV_LAND"),
        leg=Leg(),
        progress=Progress.WAY,
        wait_s=FLIGHT_S,
        comes_to_rest=True,
    ),
    Action(
        name="return",
        about="Fly back to the pad, or to a nearer rally point.",
        examples=("return",),
        python="return_to_pad",
        mavlink=MavCommand(20, "NAV_RETURN_TO_LAUNCH"),
        leg=Leg(),
        needs=_IN_FLIGHT,
        progress=Progress.WAY,
        wait_s=FLIGHT_S,
    ),
    Action(
        name="geofence",
        about="Limit the next flight by zones, a ceiling and a floor, and set its rally points.",
        examples=Absent("zones are no words of a command line: a mission file has them"),
        mavlink=Absent("it is a plan there, uploaded by the mission protocol"),
        leg=Absent("the mission's own geofence is sent before each arm"),
        arguments=SetGeofence,
        needs=(Need.GROUND,),
    ),
    Action(
        name="param",
        about="Set a number of the ship's airframe.",
        examples=("param limits.speed_mps 0.5",),
        python="set_parameter",
        mavlink=Absent("it is a message there, PARAM_SET"),
        leg=Absent("a ship that is armed takes none"),
        arguments=SetParameter,
        needs=(Need.DISARMED,),
        wait_s=PARAMETER_S,
    ),
    Action(
        name="payload",
        about="Turn a servo that steers nothing to an angle.",
        examples=("payload --name hook --deg 30", "payload --channel 9 --pulse-us 1700"),
        mavlink=MavCommand(183, "DO_SET_SERVO", {1: "channel", 2: "pulse_us"}),
        leg=Leg(),
        arguments=Payload,
        needs=(Need.ARMED,),
    ),
    Action(
        name="estop",
        about="Stop every motor at once, before any waiting command. It never asks; only arm "
        "ends the stop.",
        examples=("estop",),
        http=Absent("a stop has a request of its own, `POST api/estop`"),
        mavlink=MavCommand(185, "DO_FLIGHTTERMINATION", only={1: 1.0}),
        leg=Absent("a stop is no part of a plan"),
        wait_s=5.0,
        needs_ttl=False,
        needs_control=False,
        comes_to_rest=True,
        is_emergency=True,
    ),
    Action(
        name="stick",
        about="Push the ship by hand, in STABILIZE or ALTHOLD. It keeps its heading.",
        examples=("stick --forward 40 --turn -20 --seconds 2",),
        mavlink=Absent("it is a message there, MANUAL_CONTROL"),
        leg=Absent("it is flown by hand"),
        arguments=PushStick,
        needs=(Need.ARMED,),
    ),
    Action(
        name="motor",
        about="Turn one motor, in MANUAL or on the bench.",
        examples=("motor left -20 --seconds 1",),
        mavlink=Absent("MAVLink counts motors, and an airframe has names for them"),
        leg=Absent("it is for the bench"),
        arguments=Motor,
        needs=(Need.MANUAL,),
        asks="Turn motor {name!r} at {percent:g} % for {seconds:g} s?",
        progress=Progress.TIME,
        wait_s=HELD_S,
    ),
    Action(
        name="servo",
        about="Turn one servo to an angle, in MANUAL or on the bench.",
        examples=("servo tilt -30",),
        mavlink=Absent("DO_SET_SERVO is the payload's: nobody steers a flight by a servo"),
        leg=Absent("it is for the bench"),
        arguments=Servo,
        needs=(Need.MANUAL,),
        asks="Turn servo {name!r} to {deg:g} degrees?",
        progress=Progress.TIME,
        wait_s=HELD_S,
    ),
    Action(
        name="wires",
        about="Push each output for moments, and say what is wired otherwise than the file says.",
        more="The ship hangs on a string, or a person holds it loosely; in MANUAL, or on the "
        "bench. It takes up to two minutes.",
        examples=("wires",),
        mavlink=Absent("MAVLink has no such check"),
        leg=Absent("the ship is held"),
        needs=(Need.MANUAL,),
        asks="Push every motor, the ship on a string or held loosely, out of wind?",
        wait_s=WIRES_S,
        idempotent=False,
    ),
    Action(
        name="sensor",
        about="Return one sensor's newest value, unit, age and health.",
        examples=("sensor baro",),
        mavlink=Absent("what sensors measure comes as telemetry"),
        leg=Absent("it only asks"),
        arguments=Sensor,
        needs_ttl=False,
        needs_control=False,
    ),
    Action(
        name="photo",
        about="Take a photograph, which waits on the ship until the ground has it.",
        more="With --every-s it takes more by itself, until `ground photo stop`.",
        examples=("photo", "photo --every-s 5 --count 20"),
        mavlink=MavCommand(2000, "IMAGE_START_CAPTURE", {2: "every_s", 3: "count"}),
        leg=Leg(),
        arguments=TakePhoto,
        wait_s=PHOTO_S,
        needs_ttl=False,
        needs_control=False,
        flies=False,
    ),
    Action(
        name="photo_stop",
        about="Take no more of the photographs that were asked for at intervals.",
        examples=Absent("it is `ground photo stop`"),
        mavlink=MavCommand(2001, "IMAGE_STOP_CAPTURE"),
        leg=Leg(),
        needs_ttl=False,
        needs_control=False,
        flies=False,
    ),
)
ACTIONS: dict[str, Action] = {row.name: row for row in _ROWS}
