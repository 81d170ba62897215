"""A mission: one TOML file of legs, its strict reader, and the line it draws.

    name = "there and back"
    description = "what a person reads before flying it"

    [[leg]]
    do = "goto"        # arm takeoff goto velocity hold return land disarm
    north_m = 10.0     # ... and the arguments of that command, named as on the command line

Everything is checked before anything is sent: keys, types, limits, and the order of the
legs (nothing flies before it has taken off, nothing is disarmed in the air).
"""

import math
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from blimp.errors import MissionError
from ground_station.track import Place, TrackLeg

MAX_BYTES = 256 * 1024
MAX_LEGS = 200
MAX_DISTANCE_M = 1000.0
MIN_ALTITUDE_M = 0.3
MAX_ALTITUDE_M = 120.0  # the usual legal ceiling for small unmanned craft
MAX_SPEED_MPS = 10.0
MAX_SECONDS = 600.0

Horizontal = Annotated[float, Meta(ge=-MAX_DISTANCE_M, le=MAX_DISTANCE_M)]
Altitude = Annotated[float, Meta(ge=MIN_ALTITUDE_M, le=MAX_ALTITUDE_M)]
Speed = Annotated[float, Meta(ge=-MAX_SPEED_MPS, le=MAX_SPEED_MPS)]
Seconds = Annotated[float, Meta(gt=0.0, le=MAX_SECONDS)]
YawDeg = Annotated[float, Meta(ge=-360.0, le=360.0)]


class _Leg(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    """Base of all legs. `do` is the command's name; the fields are its arguments."""

    task: ClassVar[str]

    @property
    def do(self) -> str:
        return str(self.__struct_config__.tag)

    def arguments(self) -> dict[str, Any]:
        """Return the task's arguments, without those that are not given."""
        found = msgspec.structs.asdict(self)
        return {name: value for name, value in found.items() if value is not None}


class Arm(_Leg, frozen=True, kw_only=True, tag="arm"):
    pass


class Takeoff(_Leg, frozen=True, kw_only=True, tag="takeoff"):
    altitude_m: Altitude


class Goto(_Leg, frozen=True, kw_only=True, tag="goto"):
    north_m: Horizontal
    east_m: Horizontal
    altitude_m: Altitude
    yaw_deg: YawDeg | None = None


class Velocity(_Leg, frozen=True, kw_only=True, tag="velocity"):
    north_mps: Speed
    east_mps: Speed
    up_mps: Speed
    seconds: Seconds


class Hold(_Leg, frozen=True, kw_only=True, tag="hold"):
    """Hold the place. `seconds`: how long the mission waits there; not sent to the ship."""

    seconds: Seconds | None = None

    def arguments(self) -> dict[str, Any]:
        return {}


class Return(_Leg, frozen=True, kw_only=True, tag="return"):
    pass


class Land(_Leg, frozen=True, kw_only=True, tag="land"):
    pass


class Disarm(_Leg, frozen=True, kw_only=True, tag="disarm"):
    pass


Leg = Arm | Takeoff | Goto | Velocity | Hold | Return | Land | Disarm
LEG_NAMES = ("arm", "takeoff", "goto", "velocity", "hold", "return", "land", "disarm")


class Mission(msgspec.Struct, frozen=True, kw_only=True):
    """A checked mission. Legs are numbered from 1, in errors, reports and `track()`."""

    name: str
    description: str
    legs: tuple[Leg, ...]

    def track(self) -> dict[int, TrackLeg]:
        """Return the straight line of every leg that has one, by the leg's number.

        The ship starts on the pad, the origin. A leg is missing here if it does not move
        the ship, or if one of its ends cannot be known beforehand (velocity, and the leg
        after it).
        """
        lines: dict[int, TrackLeg] = {}
        here: Place | None = (0.0, 0.0, 0.0)
        for number, leg in enumerate(self.legs, start=1):
            there = _end_of(leg, here)
            if here is not None and there is not None and there != here:
                lines[number] = TrackLeg(here, there)
            here = there
        return lines

    def reach_m(self) -> tuple[float, float]:
        """Return the farthest distance from the pad and the greatest altitude of its legs."""
        places = [leg for leg in self.legs if isinstance(leg, Goto)]
        altitudes = [leg.altitude_m for leg in self.legs if isinstance(leg, Goto | Takeoff)]
        distance_m = max((math.hypot(p.north_m, p.east_m) for p in places), default=0.0)
        return distance_m, max(altitudes, default=0.0)


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=64)]
    description: Annotated[str, Meta(max_length=1000)] = ""
    leg: list[dict[str, Any]]


