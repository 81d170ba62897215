"""Items of MAVLink as legs of a mission, as a geofence and as rally points: one table.

Source: MAV_CMD and MAV_FRAME of MAVLink's common message set. A command that is not in the table
is refused by its name; so is a parameter that asks for what a blimp does not do. RTL means to
land there, too. A yaw turns the short way, at the ship's own rate; a relative one counts from the
course of the leg before it. A region of interest is what the nose points to at the end of a leg.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import msgspec

from blimp.actions import ACTIONS, Action, MavCommand
from blimp.airframe import Home
from blimp.errors import MissionError
from blimp.geofence import Geofence, Rally, Zone
from ground_station.legs import AS_THEY_ARE

Table = dict[str, Any]
Params = tuple[float | None, ...]  # seven of them; None where the file has no number

MISSION, FENCE, RALLY, ALL = 0, 1, 2, 255  # MAV_MISSION_TYPE
NAMES = {MISSION: "mission", FENCE: "geofence", RALLY: "rally points"}
MAX_ITEMS = 400
GLOBAL, RELATIVE = (0, 5), (3, 6)  # MAV_FRAME: above the sea, above home
# What ground stations write and a blimp does not do, so that an error can name it.
_NAMES = {
    17: "NAV_LOITER_UNLIM", 18: "NAV_LOITER_TURNS", 30: "NAV_CONTINUE_AND_CHANGE_ALT",
    31: "NAV_LOITER_TO_ALT", 82: "NAV_SPLINE_WAYPOINT", 84: "NAV_VTOL_TAKEOFF",
    85: "NAV_VTOL_LAND", 92: "NAV_GUIDED_ENABLE", 94: "NAV_PAYLOAD_PLACE",
    113: "CONDITION_CHANGE_ALT", 114: "CONDITION_DISTANCE", 176: "DO_SET_MODE",
    179: "DO_SET_HOME", 180: "DO_SET_PARAMETER", 181: "DO_SET_RELAY", 182: "DO_REPEAT_RELAY",
    184: "DO_REPEAT_SERVO", 189: "DO_LAND_START", 200: "DO_CONTROL_VIDEO",
    202: "DO_DIGICAM_CONFIGURE", 204: "DO_MOUNT_CONFIGURE",
    205: "DO_MOUNT_CONTROL",
    206: "DO_SET_CAM_TRIGG_DIST", 207: "DO_FENCE_ENABLE", 208: "DO_PARACHUTE", 211: "DO_GRIPPER",
    212: "DO_AUTOTUNE_ENABLE", 530: "SET_CAMERA_MODE",
    2500: "VIDEO_START_CAPTURE", 2501: "VIDEO_STOP_CAPTURE",
}  # fmt: skip


JUMP = 177  # MAV_CMD_DO_JUMP
_ROI_NONE, _ROI_LOCATION = 0.0, 3.0  # MAV_ROI
_TURN_LEG_M = 2.0  # shorter legs are flown with the nose where it is (LOITER)


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item. name: for errors, "mission m.plan, item 3". id: what a jump names.

    params: latitude and longitude in degrees and an altitude in metres are the last three.
    """

    name: str
    id: int = 0
    command: int
    frame: int
    params: Params


class _Translator:
    """Where the ship is after the items so far, how fast it flies to the next, and its limits."""

    def __init__(self, home: Home, *, has_altitude: bool) -> None:
        self.home = home
        self._has_altitude = has_altitude
        self.place: tuple[float, float] = (0.0, 0.0)
        self.altitude_m = 0.0
        self.yaw_deg: float | None = None  # not known before it has flown somewhere
        self.speed_mps: float | None = None
        self.roi: tuple[float, float] | None = None
        self.is_up = False
        self.zones: list[Zone] = []
        self.rally: list[Rally] = []
        self.corners: list[Item] = []  # of a polygon that is not whole yet

    def goto(self, item: Item, params: Params) -> Table:
        """Return the leg to an item's place; a place of nulls or zeros is where the ship is."""
        altitude, before = params[6], self.place
        self.place = self.place_of(item, params) or before
        if math.dist(before, self.place) > _TURN_LEG_M:
            self.yaw_deg = _course_deg(before, self.place)
        if altitude is not None and item.command != 21:
            self.altitude_m = self.height_m(item, altitude)
        north, east = self.place
        return {
            "do": "goto",
            "north_m": round(north, 3),
            "east_m": round(east, 3),
            "altitude_m": round(self.altitude_m, 3),
            **({} if self.speed_mps is None else {"speed_mps": self.speed_mps}),
        }

    def place_of(self, item: Item, params: Params) -> tuple[float, float] | None:
        """Return the item's place, None if it has none."""
        latitude, longitude = params[4:6]
        if latitude is None or longitude is None or not (latitude or longitude):
            return None
        if not (abs(latitude) <= 90.0 and abs(longitude) <= 180.0):
            _refuse(item, f"latitude {latitude:g}, longitude {longitude:g}")
        return self.home.local_m(latitude, longitude)

    def height_m(self, item: Item, altitude: float) -> float:
        if item.frame in RELATIVE:
            return altitude
        if item.frame not in GLOBAL:
            _refuse(item, f"frame {item.frame}, must be one of {(*RELATIVE, *GLOBAL)}")
        if not self._has_altitude:
            _refuse(
                item, f"frame {item.frame} is above the sea, and the file's home has no altitude"
            )
        return altitude - self.home.altitude_msl_m

    def turn(self, leg: Table, yaw_deg: float | None) -> Table:
        if self.roi is not None and math.dist(self.place, self.roi) > 0.0:
            yaw_deg = _course_deg(self.place, self.roi)
        if yaw_deg is None:
            return leg
        self.yaw_deg = yaw_deg
        return {**leg, "yaw_deg": _wrapped(yaw_deg)}


