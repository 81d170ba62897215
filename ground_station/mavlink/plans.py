"""Items of MAVLink as a mission, a geofence and rally points, each checked as a file is."""

import math
from collections.abc import Sequence

import msgspec

from blimp.actions import MIN_ALTITUDE_M
from blimp.airframe import Home
from blimp.errors import MissionError
from blimp.geofence import Geofence, Rally, Zone
from ground_station.legs import MAX_LEGS, Arm, Leg, SetGeofence, completed, read_leg
from ground_station.mavlink_items import Item, Table, legs_of
from ground_station.mission_file import Mission
from ground_station.plan_file import MAX_ITEMS

MISSION, FENCE, RALLY, ALL = 0, 1, 2, 255  # MAV_MISSION_TYPE
NAMES = {MISSION: "mission", FENCE: "geofence", RALLY: "rally points"}
MOST = {MISSION: MAX_ITEMS, FENCE: MAX_ITEMS, RALLY: 32}
_POLYGON_IN, _POLYGON_OUT, _CIRCLE_IN, _CIRCLE_OUT, _RALLY_POINT = 5001, 5002, 5003, 5004, 5100
_SEA, _RELATIVE = (0, 5), (3, 6)
_WAYPOINT = 16
_WITH_YAW = (_WAYPOINT, 19, 21, 22)  # loiter, land, takeoff


class Stored(msgspec.Struct, frozen=True):
    """An item as it was sent, to be sent back: places in 1e-7 degrees, metres."""

    seq: int
    frame: int
    command: int
    params: tuple[float, float, float, float]
    x: int
    y: int
    z: float

    @property
    def name(self) -> str:
        return f"item {self.seq}"

    def place_m(self, home: Home) -> tuple[float, float]:
        latitude, longitude = 1e-7 * self.x, 1e-7 * self.y
        if self.frame not in (*_SEA, *_RELATIVE):
            raise MissionError(f"{self.name}: frame {self.frame}, must be a global one")
        if not (abs(latitude) <= 90.0 and abs(longitude) <= 180.0):
            raise MissionError(f"{self.name}: latitude {latitude:g}, longitude {longitude:g}")
        return home.local_m(latitude, longitude)

    def as_item(self) -> Item:
        """NaN is none, as null in a file."""
        values = (*self.params, 1e-7 * self.x, 1e-7 * self.y, self.z)
        params = tuple(None if math.isnan(value) else value for value in values)
        return Item(
            name=self.name, id=self.seq, command=self.command, frame=self.frame, params=params
        )


class Flown(msgspec.Struct, frozen=True):
    """A mission, and the item that each of its legs came from."""

    mission: Mission
    seqs: tuple[int, ...]


def mission_of(items: Sequence[Stored], home: Home, fence: Geofence) -> Flown:
    """Return the mission. Raises MissionError naming the item, its command and the limit."""
    if len(items) > 1 and _is_home(items[0], home):
        items = [_as_ardupilot(item) for item in items[1:]]
    tables, names = legs_of([item.as_item() for item in items], home, most=MAX_ITEMS)
    if not 1 <= len(tables) <= MAX_LEGS:
        raise MissionError(f"mission: {len(tables)} legs, the limits are 1 to {MAX_LEGS}")
    tables, names = _taking_off(tables, names)
    legs = [read_leg(table, name) for table, name in zip(tables, names, strict=True)]
    flown = completed(legs, fence, names)
    of_leg = [int(name.split(",")[0].removeprefix("item ")) for name in names]
    return Flown(
        Mission(name="mavlink", description="uploaded", legs=flown, geofence=fence),
        tuple(_seqs(flown, of_leg)),
    )


def _is_home(first: Stored, home: Home) -> bool:
    """Whether it is home, which MAVProxy and all of ArduPilot's files have as item 0.

    Such a place above the sea is so low that it can be no waypoint, which is refused.
    """
    is_waypoint = first.command == _WAYPOINT and first.frame in _SEA
    return is_waypoint and first.z - home.altitude_msl_m < MIN_ALTITUDE_M


def _as_ardupilot(item: Stored) -> Stored:
    """Return an item of a mission that begins with home: as in its files, a yaw of 0 is none."""
    if item.command not in _WITH_YAW or item.params[3] != 0.0:
        return item
    return msgspec.structs.replace(item, params=(*item.params[:3], math.nan))


def _taking_off(tables: list[Table], names: list[str]) -> tuple[list[Table], list[str]]:
    """Put a takeoff before a first leg that flies somewhere, as MAVSDK expects it of PX4.

    A takeoff that MAVSDK puts after the waypoint at which it is asked for is then done already.
    """
    if len(tables) < 2 or tables[1]["do"] != "goto":
        return tables, names
    rows = list(zip(tables, names, strict=True))
    up = ({"do": "takeoff", "altitude_m": tables[1]["altitude_m"]}, names[1])
    later = rows[2:] if len(rows) < 3 or rows[2][0]["do"] != "takeoff" else rows[3:]
    rows = [rows[0], up, rows[1], *later]
    return [table for table, _ in rows], [name for _, name in rows]


def _seqs(legs: Sequence[Leg], of_leg: list[int]) -> list[int]:
    """A geofence that was put before an arm counts as that arm's item."""
    found: list[int] = []
    given = iter(of_leg)
    for leg, after in zip(legs, (*legs[1:], None), strict=True):
        if isinstance(leg, SetGeofence) and isinstance(after, Arm):
            found.append(of_leg[0] if not found else found[-1])
        else:
            found.append(next(given))
    return found


def fence_of(fence: Sequence[Stored], rally: Sequence[Stored], home: Home) -> Geofence:
    """Return zones and rally points. Raises MissionError naming the item and the limit."""
    zones: list[Zone] = []
    row = 0
    while row < len(fence):
        item = fence[row]
        if not math.isfinite(item.params[0]):
            raise MissionError(f"{item.name}: param 1 is {item.params[0]:g}, must be a number")
        if item.command in (_CIRCLE_IN, _CIRCLE_OUT):
            circle = (*item.place_m(home), item.params[0])
            zones.append(Zone(circle=circle, exclude=item.command == _CIRCLE_OUT))
            row += 1
        elif item.command in (_POLYGON_IN, _POLYGON_OUT):
            count = int(item.params[0])
            corners = fence[row : row + count]
            if (
                count < 3
                or len(corners) < count
                or any((c.command, c.params[0]) != (item.command, item.params[0]) for c in corners)
            ):
                raise MissionError(f"{item.name}: a polygon of {count} corners is incomplete")
            polygon = tuple(corner.place_m(home) for corner in corners)
            zones.append(Zone(polygon=polygon, exclude=item.command == _POLYGON_OUT))
            row += count
        else:
            raise MissionError(
                f"{item.name}: MAV_CMD {item.command} in a geofence; known are polygons and "
                "circles, 5001 to 5004"
            )
    points = []
    for item in rally:
        if item.command != _RALLY_POINT or not math.isfinite(item.z):
            raise MissionError(
                f"{item.name}: MAV_CMD {item.command}, altitude {item.z:g} m: "
                "must be a rally point (5100) with an altitude"
            )
        north_m, east_m = item.place_m(home)
        height_m = item.z - (home.altitude_msl_m if item.frame in _SEA else 0.0)
        points.append(Rally(north_m=north_m, east_m=east_m, altitude_m=height_m))
    found = Geofence(zones=tuple(zones), rally=tuple(points))
    if problem := found.problem():
        raise MissionError(f"geofence: {problem}")
    return found