def builtin_missions() -> tuple[str, ...]:
    """Return the names of the missions that come with the package, sorted."""
    files = resources.files("ground_station").joinpath("missions").iterdir()
    return tuple(sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml")))


def load_mission(path_or_name: str) -> Mission:
    """Read a mission from a file, or a built-in one by its name.

    Raises MissionError naming the file, the leg, the key and the limit.
    """
    if path_or_name in builtin_missions():
        builtin = resources.files("ground_station") / "missions" / f"{path_or_name}.toml"
        return parse_mission(builtin.read_text("utf-8"), where=path_or_name)
    path = Path(path_or_name)
    try:
        if not path.is_file():
            raise MissionError(
                f"no mission {path_or_name!r}: it is neither a file nor one of "
                f"{', '.join(builtin_missions())}"
            )
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise MissionError(f"mission {path}: more than {MAX_BYTES} bytes, which is the limit")
        text = content.decode("utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the path
        raise MissionError(f"mission {path_or_name}: {error}") from error
    return parse_mission(text, where=path_or_name)


def parse_mission(text: str, *, where: str) -> Mission:
    """Read a mission from TOML text; `where` names it in errors."""
    try:
        file = msgspec.convert(tomllib.loads(text), _File)
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        raise MissionError(f"mission {where}: {_readable(str(error))}") from error
    if not 1 <= len(file.leg) <= MAX_LEGS:
        raise MissionError(f"mission {where}: {len(file.leg)} legs, the limits are 1 to {MAX_LEGS}")
    legs = tuple(_leg(table, f"mission {where}, leg {n}") for n, table in enumerate(file.leg, 1))
    _check_order(legs, where)
    return Mission(name=file.name, description=file.description, legs=legs)


def _leg(table: dict[str, Any], where: str) -> Leg:
    do = table.get("do")
    if do not in LEG_NAMES:
        what = "has no 'do'" if do is None else f"do = {do!r} is no command"
        raise MissionError(f"{where}: {what}: known are {', '.join(LEG_NAMES)}")
    for key, value in table.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise MissionError(f"{where} ({do}): {key} = {value} is not a finite number")
    try:
        leg: Leg = msgspec.convert(table, Leg)
    except msgspec.ValidationError as error:
        raise MissionError(f"{where} ({do}): {_readable(str(error), table)}") from error
    return leg


def _readable(message: str, table: dict[str, Any] | None = None) -> str:
    """Turn msgspec's "Expected `float` <= 3 - at `$.key`" into "key = 5: expected ..."."""
    match = re.fullmatch(r"(.*) - at `\$\.?(.*)`", message, re.DOTALL)
    if match is None:
        return message
    what, key = match.groups()
    value = f" = {str(table[key])[:40]}" if table is not None and key in table else ""
    return f"{key}{value}: {what[0].lower()}{what[1:]}"


def _check_order(legs: tuple[Leg, ...], where: str) -> None:
    """Refuse what cannot be flown in this order, before anything moves."""
    armed = flying = False
    for number, leg in enumerate(legs, start=1):
        problem = ""
        match leg:
            case Arm() if flying:
                problem = "the ship is in the air: it is armed already"
            case Arm():
                armed = True
            case Takeoff() if not armed:
                problem = "the ship is not armed: put an arm leg before it"
            case Takeoff() if flying:
                problem = "the ship has taken off already: climb with goto"
            case Takeoff():
                flying = True
            case Goto() | Velocity() | Hold() | Return() | Land() if not flying:
                problem = "the ship has not taken off: put a takeoff leg before it"
            case Land():
                armed = flying = False
            case Disarm() if flying:
                problem = "the ship would be disarmed in the air: put a land leg before it"
            case Disarm():
                armed = False
        if problem:
            raise MissionError(f"mission {where}, leg {number} ({leg.do}): {problem}")


def _end_of(leg: Leg, here: Place | None) -> Place | None:
    """Return where `leg` ends if it starts `here`; None if that is not known."""
    match leg:
        case Goto():
            return (leg.north_m, leg.east_m, leg.altitude_m)
        case Velocity():
            return None
        case _ if here is None:
            return None
        case Takeoff():
            return (here[0], here[1], leg.altitude_m)
        case Return():
            return (0.0, 0.0, here[2])
        case Land():
            return (here[0], here[1], 0.0)
        case _:
            return here
