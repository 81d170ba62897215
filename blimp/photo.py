"""A photograph as ship and ground know it: its record, its files, and what each side accepts."""

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from blimp.errors import PhotoError
from blimp.reading import ready

# Of one photograph. The largest of the cameras, 12 megapixels, makes 4 to 8 MB at quality 90.
MAX_PHOTO_BYTES = 32_000_000
MAX_PREVIEW_BYTES = 100_000
MAX_ABOUT = 1000  # letters of a ship's and a sender's name, and of a refusal
JPEG = b"\xff\xd8\xff"  # how each begins
RECORD, PHOTO, PREVIEW = ".json", ".jpg", ".preview.jpg"
# The time of the exposure (UTC) to a millisecond, so that names are in the order of time, and what
# the command's id hashes to: no id can be a path. An older program's time is to a second.
_NAME = re.compile(r"\d{8}T\d{6}(?:\d{3})?Z-[0-9a-f]{16}")

Triple = tuple[float, float, float]


@ready
class PhotoRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the camera is asked for, once an `id`, and what is known of the ship then.

    unix_s: the broker's time when the process' clock was `asked_s`. place: latitude, longitude
    (degrees) and altitude above the sea (m), None where nobody has said where the pad is.
    position_ned_m, attitude_rad (roll, pitch, yaw): None if they are not known or in doubt.
    """

    id: str
    ship: str
    unix_s: float
    asked_s: float
    place: Triple | None = None
    position_ned_m: Triple | None = None
    attitude_rad: Triple | None = None
    source: str = ""


@ready
class Photo(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a photograph. Where it lies, `NAME.jpg` and `NAME.preview.jpg` are whole.

    taken_s: seconds since the epoch, the middle of the exposure. sent: the ground has it, so the
    ship deleted it. removed: it made room for newer ones before the ground had it.
    """

    name: str
    id: Annotated[str, Meta(max_length=MAX_ABOUT)]
    taken_s: float
    width: int
    height: int
    bytes: Annotated[int, Meta(gt=0, le=MAX_PHOTO_BYTES)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    preview_bytes: Annotated[int, Meta(gt=0, le=MAX_PREVIEW_BYTES)]
    preview_sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    place: Triple | None = None
    position_ned_m: Triple | None = None
    attitude_rad: Triple | None = None
    sent: bool = False
    removed: bool = False

    def size(self, *, preview: bool) -> int:
        return self.preview_bytes if preview else self.bytes

    def digest(self, *, preview: bool) -> str:
        return self.preview_sha256 if preview else self.sha256


def name_of(id: str, taken_s: float) -> str:
    """Return the name of the files of the photograph that command `id` took."""
    milliseconds = int(1000.0 * (taken_s % 1.0))
    return time.strftime(f"%Y%m%dT%H%M%S{milliseconds:03}Z", time.gmtime(taken_s)) + suffix_of(id)


def suffix_of(id: str) -> str:
    """Return how the names of all files of command `id` end, before what kind they are."""
    return "-" + hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def path_of(directory: Path, name: object, kind: str) -> Path:
    """Return a photograph's file. Raises PhotoError for what is no name of one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PhotoError(f"{name!r:.60} is no photograph's name")
    return directory / (name + kind)


@contextlib.contextmanager
def failing(what: str) -> Iterator[None]:
    """Say what could not be done where the disk refuses it, as a PhotoError."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise  # of a link
    except OSError as error:
        raise PhotoError(f"{what}: {error.strerror or error}") from error


def read_photo(data: bytes) -> Photo:
    """Return a record that somebody else wrote. Raises PhotoError."""
    (found,) = _read(data, Photo, lambda photo: (photo,))
    return found


def read_photos(data: bytes) -> tuple[Photo, ...]:
    """Return the records of a ship's list. Raises PhotoError."""
    return _read(data, _Listed, lambda listed: listed.photos)


@ready
class _Listed(msgspec.Struct, frozen=True):
    photos: tuple[Photo, ...]


def _read(data: bytes, kind: Any, photos: Callable[[Any], tuple[Photo, ...]]) -> tuple[Photo, ...]:
    try:
        found = photos(msgspec.json.decode(data, type=kind))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise PhotoError(f"a photograph's record that cannot be read: {error}") from None
    for one in found:
        path_of(Path(), one.name, RECORD)
    return found
