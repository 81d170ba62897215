"""An uploaded mission, checked as a file is, and what MAVProxy and MAVSDK mean by theirs."""

from collections.abc import Sequence

import msgspec

from blimp.actions import MIN_ALTITUDE_M
from blimp.airframe import Home
from blimp.geofence import MAX_RALLY, Geofence
from ground_station.legs import Arm, Leg, SetGeofence, completed
from ground_station.mavlink.items import (
    FENCE,
    GLOBAL,
    MAX_ITEMS,
    MISSION,
    RALLY,
    Item,
    Table,
    legs_of,
)
from ground_station.mission_file import Mission

MOST = {MISSION: MAX_ITEMS, FENCE: MAX_ITEMS, RALLY: MAX_RALLY}
_WAYPOINT = 16
_WITH_YAW = (_WAYPOINT, 19, 21, 22)  # loiter, land, takeoff


class Flown(msgspec.Struct, frozen=True):
    """A mission, and the item that each of its legs came from."""

    mission: Mission
    seqs: tuple[int, ...]


def mission_of(items: Sequence[Item], home: Home, fence: Geofence) -> Flown:
    """Return the mission. Raises MissionError naming the item, its command and the limit."""
    if len(items) > 1 and _is_home(items[0], home):
        items = [_as_ardupilot(item) for item in items[1:]]
    tables, names = _taking_off(*legs_of(items, home))
    flown = completed(tables, fence, names, where="mission")
    of_leg = [int(name.split(",")[0].removeprefix("item ")) for name in names]
    return Flown(
        Mission(name="mavlink", description="uploaded", legs=flown, geofence=fence),
        tuple(_seqs(flown, of_leg)),
    )


def _is_home(first: Item, home: Home) -> bool:
    """Whether it is home, which MAVProxy and all of ArduPilot's files have as item 0.

    Such a place above the sea is so low that it can be no waypoint, which is refused.
    """
    if first.command != _WAYPOINT or first.frame not in GLOBAL:
        return False
    altitude_m = first.params[6]
    return altitude_m is not None and altitude_m - home.altitude_msl_m < MIN_ALTITUDE_M


def _as_ardupilot(item: Item) -> Item:
    """Return an item of a mission that begins with home: as in its files, a yaw of 0 is none."""
    if item.command not in _WITH_YAW or item.params[3] != 0.0:
        return item
    return msgspec.structs.replace(item, params=(*item.params[:3], None, *item.params[4:]))


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
