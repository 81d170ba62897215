"""The legs of a mission, their limits, and where each of them leads.

`do` is the command that a leg sends to the ship, and its fields are the arguments. Legs are
checked before anything is sent: nothing flies before it has taken off, nothing is disarmed in the
air, and no way leads over the mission's own geofence.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

from blimp import actions
from blimp.actions import ACTIONS, MIN_ALTITUDE_M, Need
from blimp.errors import MissionError
from blimp.forms import Arguments, arguments_of
from blimp.geofence import Geofence, Rally, Zone
from blimp.suggest import suggestion, with_suggestion
from ground_station.track import Place

MAX_LEGS = 200
CEILING_M = 120.0  # of a mission: the usual legal ceiling for small unmanned craft
MAX_WAIT_S = 600.0  # at one place; the ship does not know of it


def _limits(action: str, name: str, *, most: float = math.inf) -> Meta:
    """Return the limits that the table of actions has for an argument, of any ship."""
    (one,) = (one for one in arguments_of(ACTIONS[action].arguments) if one.name == name)
    return Meta(ge=one.low, le=min(one.high, most))


Horizontal = Annotated[float, _limits("goto", "north_m")]
Altitude = Annotated[float, _limits("goto", "altitude_m", most=CEILING_M)]
Speed = Annotated[float, _limits("velocity", "north_mps")]
LegSpeed = Annotated[float, _limits("goto", "speed_mps")]
Seconds = Annotated[float, _limits("velocity", "seconds")]
Wait = Annotated[float, Meta(gt=0.0, le=MAX_WAIT_S)]
YawDeg = Annotated[float, _limits("goto", "yaw_deg")]


class _Leg(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    """Base of all legs. wait_s: how long the mission stays there; not sent to the ship."""

    @property
    def do(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def wait_s(self) -> float | None:
        return None

    def arguments(self) -> dict[str, Any]:
        """Return the task's arguments, without those that are not given."""
        found = msgspec.structs.asdict(self)
        return {name: value for name, value in found.items() if value is not None}


class SetGeofence(_Leg, frozen=True, kw_only=True, tag="geofence"):
    """The reader adds it before each arm; it is not in any file."""

    zones: tuple[Zone, ...] = ()
    ceiling_m: float | None = None
    floor_m: float | None = None
    rally: tuple[Rally, ...] = ()

    def arguments(self) -> dict[str, Any]:
        found = msgspec.to_builtins(self)
        return {name: value for name, value in found.items() if name != "do" and value}


class Arm(_Leg, frozen=True, kw_only=True, tag="arm"):
    pass


class Takeoff(_Leg, frozen=True, kw_only=True, tag="takeoff"):
    altitude_m: Altitude


class Goto(_Leg, frozen=True, kw_only=True, tag="goto"):
    """loiter_s: how long it stays there."""

    north_m: Horizontal
    east_m: Horizontal
    altitude_m: Altitude
    yaw_deg: YawDeg | None = None
    speed_mps: LegSpeed | None = None
    loiter_s: Wait | None = None

    @property
    def wait_s(self) -> float | None:
        return self.loiter_s

    def arguments(self) -> dict[str, Any]:
        found = super().arguments()
        found.pop("loiter_s", None)
        return found


class Yaw(_Leg, frozen=True, kw_only=True, tag="yaw"):
    """Turn on the spot; flown as a goto to where the ship is."""

    deg: YawDeg


class Velocity(_Leg, frozen=True, kw_only=True, tag="velocity"):
    north_mps: Speed
    east_mps: Speed
    up_mps: Speed
    seconds: Seconds


class Hold(_Leg, frozen=True, kw_only=True, tag="hold"):
    """Hold the place for `seconds`."""

    seconds: Wait | None = None

    @property
    def wait_s(self) -> float | None:
        return self.seconds

    def arguments(self) -> dict[str, Any]:
        return {}


class Return(_Leg, frozen=True, kw_only=True, tag="return"):
    pass


class Land(_Leg, frozen=True, kw_only=True, tag="land"):
    pass


class Disarm(_Leg, frozen=True, kw_only=True, tag="disarm"):
    pass


class ActionLeg(msgspec.Struct, frozen=True):
    """A leg that a plan need not understand: an action, with the arguments of its row's form."""

    do: str
    form: Arguments

    @property
    def wait_s(self) -> float | None:
        return None

    def arguments(self) -> dict[str, Any]:
        found = msgspec.to_builtins(self.form)
        return {name: value for name, value in found.items() if value is not None}


Planned = SetGeofence | Arm | Takeoff | Goto | Yaw | Velocity | Hold | Return | Land | Disarm
Leg = Planned | ActionLeg
_FORMS: dict[str, Any] = {str(form.__struct_config__.tag): form for form in get_args(Planned)}
_ROWS = {name: row.leg for name, row in ACTIONS.items() if isinstance(row.leg, actions.Leg)}
LEG_NAMES = (*_ROWS, "yaw")
AS_THEY_ARE = tuple(name for name in _ROWS if name not in _FORMS)  # each an ActionLeg