def legs_of(
    items: Sequence[Item], home: Home, *, has_altitude: bool = True
) -> tuple[list[Table], list[str]]:
    """Return the legs as tables of `read_leg`, and what names each in errors.

    has_altitude: whether the file's home has one. Raises MissionError naming the item, its command
    and the limit; with all rounds of all loops there are at most MAX_ITEMS. A plan does not say
    arm: it is put first.
    """
    translator = _Translator(home, has_altitude=has_altitude)
    tables: list[Table] = []
    names: list[str] = []
    for item in _unrolled(items, MAX_ITEMS):
        legs = _translated(translator, item, MISSION)
        if legs and not tables:
            legs = [{"do": "arm"}, *legs]
        tables += legs
        names += [f"{item.name}, {COMMANDS[item.command].name}"] * len(legs)
    return tables, names


def fence_of(
    fence: Sequence[Item], rally: Sequence[Item], home: Home, *, where: str = "geofence"
) -> Geofence:
    """Return zones and rally points. Raises MissionError naming the item or `where`, and the limit.

    A polygon is as many items as it has corners, each with their number.
    """
    translator = _Translator(home, has_altitude=True)
    for item in fence:
        _translated(translator, item, FENCE)
    if translator.corners:
        _refuse_polygon(translator.corners)
    for item in rally:
        _translated(translator, item, RALLY)
    found = Geofence(zones=tuple(translator.zones), rally=tuple(translator.rally))
    if problem := found.problem():
        raise MissionError(f"{where}: {problem}")
    return found


def _translated(translator: _Translator, item: Item, plan: int) -> list[Table]:
    """Return the legs of an item of this plan. Raises MissionError."""
    row = COMMANDS.get(item.command)
    if row is None or row.plan != plan:
        what = row.name if row else _NAMES.get(item.command, f"MAV_CMD {item.command}")
        known = ", ".join(one.name for one in COMMANDS.values() if one.plan == plan)
        raise MissionError(f"{item.name}: {what} is not supported; known are {known}")
    for value in item.params:
        if value is not None and not math.isfinite(value):
            _refuse(item, f"a parameter is {value}, must be finite")
    return row.legs(translator, item)


def _unrolled(items: Sequence[Item], most: int) -> list[Item]:
    """Return the items in the order in which they are flown, each loop with its rounds.

    As autopilots do, a jump counts its rounds for the whole mission.
    """
    rows = {item.id: row for row, item in enumerate(items)}
    named = Counter(item.id for item in items)
    flown: list[Item] = []
    rounds: Counter[int] = Counter()
    row = 0
    while row < len(items):
        item = items[row]
        row += 1
        if item.command != JUMP:
            flown.append(item)
            if len(flown) > most:
                raise MissionError(f"{item.name}: more than {most} items with all loops")
            continue
        target, count = (_whole(value) for value in item.params[:2])
        if count is None or count < 0:
            raise MissionError(
                f"{item.name}, DO_JUMP: param 2, its rounds, is {_number(item.params[1])}: "
                "must be a whole number, 0 or more"
            )
        if target is None or named[target] != 1:
            why = "several have" if target in rows else "no item has"
            raise MissionError(
                f"{item.name}, DO_JUMP: param 1 is {_number(item.params[0])}: {why} this number"
            )
        if rounds[item.id] < count:
            rounds[item.id] += 1
            if sum(rounds.values()) > most:
                raise MissionError(f"{item.name}, DO_JUMP: more than {most} rounds of all loops")
            row = rows[target]
    return flown


