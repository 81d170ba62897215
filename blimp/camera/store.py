"""The ship's photographs on disk: each whole or not there, once a command, bounded by bytes.

A photograph is three files, of which its record is written last: without one there is none. The
record outlives the picture, so that a command that is delivered again gets the first photograph.
The camera's process writes; the worker reads, and deletes what the ground has. What a kill or a
power cut leaves between two steps is removed when the camera's process begins. Nothing here loads
an image.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from blimp.errors import PhotoError
from blimp.files import write_atomically
from blimp.link.paths import make_own_directory
from blimp.photo import (
    JPEG,
    MAX_PHOTO_BYTES,
    MAX_PREVIEW_BYTES,
    PHOTO,
    PREVIEW,
    RECORD,
    Photo,
    failing,
    name_of,
    path_of,
    read_photo,
    suffix_of,
)

# Chosen: 200 photographs of a 12 megapixel camera, on cards that begin at 8 GB.
MAX_BYTES = 1_000_000_000
# Left free: the flight's log and the broker's file are on the same card.
FREE_BYTES = 100_000_000
MAX_RECORDS = 5000  # of photographs that are gone; a message waits for less than a day
MAX_PIECE_BYTES = 262_144


class PhotoStore:
    """The photographs of one directory. One process adds; any may do the rest.

    max_bytes: of all pictures together; the oldest make room. free_bytes: of the disk, left to
    others.
    """

    def __init__(
        self, directory: Path, *, max_bytes: int = MAX_BYTES, free_bytes: int = FREE_BYTES
    ) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self.free_bytes = free_bytes

    # --- the camera's process -------------------------------------------------------------

    def open(self) -> None:
        """Make the directory, and remove what a kill left. Raises ConfigError, PhotoError."""
        make_own_directory(self.directory, what="photographs")
        with failing(f"photographs in {self.directory}"):
            records = {one.name: one for one in self._records()}
            for entry in list(os.scandir(self.directory)):
                name, dot, _ = entry.name.partition(".")
                known = records.get(name)
                is_draft = entry.name.startswith(".")
                is_gone = known is not None and (known.sent or known.removed)
                is_picture = entry.name.endswith(PHOTO)  # a preview, too
                if is_draft or (dot and is_picture and (known is None or is_gone)):
                    _unlink(Path(entry.path))

    def add(self, photo: Photo, *, jpeg: bytes, preview: bytes) -> Photo:
        """Keep a photograph; return its record, or that of the first one of the same command.

        Raises PhotoError if there is no room: then nothing is kept.
        """
        if (known := self.find(photo.id)) is not None:
            return known
        size = len(jpeg) + len(preview)
        if len(jpeg) > MAX_PHOTO_BYTES or len(preview) > MAX_PREVIEW_BYTES:
            raise PhotoError(f"a photograph of {size} bytes, the limit is {MAX_PHOTO_BYTES}")
        self._make_room(size)
        with failing(f"photograph {photo.name}"):
            for kind, data in (
                (PREVIEW, preview),
                (PHOTO, jpeg),
                (RECORD, msgspec.json.encode(photo)),
            ):
                write_atomically(path_of(self.directory, photo.name, kind), data, mode=0o640)
        return photo

    def _make_room(self, size: int) -> None:
        with failing(f"photographs in {self.directory}"):
            kept = sorted(self._pictures())  # by name: the oldest first
            total = sum(self._bytes_of(name) for name in kept)
            while True:
                free = shutil.disk_usage(self.directory).free - self.free_bytes
                if total + size <= self.max_bytes and size <= free:
                    break
                if not kept:
                    raise PhotoError(
                        f"no room for a photograph of {size / 1e6:.1f} MB in {self.directory}: "
                        f"{max(0, free) / 1e6:.1f} MB are free beside the {self.free_bytes / 1e6:g}"
                        f" that others need, and all may have {self.max_bytes / 1e6:g} MB"
                    )
                oldest = kept.pop(0)
                total -= self._bytes_of(oldest)
                self._end(oldest, removed=True)
            gone = sorted({one.stem for one in self.directory.glob(f"*{RECORD}")} - set(kept))
            for name in gone[: max(0, len(gone) - MAX_RECORDS)]:
                _unlink(path_of(self.directory, name, RECORD))

    # --- the worker, too ------------------------------------------------------------------

    def find(self, id: str) -> Photo | None:
        """Return the record of the photograph that command `id` took, None for none."""
        ending = suffix_of(id) + RECORD
        with failing(f"photographs in {self.directory}"):
            for name in self._names(ending):
                found = self._record(name.removesuffix(RECORD))
                if found is not None and found.id == id:
                    return found
        return None

    def photos(self, most: int, *, before: str = "") -> list[Photo]:
        """Return the newest photographs that are here, the newest first, `most` of them.

        before: only those older than the one of this name.
        """
        with failing(f"photographs in {self.directory}"):
            names = sorted(self._pictures(), reverse=True)
            names = [name for name in names if not before or name < before][:most]
            found = (self._record(name) for name in names)
            return [one for one in found if one is not None]

    def read(self, name: object, offset: int, size: int, *, preview: bool) -> bytes:
        """Return a piece of a picture, empty at its end. Raises PhotoError if it is not here."""
        path = path_of(self.directory, name, PREVIEW if preview else PHOTO)
        if not (0 <= offset <= MAX_PHOTO_BYTES and 0 < size <= MAX_PIECE_BYTES):
            raise PhotoError(f"{size} bytes from {offset}: at most {MAX_PIECE_BYTES} at once")
        with failing(f"photograph {name}"):
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                return os.pread(file, size, offset)
            finally:
                os.close(file)

    def confirm(self, name: object, sha256: object) -> None:
        """Delete a picture that the ground has, by its hash; harmless to repeat."""
        path_of(self.directory, name, RECORD)
        found = self._record(str(name))
        if found is None or found.sha256 != sha256:
            raise PhotoError(f"{name}: no photograph with the hash {sha256!r:.70}")
        with failing(f"photograph {name}"):
            self._end(found.name, sent=True)

    # --- files ----------------------------------------------------------------------------

    def _end(self, name: str, *, sent: bool = False, removed: bool = False) -> None:
        """Delete the pictures of a photograph; its record says why, first."""
        found = self._record(name)
        if found is not None and not found.sent:
            ended = msgspec.structs.replace(found, sent=sent, removed=removed and not sent)
            data = msgspec.json.encode(ended)
            with contextlib.suppress(OSError):  # a full disk must still become emptier
                write_atomically(path_of(self.directory, name, RECORD), data)
        for kind in (PHOTO, PREVIEW):
            _unlink(path_of(self.directory, name, kind))

    def _pictures(self) -> set[str]:
        """Return the names of the photographs that are here."""
        records = {name.removesuffix(RECORD) for name in self._names(RECORD)}
        pictures = {name.removesuffix(PHOTO) for name in self._names(PHOTO)}
        return records & pictures

    def _names(self, ending: str) -> list[str]:
        if not self.directory.is_dir():
            return []
        names = os.listdir(self.directory)
        return [name for name in names if name.endswith(ending) and not name.startswith(".")]

    def _bytes_of(self, name: str) -> int:
        size = 0
        for kind in (PHOTO, PREVIEW):
            with contextlib.suppress(FileNotFoundError):  # the ground has just confirmed it
                size += path_of(self.directory, name, kind).stat().st_size
        return size

    def _records(self) -> Iterator[Photo]:
        for name in self._names(RECORD):
            if (found := self._record(name.removesuffix(RECORD))) is not None:
                yield found

    def _record(self, name: str) -> Photo | None:
        """Return a record; None for one that is gone, or damaged on the disk."""
        try:
            return read_photo(path_of(self.directory, name, RECORD).read_bytes())
        except (FileNotFoundError, PhotoError):
            return None


def record_of(
    *, id: str, taken_s: float, size: tuple[int, int], jpeg: bytes, preview: bytes
) -> Photo:
    """Return the record of a new photograph, with what is known of its files alone."""
    if not (jpeg.startswith(JPEG) and preview.startswith(JPEG)):
        raise PhotoError("the camera's picture is no JPEG")
    return Photo(
        name=name_of(id, taken_s), id=id, taken_s=taken_s, width=size[0], height=size[1],
        bytes=len(jpeg), sha256=hashlib.sha256(jpeg).hexdigest(),
        preview_bytes=len(preview), preview_sha256=hashlib.sha256(preview).hexdigest(),
    )  # fmt: skip


def _unlink(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
