"""Missions of QGroundControl: `.plan` (JSON) and `.waypoints` (QGC WPL 110).

Sources: "Plan File Format" of QGroundControl's developer guide, and the file format and mission
commands of the MAVLink developer guide. Latitudes become metres from the file's home, or from
where the pad really is. What a blimp does not do is refused by its name and its place in the file.
"""

import math
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from blimp.airframe import Home
from blimp.errors import MissionError
from blimp.geofence import Geofence
from blimp.reading import ready
from ground_station.mavlink.items import GLOBAL, RELATIVE, Item, fence_of, legs_of

_WPL = "QGC WPL 110"
_COLUMNS = 12

Latitude = Annotated[float, Meta(ge=-90.0, le=90.0)]
Longitude = Annotated[float, Meta(ge=-180.0, le=180.0)]
LatLon = tuple[Latitude, Longitude]
LatLonAlt = tuple[Latitude, Longitude, float]
# QGroundControl writes no altitude of a home that it does not know.
HomePosition = tuple[Latitude, Longitude, float | None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A file's legs as tables, with what names each of them in errors."""

    tables: list[dict[str, Any]]
    names: list[str]
    geofence: Geofence
    home_deg: tuple[float, float]


class _SimpleItem(msgspec.Struct, frozen=True):
    type: str
    command: int | None = None
    frame: int = 3
    params: list[float | None] = []
    auto_continue: bool = msgspec.field(default=True, name="autoContinue")
    jump_id: int | None = msgspec.field(default=None, name="doJumpId")
    complex_type: str = msgspec.field(default="", name="complexItemType")


class _Circle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    center: LatLon
    radius: float


class _FenceCircle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    circle: _Circle
    inclusion: bool
    version: int = 1


class _FencePolygon(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    polygon: list[LatLon]
    inclusion: bool
    version: int = 1


class _GeoFence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """polygon: the only one of version 1, in which the ship must stay."""

    circles: list[_FenceCircle] = []
    polygons: list[_FencePolygon] = []
    polygon: list[LatLon] = []
    version: int = 2
    breach_return: list[float] | None = msgspec.field(default=None, name="breachReturn")


class _Rally(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    points: list[LatLonAlt] = []
    version: int = 2


class _MissionPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Speeds, kind of autopilot and of vehicle are of another ship; they mean nothing here."""

    home: HomePosition = msgspec.field(name="plannedHomePosition")
    items: list[_SimpleItem]
    version: int = 2
    cruise_speed: float | None = msgspec.field(default=None, name="cruiseSpeed")
    hover_speed: float | None = msgspec.field(default=None, name="hoverSpeed")
    firmware: int | None = msgspec.field(default=None, name="firmwareType")
    vehicle: int | None = msgspec.field(default=None, name="vehicleType")
    altitude_mode: int | None = msgspec.field(default=None, name="globalPlanAltitudeMode")


@ready
class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file_type: str = msgspec.field(name="fileType")
    version: int
    mission: _MissionPart
    geofence: _GeoFence = msgspec.field(default=_GeoFence(), name="geoFence")
    rally: _Rally = msgspec.field(default=_Rally(), name="rallyPoints")
    ground_station: str = msgspec.field(default="", name="groundStation")


def parse_plan(text: str, *, where: str, origin_deg: tuple[float, float] | None = None) -> Plan:
    """Read a `.plan`. Raises MissionError naming the file, the item and the limit."""
    try:
        file = msgspec.json.decode(text.encode(), type=_File)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise MissionError(f"mission {where}: {error}") from error
    if file.file_type != "Plan" or file.version != 1:
        raise MissionError(
            f"mission {where}: fileType {file.file_type[:40]!r}, version {file.version}; "
            "must be 'Plan', version 1"
        )
    versions = (
        ("geoFence", file.geofence.version, (1, 2)),
        ("rallyPoints", file.rally.version, (1, 2)),
        ("mission", file.mission.version, (2,)),
    )
    for part, version, known in versions:
        if version not in known:
            raise MissionError(
                f"mission {where}: {part} has version {version}, known are "
                f"{' and '.join(map(str, known))}"
            )
    if file.geofence.breach_return is not None:
        raise MissionError(f"mission {where}: geoFence.breachReturn: give a rally point instead")
    altitude_m = file.mission.home[2]
    home = _home((*file.mission.home[:2], altitude_m or 0.0), origin_deg)
    items = []
    for number, row in enumerate(file.mission.items, start=1):
        name = f"mission {where}, item {number}"
        if row.type != "SimpleItem" or row.command is None:
            what = row.complex_type or row.type
            raise MissionError(
                f"{name}: {what[:40]!r} is no simple item: turn it into waypoints first"
            )
        if len(row.params) != 7:
            raise MissionError(f"{name}: {len(row.params)} params, must be 7")
        if not row.auto_continue:
            raise MissionError(
                f"{name}: autoContinue is false: a mission cannot wait for a command; end it there"
            )
        id, params = row.jump_id or number, tuple(row.params)
        items.append(Item(name=name, id=id, command=row.command, frame=row.frame, params=params))
    tables, names = legs_of(items, home, has_altitude=altitude_m is not None)
    return Plan(
        tables=tables,
        names=names,
        geofence=_geofence(file, home, where),
        home_deg=(home.latitude_deg, home.longitude_deg),
    )


def parse_waypoints(
    text: str, *, where: str, origin_deg: tuple[float, float] | None = None
) -> Plan:
    """Read a `.waypoints`. Its first row is home. Raises MissionError naming file and line."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != _WPL:
        first = lines[0].strip()[:40] if lines else ""
        raise MissionError(f"mission {where}, line 1: {first!r}, must be {_WPL!r}")
    rows = [
        _row(line, f"mission {where}, line {number}", index)
        for index, (number, line) in enumerate(
            (n, line) for n, line in enumerate(lines[1:], start=2) if line.strip()
        )
    ]
    if not rows or rows[0].command != 16 or rows[0].frame not in GLOBAL:
        raise MissionError(
            f"mission {where}, line 2: must be home, index 0 with command 16 and frame 0"
        )
    latitude, longitude, altitude = (x or 0.0 for x in rows[0].params[4:])
    has_place = bool(latitude or longitude)  # tools write zeros for a home that is not known
    if not has_place and origin_deg is None:
        raise MissionError(f"{rows[0].name}: the home is at 0, 0, so the file has no home")
    if not (abs(latitude) <= 90.0 and abs(longitude) <= 180.0):
        raise MissionError(f"{rows[0].name}: latitude {latitude:g}, longitude {longitude:g}")
    home = _home((latitude, longitude, altitude), origin_deg)
    tables, names = legs_of(rows[1:], home, has_altitude=has_place)
    return Plan(
        tables=tables,
        names=names,
        geofence=Geofence(),
        home_deg=(home.latitude_deg, home.longitude_deg),
    )


def _row(line: str, name: str, index: int) -> Item:
    """Index, current, frame, command, four parameters, latitude, longitude, altitude, continue."""
    words = line.split()
    if len(words) != _COLUMNS:
        raise MissionError(f"{name}: {len(words)} columns, must be {_COLUMNS}")
    try:
        counts = [int(words[k]) for k in (0, 1, 2, 3, 11)]
        values = [float(word) for word in words[4:11]]
    except ValueError as error:
        raise MissionError(f"{name}: {error}") from error
    if counts[0] != index:
        raise MissionError(f"{name}: index {counts[0]}, must be {index}")
    # This form cannot leave a yaw out: tools write 0 for none.
    values[3] = math.nan if counts[3] in (16, 19, 21, 22) and values[3] == 0.0 else values[3]
    params = tuple(None if math.isnan(value) else value for value in values)
    if index and not counts[4]:
        raise MissionError(
            f"{name}: autocontinue is 0: a mission cannot wait for a command; end it there"
        )
    return Item(name=name, id=index, command=counts[3], frame=counts[2], params=params)


def _home(place: tuple[float, float, float], origin_deg: tuple[float, float] | None) -> Home:
    latitude, longitude = place[:2] if origin_deg is None else origin_deg
    return Home(latitude_deg=latitude, longitude_deg=longitude, altitude_msl_m=place[2])


def _geofence(file: _File, home: Home, where: str) -> Geofence:
    """Each shape and point as the items that a station sends for it."""
    name, drawn = f"mission {where}, geofence", file.geofence

    def item(command: int, place: LatLon | LatLonAlt, size: float | None = None) -> Item:
        params = (size, None, None, None, *place, None)[:7]
        return Item(name=name, command=command, frame=RELATIVE[0], params=params)

    fence: list[Item] = []
    older = [_FencePolygon(drawn.polygon, inclusion=True)] if drawn.polygon else []
    for shape in (*drawn.polygons, *older):
        corners, command = shape.polygon, 5001 if shape.inclusion else 5002
        if not corners:
            raise MissionError(f"{name}: a polygon without corners")
        fence += [item(command, corner, len(corners)) for corner in corners]
    for round in drawn.circles:
        command = 5003 if round.inclusion else 5004
        fence.append(item(command, round.circle.center, round.circle.radius))
    rally = [item(5100, point) for point in file.rally.points]
    return fence_of(fence, rally, home, where=name)
