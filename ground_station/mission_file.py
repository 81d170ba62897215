"""A mission: its file, its strict reader, and the line it draws.

    name = "there and back"
    description = "what a person reads before flying it"
    ceiling_m = 10.0   # and floor_m; both may be left out

    [[geofence]]       # metres north and east of the pad; or circle = [north, east, radius]
    polygon = [[-5, -5], [15, -5], [15, 15], [-5, 15]]

    [[rally]]
    north_m = 8.0
    east_m = 0.0
    altitude_m = 3.0

    [[leg]]
    do = "goto"        # see ground_station/legs.py
    north_m = 10.0     # ... and the arguments of that command, named as on the command line

A file of QGroundControl (ground_station/mavlink/plan_file.py) is known by what it holds: they are
named .plan, .waypoints or .txt.
Everything is checked before anything is sent: keys, types, limits, order, the geofence.
"""

import math
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from blimp.errors import MissionError
from blimp.geofence import Geofence, Rally, Zone
from blimp.reading import ready
from blimp.suggest import suggestion, with_suggestion
from ground_station.legs import Goto, Leg, Takeoff, completed, end_of, readable
from ground_station.mavlink.plan_file import Plan, parse_plan, parse_waypoints
from ground_station.track import Place, TrackLeg

MAX_BYTES = 256 * 1024
ENDINGS = (".toml", ".plan", ".waypoints", ".txt")


class Mission(msgspec.Struct, frozen=True, kw_only=True):
    """A checked mission. Legs are numbered from 1, in errors, reports and `track()`.

    origin_deg: latitude and longitude of the pad in the file; None for one in metres.
    """

    name: str
    description: str
    legs: tuple[Leg, ...]
    geofence: Geofence = Geofence()
    origin_deg: tuple[float, float] | None = None

    def track(self) -> dict[int, TrackLeg]:
        """Return the straight line of every leg that has one, by the leg's number.

        The ship starts on the pad, the origin. A leg is missing here if it does not move
        the ship, or if one of its ends cannot be known beforehand (velocity, and the leg
        after it).
        """
        lines: dict[int, TrackLeg] = {}
        here: Place | None = (0.0, 0.0, 0.0)
        for number, leg in enumerate(self.legs, start=1):
            there = end_of(leg, here)
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


@ready
class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=64)]
    description: Annotated[str, Meta(max_length=1000)] = ""
    ceiling_m: float | None = None
    floor_m: float | None = None
    geofence: tuple[Zone, ...] = ()
    rally: tuple[Rally, ...] = ()
    leg: list[dict[str, Any]]


def builtin_missions() -> tuple[str, ...]:
    """Return the names of the missions that come with the package, sorted."""
    files = resources.files("ground_station").joinpath("missions").iterdir()
    return tuple(sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml")))


def load_mission(path_or_name: str, *, origin_deg: tuple[float, float] | None = None) -> Mission:
    """Read a mission from a file, or a built-in one by its name.

    origin_deg: where the pad really is; a file with latitudes takes its own home by default.
    Raises MissionError naming the file, the leg, the key and the limit.
    """
    if path_or_name in builtin_missions():
        builtin = resources.files("ground_station") / "missions" / f"{path_or_name}.toml"
        return parse_mission(builtin.read_text("utf-8"), where=path_or_name)
    path = Path(path_or_name)
    try:
        if not path.is_file():
            raise MissionError(
                f"no mission {path_or_name!r}{suggestion(path_or_name, builtin_missions())}: "
                f"it is neither a file nor one of {', '.join(builtin_missions())}"
            )
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise MissionError(f"mission {path}: more than {MAX_BYTES} bytes, which is the limit")
        text = content.decode("utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the path
        raise MissionError(f"mission {path_or_name}: {error}") from error
    if path.suffix == ".plan" or text.lstrip().startswith("{"):
        return _of_plan(parse_plan(text, where=path_or_name, origin_deg=origin_deg), path_or_name)
    if path.suffix == ".waypoints" or text.startswith("QGC WPL"):
        plan = parse_waypoints(text, where=path_or_name, origin_deg=origin_deg)
        return _of_plan(plan, path_or_name)
    return parse_mission(text, where=path_or_name)


def parse_mission(text: str, *, where: str) -> Mission:
    """Read a mission from TOML text; `where` names it in errors."""
    try:
        file = msgspec.convert(tomllib.loads(text), _File)
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        message = with_suggestion(str(error), _File)
        raise MissionError(f"mission {where}: {readable(message)}") from error
    names = [f"mission {where}, leg {number}" for number in range(1, len(file.leg) + 1)]
    geofence = Geofence(
        zones=file.geofence, ceiling_m=file.ceiling_m, floor_m=file.floor_m, rally=file.rally
    )
    return Mission(
        name=file.name,
        description=file.description,
        legs=completed(file.leg, geofence, names, where=f"mission {where}"),
        geofence=geofence,
    )


def _of_plan(plan: Plan, where: str) -> Mission:
    return Mission(
        name=Path(where).stem[:64] or "plan",
        description=f"{len(plan.tables)} legs from {Path(where).name}",
        legs=completed(plan.tables, plan.geofence, plan.names, where=f"mission {where}"),
        geofence=plan.geofence,
        origin_deg=plan.home_deg,
    )
