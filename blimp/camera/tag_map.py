"""Where the printed tags of a room are: the rows `tag` of a scene's file (`blimp/scene.py`).

The place is that of the tag's centre, from the pad. A tag's own axes are its top, its right and
into its paper. With all angles 0 it lies on the floor, its face up, its top to the north; yaw turns
it clockwise as seen from above. pitch_deg = 90 hangs it on the wall to which yaw points, its top
up; roll_deg = 180 sticks it to the ceiling.
"""

from math import radians
from pathlib import Path

import msgspec

from blimp import scene
from blimp.errors import ConfigError
from blimp.rotation import from_euler, rotate
from blimp.scene import Tag
from blimp.types import Vec3

# Those whose dictionary fits a small board's memory. 16h5 is left out: noise makes valid ids of it.
FAMILIES = ("tag36h11", "tag25h9", "tagStandard41h12")
# From the tag's centre, in half sizes to its top and right; the order in which they are found.
CORNERS = ((-1.0, -1.0), (-1.0, 1.0), (1.0, 1.0), (1.0, -1.0))


def corners_ned_m(tag: Tag) -> tuple[Vec3, ...]:
    """Return its corners: bottom left, bottom right, top right, top left of the print."""
    turn = from_euler(radians(tag.roll_deg), radians(tag.pitch_deg), radians(tag.yaw_deg))
    half_m = 0.5 * tag.size_m
    found: list[Vec3] = []
    for top, right in CORNERS:
        n, e, d = rotate(turn, (top * half_m, right * half_m, 0.0))
        found.append((tag.north_m + n, tag.east_m + e, d - tag.altitude_m))
    return tuple(found)


class TagMap(msgspec.Struct, frozen=True, kw_only=True):
    """The tags of a room, by family and id."""

    tags: tuple[Tag, ...]

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(sorted({tag.family for tag in self.tags}))


def load(path: str | Path) -> TagMap:
    """Read a map of tags. Raises ConfigError naming the file, the row and the limit."""
    tags = scene.load(path, what="tag map").tag
    if not tags:
        raise ConfigError(f"tag map {path}: it has no tag")
    first: dict[tuple[str, int], int] = {}
    for number, tag in enumerate(tags):
        if tag.family not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise ConfigError(f"tag map {path}: tag[{number}]: {tag.family}: found are {known}")
        if first.setdefault(tag.key, number) != number:
            raise ConfigError(
                f"tag map {path}: tag[{number}]: {tag.family} {tag.id} is tag[{first[tag.key]}] "
                "already; an id may be in a room once"
            )
    return TagMap(tags=tags)


def as_toml(tag_map: TagMap) -> str:
    """Write a map as the file that `load` reads, without what is as by default."""
    usual = {one.name: one.default for one in msgspec.structs.fields(Tag)}
    rows: list[str] = []
    for tag in tag_map.tags:
        values = [
            f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {round(value, 5):.9g}"
            for name, value in msgspec.structs.asdict(tag).items()
            if value != usual[name]
        ]
        rows.append(f"  {{ {', '.join(values)} }},\n")
    return f"tag = [\n{''.join(rows)}]\n"
