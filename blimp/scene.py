"""A room as cameras see it, a TOML file: the tags of a map, and what a simulator shows beside them.

    [room]                    # without it the floor has no end, under a sky
    north_m = [-6.0, 6.0]
    east_m = [-4.0, 4.0]
    height_m = 4.0

    tag = [                   # size_m: of the black square
      { id = 7, size_m = 0.2, north_m = 1.0, east_m = 0.5 },
    ]

    [[balloon]]
    north_m = 2.0
    east_m = 0.0
    altitude_m = 1.5
    diameter_m = 0.3
    colour = "red"

North and east are from the pad's middle, altitudes above the floor. A flat thing is turned like a
ship that lies on it: at 0 its top points north and it is seen from above; pitch 90 puts it on a
wall whose bearing from the room's middle is the yaw.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from blimp.ability import camera_of
from blimp.airframe import Airframe, room_file
from blimp.errors import ConfigError
from blimp.suggest import suggestion, with_suggestion

MAX_THINGS = 2000  # of one kind: tags on a hall's floor, one a square metre
MAX_BYTES = 1_000_000  # of a file
MAX_SEEN_BYTES = 60_000  # as MessagePack: it goes to the camera's process in one frame of a socket
Metres = Annotated[float, Meta(ge=-1000.0, le=1000.0)]
South = Annotated[float, Meta(ge=-1000.0, lt=0.0)]  # or west, of the pad
North = Annotated[float, Meta(gt=0.0, le=1000.0)]
Size = Annotated[float, Meta(gt=0.0, le=100.0)]
Degrees = Annotated[float, Meta(ge=-360.0, le=360.0)]
COLOURS = {
    "black": (25, 25, 25), "blue": (30, 60, 200), "green": (30, 160, 60), "grey": (128, 128, 128),
    "orange": (240, 120, 20), "pink": (240, 90, 160), "purple": (130, 50, 170),
    "red": (210, 30, 40), "silver": (190, 195, 200), "white": (235, 235, 235),
    "yellow": (240, 220, 30),
}  # fmt: skip
Colour = Literal[
    "black", "blue", "green", "grey", "orange", "pink", "purple", "red", "silver", "white", "yellow"
]

FAMILY = "tag36h11"  # of what is printed here
FAMILIES = {  # of AprilTags, and how many each has
    "tag16h5": 30, "tag25h9": 35, "tag36h10": 2320, "tag36h11": 587, "tagCircle21h7": 38,
    "tagCircle49h12": 65535, "tagCustom48h12": 42211, "tagStandard41h12": 2115,
    "tagStandard52h13": 48714,
}  # fmt: skip


class _Thing(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    north_m: Metres
    east_m: Metres
    altitude_m: Metres = 0.0  # of its middle
    yaw_deg: Degrees = 0.0
    pitch_deg: Degrees = 0.0
    roll_deg: Degrees = 0.0


class Tag(_Thing, frozen=True, kw_only=True):
    """An AprilTag, with the white margin of its family around it.

    size_m: the side of the square whose corners are found: the outer edge of the black border;
    of tagStandard41h12 the edge between its white and its black ring. sigma_m: one standard
    deviation of each of its coordinates, as a tape measure or the survey has it; a map's.
    """

    id: Annotated[int, Meta(ge=0)]
    family: str = FAMILY
    size_m: Annotated[float, Meta(ge=0.005, le=3.0)]
    sigma_m: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.005

    def __post_init__(self) -> None:
        count = FAMILIES.get(self.family)
        if count is None:
            raise ValueError(
                f"no tag family {self.family!r}{suggestion(self.family, FAMILIES)}: known are "
                f"{', '.join(FAMILIES)}"
            )
        if self.id >= count:
            raise ValueError(f"{self.family} has no tag {self.id}: they are 0 to {count - 1}")

    @property
    def key(self) -> tuple[str, int]:
        return self.family, self.id


class Balloon(_Thing, frozen=True, kw_only=True):
    diameter_m: Size
    colour: Colour = "red"


class GateFrame(_Thing, frozen=True, kw_only=True):
    """A flat ring or square frame; at pitch 90 it stands, and its yaw is the way through it."""

    pitch_deg: Degrees = 90.0
    shape: Literal["ring", "square"] = "ring"
    opening_m: Size
    frame_m: Size = 0.08  # how wide the frame itself is
    colour: Colour = "orange"


class OtherShip(_Thing, frozen=True, kw_only=True):
    """Another ship, which does not move."""

    length_m: Size
    diameter_m: Size
    colour: Colour = "silver"


class Walls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pad, 0, is between both ends."""

    north_m: tuple[South, North]
    east_m: tuple[South, North]
    height_m: Size


class Scenery(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """light: of the lamps, over that of a hall with 500 lux. floor: seed of its pattern."""

    room: Walls | None = None
    floor: Annotated[int, Meta(ge=0, le=2**31)] = 1
    light: Annotated[float, Meta(ge=0.0, le=200.0)] = 1.0
    tag: Annotated[tuple[Tag, ...], Meta(max_length=MAX_THINGS)] = ()
    balloon: Annotated[tuple[Balloon, ...], Meta(max_length=MAX_THINGS)] = ()
    gate: Annotated[tuple[GateFrame, ...], Meta(max_length=MAX_THINGS)] = ()
    ship: Annotated[tuple[OtherShip, ...], Meta(max_length=MAX_THINGS)] = ()


EMPTY = Scenery()


def hall() -> Scenery:
    """Return the simulator's own hall, 12 x 8 m: a landing pad, tags, three balloons, a gate."""
    return load(room_file("hall"))


def of(airframe: Airframe, path: Path | None = None) -> Scenery:
    """Return what a simulated ship sees: the scene in this file.

    Without one the tags of its map in the hall, or the whole hall where it has no map, or there is
    no such file; nothing without a camera. Raises ConfigError for what cannot be read, or shown.
    """
    row = camera_of(airframe)
    if path is not None:
        scene = load(path)
    elif row is None:
        return EMPTY
    else:
        path = room_file(row.options.get("tags") or "hall")
        scene = load(path) if path.exists() else hall()
        scene = msgspec.structs.replace(scene, room=scene.room or hall().room)
    size = len(msgspec.msgpack.encode(scene))
    if size > MAX_SEEN_BYTES:
        raise ConfigError(f"scene {path}: it takes {size} bytes, the limit is {MAX_SEEN_BYTES}")
    return scene


def parse(text: str, *, where: str) -> Scenery:
    """Return the scene that a TOML text describes. Raises ConfigError naming `where` and what."""
    try:
        return msgspec.convert(tomllib.loads(text), Scenery)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {with_suggestion(str(error), Scenery)}") from error


def load(path: str | Path, *, what: str = "scene") -> Scenery:
    """Return the scene in a file. Raises ConfigError naming the file and what is wrong."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        text = data.decode("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what} {path}: {error}") from error
    return parse(text, where=f"{what} {path}")