def _waypoint(t: _Translator, item: Item) -> list[Table]:
    if item.params[2]:
        _refuse(item, f"param 3, pass by, is {item.params[2]:g}, must be 0")
    leg = t.turn(t.goto(item, item.params), item.params[3])
    return [leg | _loiter(item, item.params[0])]


def _takeoff(t: _Translator, item: Item) -> list[Table]:
    altitude = item.params[6]
    if altitude is None:
        _refuse(item, "has no altitude")
    t.altitude_m = t.height_m(item, altitude)
    t.is_up = True
    legs: list[Table] = [{"do": "takeoff", "altitude_m": round(t.altitude_m, 3)}]
    if item.params[3]:
        t.yaw_deg = item.params[3]
        legs.append({"do": "yaw", "deg": _wrapped(t.yaw_deg)})
    return legs


def _land(t: _Translator, item: Item) -> list[Table]:
    before = t.place
    leg = t.turn(t.goto(item, item.params), item.params[3])
    moves = t.place != before or "yaw_deg" in leg
    return [leg, {"do": "land"}] if moves else [{"do": "land"}]


def _rtl(t: _Translator, item: Item) -> list[Table]:  # noqa: ARG001
    t.place = (0.0, 0.0)
    return [{"do": "return"}, {"do": "land"}]


def _loiter_time(t: _Translator, item: Item) -> list[Table]:
    leg = t.turn(t.goto(item, item.params), item.params[3])
    if not item.params[0]:
        _refuse(item, "param 1, its seconds, is missing")
    return [leg | _loiter(item, item.params[0])]


def _delay(t: _Translator, item: Item) -> list[Table]:  # noqa: ARG001
    seconds = item.params[0]
    if seconds is None or seconds <= 0.0:
        _refuse(item, f"param 1 is {seconds}: only a time in seconds can be waited for")
    return [{"do": "hold", "seconds": seconds}]


def _yaw(t: _Translator, item: Item) -> list[Table]:
    angle, _, direction, relative = item.params[:4]
    if angle is None:
        _refuse(item, "param 1, its angle, is missing")
    if relative and t.yaw_deg is None:
        _refuse(item, "is relative to a heading that is not known yet: give an absolute one")
    t.yaw_deg = (t.yaw_deg or 0.0) + (direction or 1.0) * angle if relative else angle
    return [{"do": "yaw", "deg": _wrapped(t.yaw_deg)}]


def _roi(t: _Translator, item: Item) -> list[Table]:
    """Point the nose to a place, here and at the end of each leg."""
    kind = _ROI_LOCATION if item.command == 195 else item.params[0]
    if item.command == 197 or kind == _ROI_NONE:
        t.roi = None
        return []
    t.roi = t.place_of(item, item.params) if kind == _ROI_LOCATION else None
    if t.roi is None:
        _refuse(item, f"kind {kind}, must be a location (3) with its latitude and longitude")
    if not t.is_up or math.dist(t.place, t.roi) == 0.0:
        return []
    t.yaw_deg = _course_deg(t.place, t.roi)
    return [{"do": "yaw", "deg": _wrapped(t.yaw_deg)}]


def _speed(t: _Translator, item: Item) -> list[Table]:
    kind, speed, throttle = item.params[:3]
    if kind not in (None, 0.0, 1.0):
        _refuse(item, f"param 1 is {kind:g}: only air and ground speed (0, 1) can be set")
    if throttle is not None and throttle > 0.0:
        _refuse(item, f"param 3, throttle, is {throttle:g}: must be -1")
    if speed == -2.0:
        t.speed_mps = None
    elif speed is not None and speed != -1.0:
        t.speed_mps = speed
    return []


def _corner(t: _Translator, item: Item) -> list[Table]:
    first = t.corners[0] if t.corners else item
    t.corners.append(item)
    count = _whole(item.params[0])
    same = (item.command, item.params[0]) == (first.command, first.params[0])
    if count is None or count < 3 or not same:
        _refuse_polygon(t.corners)
    if len(t.corners) == count:
        polygon = tuple(_must_place(t, corner) for corner in t.corners)
        t.zones.append(Zone(polygon=polygon, exclude=item.command == 5002))
        t.corners = []
    return []


