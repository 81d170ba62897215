"""What a simulated camera can see beside the ship's own room: a TOML file.

    [room]                    # without it the floor has no end, under a sky
    north_m = [-6.0, 6.0]
    east_m = [-4.0, 4.0]
    height_m = 4.0

    [[tag]]                   # the same rows as in a tag map
    id = 7
    size_m = 0.2              # of the black square
    north_m = 1.0
    east_m = 0.5

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
from blimp.suggest import with_suggestion

MAX_THINGS = 1000  # of one kind
MAX_BYTES = 60_000  # as MessagePack: it goes to the camera's process in one frame of a socket
Metres = Annotated[float, Meta(ge=-1000.0, le=1000.0)]
Size = Annotated[float, Meta(gt=0.0, le=100.0)]
Degrees = Annotated[float, Meta(ge=-360.0, le=360.0)]
Span = tuple[Metres, Metres]
COLOURS = {
    "black": (25, 25, 25), "blue": (30, 60, 200), "green": (30, 160, 60), "grey": (128, 128, 128),
    "orange": (240, 120, 20), "pink": (240, 90, 160), "purple": (130, 50, 170),
    "red": (210, 30, 40), "silver": (190, 195, 200), "white": (235, 235, 235),
    "yellow": (240, 220, 30),
}  # fmt: skip
Colour = Literal[
    "black", "blue", "green", "grey", "orange", "pink", "purple", "red", "silver", "white", "yellow"
]


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


class PrintedTag(_Thing, frozen=True, kw_only=True):
    """An AprilTag, with the white margin of its family around it.

    size_m: between its corners. sigma_m: what a map says of its place; nothing here.
    """

    id: Annotated[int, Meta(ge=0)]
    family: str = "tag36h11"
    size_m: Size
    sigma_m: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0

    def __post_init__(self) -> None:
        count = FAMILIES.get(self.family)
        if count is None:
            raise ValueError(f"no tag family {self.family!r}: known are {', '.join(FAMILIES)}")
        if self.id >= count:
            raise ValueError(f"{self.family} has no tag {self.id}: they are 0 to {count - 1}")


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
    north_m: Span
    east_m: Span
    height_m: Size


class Scenery(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """light: of the lamps, over that of a hall with 500 lux. floor: seed of its pattern."""

    room: Walls | None = None
    floor: Annotated[int, Meta(ge=0, le=2**31)] = 1
    light: Annotated[float, Meta(ge=0.0, le=200.0)] = 1.0
    tag: Annotated[tuple[PrintedTag, ...], Meta(max_length=MAX_THINGS)] = ()
    balloon: Annotated[tuple[Balloon, ...], Meta(max_length=MAX_THINGS)] = ()
    gate: Annotated[tuple[GateFrame, ...], Meta(max_length=MAX_THINGS)] = ()
    ship: Annotated[tuple[OtherShip, ...], Meta(max_length=MAX_THINGS)] = ()


EMPTY = Scenery()
_HALL = Walls(north_m=(-6.0, 6.0), east_m=(-4.0, 4.0), height_m=4.5)


def hall() -> Scenery:
    """Return a hall of 12 x 8 m: tags of 20 cm in a grid of 1 m, three balloons and a gate."""
    grid = [(north, east) for north in range(-4, 5) for east in range(-3, 4)]
    return Scenery(
        room=_HALL,
        tag=tuple(
            PrintedTag(id=number, size_m=0.2, north_m=float(north), east_m=float(east))
            for number, (north, east) in enumerate(grid)
        ),
        balloon=(
            Balloon(north_m=2.5, east_m=1.5, altitude_m=1.6, diameter_m=0.4, colour="red"),
            Balloon(north_m=-2.0, east_m=2.0, altitude_m=2.0, diameter_m=0.4, colour="blue"),
            Balloon(north_m=1.0, east_m=-2.5, altitude_m=1.2, diameter_m=0.4, colour="yellow"),
        ),
        gate=(GateFrame(north_m=4.0, east_m=0.0, altitude_m=1.8, opening_m=1.6),),
    )


def of(airframe: Airframe) -> Scenery:
    """Return what a ship sees where nobody says what there is.

    The tags of its map in the hall, or the whole hall where it has no map, or there is no such
    file; nothing without a camera. Raises ConfigError for a map that cannot be read.
    """
    row = camera_of(airframe)
    if row is None:
        return EMPTY
    path = row.options.get("tags")
    if not path or not room_file(path).exists():
        return hall()
    scene = load(room_file(path))
    return msgspec.structs.replace(scene, room=scene.room or _HALL)


def parse(text: str, *, where: str) -> Scenery:
    """Return the scene that a TOML text describes. Raises ConfigError naming `where` and what."""
    try:
        scene = msgspec.convert(tomllib.loads(text), Scenery)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {with_suggestion(str(error), Scenery)}") from error
    size = len(msgspec.msgpack.encode(scene))
    if size > MAX_BYTES:
        raise ConfigError(f"{where}: it takes {size} bytes, the limit is {MAX_BYTES}")
    room = scene.room
    if room is not None and not (room.north_m[0] < 0.0 < room.north_m[1]):
        raise ConfigError(
            f"{where}: room.north_m {list(room.north_m)} must have the pad, 0, inside"
        )
    if room is not None and not (room.east_m[0] < 0.0 < room.east_m[1]):
        raise ConfigError(f"{where}: room.east_m {list(room.east_m)} must have the pad, 0, inside")
    return scene


def load(path: str | Path) -> Scenery:
    """Return the scene in a file. Raises ConfigError naming the file and what is wrong."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"scene {path}: {error}") from error
    return parse(text, where=f"scene {path}")