def read_leg(table: dict[str, Any], where: str) -> Leg:
    """Return one leg from its table. Raises MissionError naming the key, the value, the limit."""
    do = table.get("do")
    if do not in LEG_NAMES:
        what = "has no 'do'" if do is None else f"do = {do!r} is no command"
        near = suggestion(do, LEG_NAMES) if isinstance(do, str) else ""
        raise MissionError(f"{where}: {what}{near}: known are {', '.join(LEG_NAMES)}")
    for key, value in table.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise MissionError(f"{where} ({do}): {key} = {value} is not a finite number")
    if do in AS_THEY_ARE:
        given = {name: value for name, value in table.items() if name != "do"}
        try:
            form = ACTIONS[do].arguments
            return ActionLeg(do, msgspec.convert(ACTIONS[do].checked(given), form))
        except ValueError as error:
            raise MissionError(f"{where} ({do}): {error}") from error
    try:
        leg: Planned = msgspec.convert(table, Planned)
    except msgspec.ValidationError as error:
        message = with_suggestion(str(error), _FORMS[str(do)])
        raise MissionError(f"{where} ({do}): {readable(message, table)}") from error
    return leg


def readable(message: str, table: dict[str, Any] | None = None) -> str:
    """Turn msgspec's "Expected `float` <= 3 - at `$.key`" into "key = 5: expected ..."."""
    match = re.fullmatch(r"(.*) - at `\$\.?(.*)`(.*)", message, re.DOTALL)
    if match is None:
        return message
    what, key, rest = match.groups()
    value = f" = {str(table[key])[:40]}" if table is not None and key in table else ""
    return f"{key}{value}: {what[0].lower()}{what[1:]}{rest}"


def completed(
    tables: Sequence[dict[str, Any]], geofence: Geofence, names: Sequence[str], *, where: str
) -> tuple[Leg, ...]:
    """Return the legs as they are flown: the geofence before each arm, a yaw as a goto.

    tables: see `read_leg`. names, where: of each and of all, for errors. Raises MissionError for
    what is no leg, cannot be flown in this order, or leads out of the geofence.
    """
    if not 1 <= len(tables) <= MAX_LEGS:
        raise MissionError(f"{where}: {len(tables)} legs, the limits are 1 to {MAX_LEGS}")
    legs = [read_leg(table, name) for table, name in zip(tables, names, strict=True)]
    _check_order(legs, names)
    if problem := geofence.problem():
        raise MissionError(f"{names[0].rpartition(',')[0]}, geofence: {problem}")
    flown: list[Leg] = []
    here: Place | None = (0.0, 0.0, 0.0)  # as planned
    sure = True  # and not only about there
    fenced = geofence != Geofence()
    for given, name in zip(legs, names, strict=True):
        leg = given
        if isinstance(leg, Arm) and fenced:
            flown.append(
                SetGeofence(
                    zones=geofence.zones, ceiling_m=geofence.ceiling_m,
                    floor_m=geofence.floor_m, rally=geofence.rally,
                )
            )  # fmt: skip
        if isinstance(leg, Yaw):
            if here is None or not sure:
                raise MissionError(
                    f"{name} (yaw): the ship's position is unknown at this leg: put a goto "
                    "before it"
                )
            n, e, up = here
            leg = Goto(north_m=n, east_m=e, altitude_m=up, yaw_deg=leg.deg)
        there = reached(leg, here)
        if isinstance(leg, Takeoff | Goto | Velocity):
            problem = geofence.way_problem(here, there) if here and there else ""
            if problem:
                raise MissionError(f"{name} ({leg.do}): {problem}")
        flown.append(leg)
        sure = not isinstance(leg, Velocity | Return) and (sure or isinstance(leg, Goto))
        here = there
    return tuple(flown)


def reached(leg: Leg, here: Place | None) -> Place | None:
    """Return where `leg` ends if it starts `here`, as a plan has it; None if that is not known."""
    if isinstance(leg, Velocity) and here is not None:
        n, e, up = here
        return (
            n + leg.seconds * leg.north_mps,
            e + leg.seconds * leg.east_mps,
            max(MIN_ALTITUDE_M, up + leg.seconds * leg.up_mps),
        )
    return end_of(leg, here)


def end_of(leg: Leg, here: Place | None) -> Place | None:
    """Return where `leg` ends if it starts `here`; None if that is not known."""
    match leg:
        case Goto():
            return (leg.north_m, leg.east_m, leg.altitude_m)
        case Velocity():
            return None
        case ActionLeg() if _ROWS[leg.do].moves:
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


def legs_with_ends(legs: Sequence[Leg]) -> Iterator[tuple[int, Leg, Place | None, Place | None]]:
    """Yield the number of each leg, the leg, and where it begins and ends as a plan has it."""
    here: Place | None = (0.0, 0.0, 0.0)
    for number, leg in enumerate(legs, start=1):
        there = reached(leg, here)
        yield number, leg, here, there
        here = there


def _check_order(legs: Sequence[Leg], names: Sequence[str]) -> None:
    """Refuse what cannot be flown in this order, before anything moves."""
    armed = flying = False
    for name, leg in zip(names, legs, strict=True):
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
            case ActionLeg() if Need.ARMED in ACTIONS[leg.do].needs and not armed:
                problem = "the ship is not armed: put an arm leg before it"
            case ActionLeg() if Need.UP in ACTIONS[leg.do].needs and not flying:
                problem = "the ship has not taken off: put a takeoff leg before it"
            case Goto() | Yaw() | Velocity() | Hold() | Return() | Land() if not flying:
                problem = "the ship has not taken off: put a takeoff leg before it"
            case Land():
                armed = flying = False
            case Disarm() if flying:
                problem = "the ship would be disarmed in the air: put a land leg before it"
            case Disarm():
                armed = False
        if problem:
            raise MissionError(f"{name} ({leg.do}): {problem}")