def _circle(t: _Translator, item: Item) -> list[Table]:
    radius_m = item.params[0]
    if t.corners:
        _refuse_polygon(t.corners)
    if radius_m is None:
        _refuse(item, "param 1, its radius, is missing")
    circle = (*_must_place(t, item), radius_m)
    t.zones.append(Zone(circle=circle, exclude=item.command == 5004))
    return []


def _rally_point(t: _Translator, item: Item) -> list[Table]:
    north_m, east_m = _must_place(t, item)
    if (altitude := item.params[6]) is None:
        _refuse(item, "has no altitude")
    altitude_m = t.height_m(item, altitude)
    t.rally.append(Rally(north_m=north_m, east_m=east_m, altitude_m=altitude_m))
    return []


def _must_place(t: _Translator, item: Item) -> tuple[float, float]:
    if item.frame not in (*GLOBAL, *RELATIVE):
        _refuse(item, f"frame {item.frame}, must be one of {(*RELATIVE, *GLOBAL)}")
    if (place := t.place_of(item, item.params)) is None:
        _refuse(item, "has no place")
    return place


def _refuse_polygon(corners: Sequence[Item]) -> NoReturn:
    count = _number(corners[0].params[0])
    _refuse(corners[0], f"a polygon of {count} corners is incomplete")


def _digicam(t: _Translator, item: Item) -> list[Table]:  # noqa: ARG001
    if item.params[4] != 1.0:
        _refuse(item, f"param 5 is {_number(item.params[4])}, must be 1: take a photograph")
    return [{"do": "photo"}]


class Row(NamedTuple):
    """A command. legs: what it is flown as; a fence and a rally point are none."""

    name: str
    legs: Callable[[_Translator, Item], list[Table]]
    plan: int = MISSION


def _row_of(action: Action, command: MavCommand) -> Row:
    """Return the row of an action whose leg is nothing but its arguments."""

    def legs(_: _Translator, item: Item) -> list[Table]:
        try:
            return [{"do": action.name, **action.from_mavlink(item.params)}]
        except ValueError as error:
            _refuse(item, str(error))

    return Row(command.name, legs)


# Each command that a blimp flies, or is kept in by; those of the table of actions are added
COMMANDS: dict[int, Row] = {
    16: Row("NAV_WAYPOINT", _waypoint),
    19: Row("NAV_LOITER_TIME", _loiter_time),
    20: Row("NAV_RETURN_TO_LAUNCH", _rtl),
    21: Row("NAV_LAND", _land),
    22: Row("NAV_TAKEOFF", _takeoff),
    93: Row("NAV_DELAY", _delay),
    112: Row("CONDITION_DELAY", _delay),
    115: Row("CONDITION_YAW", _yaw),
    178: Row("DO_CHANGE_SPEED", _speed),
    80: Row("NAV_ROI", _roi),
    195: Row("DO_SET_ROI_LOCATION", _roi),
    197: Row("DO_SET_ROI_NONE", _roi),
    201: Row("DO_SET_ROI", _roi),
    203: Row("DO_DIGICAM_CONTROL", _digicam),
    5001: Row("NAV_FENCE_POLYGON_VERTEX_INCLUSION", _corner, FENCE),
    5002: Row("NAV_FENCE_POLYGON_VERTEX_EXCLUSION", _corner, FENCE),
    5003: Row("NAV_FENCE_CIRCLE_INCLUSION", _circle, FENCE),
    5004: Row("NAV_FENCE_CIRCLE_EXCLUSION", _circle, FENCE),
    5100: Row("NAV_RALLY_POINT", _rally_point, RALLY),
}
COMMANDS |= {
    row.number: _row_of(action, row)
    for action in ACTIONS.values()
    if isinstance(row := action.mavlink, MavCommand)
    and action.name in AS_THEY_ARE
    and row.number not in COMMANDS
}


def _loiter(item: Item, seconds: float | None) -> Table:
    if seconds is not None and seconds < 0.0:
        _refuse(item, f"param 1, its seconds, is {seconds:g}")
    return {"loiter_s": seconds} if seconds else {}


def _whole(value: float | None) -> int | None:
    if value is None or not math.isfinite(value) or value != int(value):
        return None
    return int(value)


def _number(value: float | None) -> str:
    return "missing" if value is None else f"{value:g}"


def _course_deg(here: tuple[float, float], there: tuple[float, float]) -> float:
    return math.degrees(math.atan2(there[1] - here[1], there[0] - here[0]))


def _wrapped(yaw_deg: float) -> float:
    return (yaw_deg + 180.0) % 360.0 - 180.0


def _refuse(item: Item, problem: str) -> NoReturn:
    raise MissionError(f"{item.name}, {COMMANDS[item.command].name}: {problem}")
