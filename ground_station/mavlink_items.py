"""Mission items of MAVLink as legs of a mission.

Source: MAV_CMD and MAV_FRAME of MAVLink's common message set. A command that is not in the table
is refused by its name; so is a parameter that asks for what a blimp does not do. RTL means to
land there, too. A yaw turns the short way, at the ship's own rate; a relative one counts from the
course of the leg before it. A region of interest is what the nose points to at the end of a leg.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import msgspec

from blimp.airframe import Home
from blimp.errors import MissionError

Table = dict[str, Any]
Params = tuple[float | None, ...]  # seven of them; None where the file has no number

ABSOLUTE, _RELATIVE = (0, 5), (3, 6)  # MAV_FRAME_GLOBAL(_INT), ..._RELATIVE_ALT(_INT)
# What ground stations write and a blimp does not do, so that an error can name it.
_NAMES = {
    17: "NAV_LOITER_UNLIM", 18: "NAV_LOITER_TURNS", 30: "NAV_CONTINUE_AND_CHANGE_ALT",
    31: "NAV_LOITER_TO_ALT", 82: "NAV_SPLINE_WAYPOINT", 84: "NAV_VTOL_TAKEOFF",
    85: "NAV_VTOL_LAND", 92: "NAV_GUIDED_ENABLE", 94: "NAV_PAYLOAD_PLACE",
    113: "CONDITION_CHANGE_ALT", 114: "CONDITION_DISTANCE", 176: "DO_SET_MODE",
    179: "DO_SET_HOME", 180: "DO_SET_PARAMETER", 181: "DO_SET_RELAY", 182: "DO_REPEAT_RELAY",
    184: "DO_REPEAT_SERVO", 189: "DO_LAND_START", 200: "DO_CONTROL_VIDEO",
    202: "DO_DIGICAM_CONFIGURE", 203: "DO_DIGICAM_CONTROL", 204: "DO_MOUNT_CONFIGURE",
    205: "DO_MOUNT_CONTROL",
    206: "DO_SET_CAM_TRIGG_DIST", 207: "DO_FENCE_ENABLE", 208: "DO_PARACHUTE", 211: "DO_GRIPPER",
    212: "DO_AUTOTUNE_ENABLE", 530: "SET_CAMERA_MODE", 2000: "IMAGE_START_CAPTURE",
    2001: "IMAGE_STOP_CAPTURE", 2500: "VIDEO_START_CAPTURE", 2501: "VIDEO_STOP_CAPTURE",
}  # fmt: skip


JUMP = 177  # MAV_CMD_DO_JUMP
_ROI_NONE, _ROI_LOCATION = 0.0, 3.0  # MAV_ROI
_TURN_LEG_M = 2.0  # shorter legs are flown with the nose where it is (LOITER)


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a file. name: for errors, "mission m.plan, item 3". id: what a jump names."""

    name: str
    id: int = 0
    command: int
    frame: int
    params: Params


class _Translator:
    """Where the ship is after the items so far, and how fast it flies to the next."""

    def __init__(self, home: Home, *, has_altitude: bool) -> None:
        self.home = home
        self._has_altitude = has_altitude
        self.place: tuple[float, float] = (0.0, 0.0)
        self.altitude_m = 0.0
        self.yaw_deg: float | None = None  # not known before it has flown somewhere
        self.speed_mps: float | None = None
        self.roi: tuple[float, float] | None = None
        self.is_up = False

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
        if item.frame in _RELATIVE:
            return altitude
        if item.frame not in ABSOLUTE:
            _refuse(item, f"frame {item.frame}, must be one of {(*_RELATIVE, *ABSOLUTE)}")
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
    items: Sequence[Item], home: Home, *, has_altitude: bool = True, most: int
) -> tuple[list[Table], list[str]]:
    """Return the legs as tables of `read_leg`, and what names each in errors.

    has_altitude: whether the file's home has one. most: items, with all rounds of all loops.
    Raises MissionError naming the item, its command and the limit. A plan does not say arm: it is
    put first.
    """
    translator = _Translator(home, has_altitude=has_altitude)
    tables: list[Table] = []
    names: list[str] = []
    for item in _unrolled(items, most):
        known = COMMANDS.get(item.command)
        if known is None:
            what = _NAMES.get(item.command, f"MAV_CMD {item.command}")
            raise MissionError(
                f"{item.name}: {what} is not supported; known are "
                f"{', '.join(name for name, _ in COMMANDS.values())}"
            )
        for value in item.params:
            if value is not None and not math.isfinite(value):
                _refuse(item, f"a parameter is {value}, must be finite")
        legs = known[1](translator, item)
        if legs and not tables:
            legs = [{"do": "arm"}, *legs]
        tables += legs
        names += [f"{item.name}, {known[0]}"] * len(legs)
    return tables, names


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


def _servo(t: _Translator, item: Item) -> list[Table]:  # noqa: ARG001
    channel, pulse = item.params[:2]
    if (number := _whole(channel)) is None or pulse is None:
        _refuse(item, f"servo {channel} to {pulse} us: must be a whole number and a pulse")
    return [{"do": "payload", "channel": number, "pulse_us": pulse}]


# Each command that a blimp flies: its name and its legs.
COMMANDS: dict[int, tuple[str, Callable[[_Translator, Item], list[Table]]]] = {
    16: ("NAV_WAYPOINT", _waypoint),
    19: ("NAV_LOITER_TIME", _loiter_time),
    20: ("NAV_RETURN_TO_LAUNCH", _rtl),
    21: ("NAV_LAND", _land),
    22: ("NAV_TAKEOFF", _takeoff),
    93: ("NAV_DELAY", _delay),
    112: ("CONDITION_DELAY", _delay),
    115: ("CONDITION_YAW", _yaw),
    178: ("DO_CHANGE_SPEED", _speed),
    183: ("DO_SET_SERVO", _servo),
    80: ("NAV_ROI", _roi),
    195: ("DO_SET_ROI_LOCATION", _roi),
    197: ("DO_SET_ROI_NONE", _roi),
    201: ("DO_SET_ROI", _roi),
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
    raise MissionError(f"{item.name}, {COMMANDS[item.command][0]}: {problem}")
