"""Where the printed tags of a room are: a TOML file, which a simulator's scene is as well.

One row a tag, `[[tag]]`: `id, family, size_m, north_m, east_m, altitude_m, yaw_deg, pitch_deg,
roll_deg, sigma_m`. The place is that of the tag's centre, from the pad. A tag's own axes are its
top, its right and into its paper. With all angles 0 it lies on the floor, its face up, its top to
the north; yaw turns it clockwise as seen from above. pitch_deg = 90 hangs it on the wall to which
yaw points, its top up; roll_deg = 180 sticks it to the ceiling.
"""

import tomllib
from math import radians
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from blimp.errors import ConfigError
from blimp.rotation import from_euler, rotate
from blimp.suggest import suggestion, with_suggestion
from blimp.types import Vec3

# How many ids each family has, of those whose dictionary fits a small board's memory: AprilTag 3's
# own tables. 16h5 is left out: noise makes valid ids of it.
FAMILY = "tag36h11"  # of what is printed here
FAMILIES = {"tag36h11": 587, "tag25h9": 35, "tagStandard41h12": 2115}
MAX_TAGS = 2000  # a hall's floor, one a square metre
MAX_BYTES = 1_000_000
# From the tag's centre, in half sizes to its top and right; the order in which they are found.
CORNERS = ((-1.0, -1.0), (-1.0, 1.0), (1.0, 1.0), (1.0, -1.0))

Metres = Annotated[float, Meta(ge=-1000.0, le=1000.0)]
Degrees = Annotated[float, Meta(ge=-360.0, le=360.0)]


class Tag(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tag as it hangs in the room.

    size_m: the side of the square whose corners are found: the outer edge of the black border;
    of tagStandard41h12 the edge between its white and its black ring. sigma_m: one standard
    deviation of each of its coordinates, as a tape measure or the survey has it.
    """

    id: Annotated[int, Meta(ge=0)]
    family: str = FAMILY
    size_m: Annotated[float, Meta(ge=0.005, le=3.0)]
    north_m: Metres
    east_m: Metres
    altitude_m: Metres = 0.0
    yaw_deg: Degrees = 0.0
    pitch_deg: Degrees = 0.0
    roll_deg: Degrees = 0.0
    sigma_m: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.005

    @property
    def key(self) -> tuple[str, int]:
        return self.family, self.id

    @property
    def center_ned_m(self) -> Vec3:
        return self.north_m, self.east_m, -self.altitude_m

    def corners_ned_m(self) -> tuple[Vec3, ...]:
        """Return its corners: bottom left, bottom right, top right, top left of the print."""
        turn = from_euler(radians(self.roll_deg), radians(self.pitch_deg), radians(self.yaw_deg))
        north_m, east_m, down_m = self.center_ned_m
        half_m = 0.5 * self.size_m
        found: list[Vec3] = []
        for top, right in CORNERS:
            n, e, d = rotate(turn, (top * half_m, right * half_m, 0.0))
            found.append((north_m + n, east_m + e, down_m + d))
        return tuple(found)


class TagMap(msgspec.Struct, frozen=True, kw_only=True):
    """The tags of a room, by family and id."""

    tags: tuple[Tag, ...]

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(sorted({tag.family for tag in self.tags}))


def load(path: str | Path) -> TagMap:
    """Read a map of tags, or those of a scene.

    Raises ConfigError naming the file, the row, counted from 1, and the limit.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError(f"tag map {path}: more than {MAX_BYTES} bytes")
        text = data.decode("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"tag map {path}: {error}") from error
    return parse(text, where=str(path))


def parse(text: str, *, where: str) -> TagMap:
    """Read a map from TOML text; `where` names it in errors. Other tables are a scene's."""
    try:
        rows = tomllib.loads(text).get("tag")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"tag map {where}: {error}") from error
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"tag map {where}: it has no row [[tag]]")
    if len(rows) > MAX_TAGS:
        raise ConfigError(f"tag map {where}: {len(rows)} rows, the limit is {MAX_TAGS}")
    seen: dict[tuple[str, int], int] = {}
    tags: list[Tag] = []
    for number, row in enumerate(rows, start=1):
        try:
            tag = _tag(row)
        except ValueError as error:
            raise ConfigError(f"tag map {where}: row {number}: {error}") from error
        first = seen.setdefault(tag.key, number)
        if first != number:
            raise ConfigError(
                f"tag map {where}: row {number}: {tag.family} {tag.id} is in row {first} already; "
                "an id may be in a room once"
            )
        tags.append(tag)
    return TagMap(tags=tuple(tags))


def _tag(row: Any) -> Tag:
    try:
        tag = msgspec.convert(row, Tag)
    except msgspec.ValidationError as error:
        raise ValueError(with_suggestion(str(error), Tag)) from error
    count = FAMILIES.get(tag.family)
    if count is None:
        raise ValueError(
            f"no family {tag.family!r}{suggestion(tag.family, FAMILIES)}: known are "
            f"{', '.join(FAMILIES)}"
        )
    if tag.id >= count:
        raise ValueError(f"id {tag.id}: {tag.family} has ids 0 to {count - 1}")
    return tag


def as_toml(tag_map: TagMap) -> str:
    """Write a map as the file that `load` reads, without what is as by default."""
    rows: list[str] = []
    usual = {one.name: one.default for one in msgspec.structs.fields(Tag)}
    for tag in tag_map.tags:
        values = {
            name: f'"{value}"' if isinstance(value, str) else f"{round(value, 5):.9g}"
            for name, value in msgspec.structs.asdict(tag).items()
            if value != usual[name]
        }
        rows.append("[[tag]]\n" + "".join(f"{k} = {v}\n" for k, v in values.items()))
    return "\n".join(rows)
