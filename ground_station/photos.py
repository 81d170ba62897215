"""Photographs on their way to the ground: fetched in pieces, one at a time, behind every command.

What is begun goes on where it ended, whatever was killed or cut. A photograph is here when its hash
is right and its file has its name. Then the ship deletes it. Nothing here looks into a
picture: it is bytes of the size and hash that the ship's signed record says, with a limit.
"""

import contextlib
import hashlib
import os
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import msgspec

from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import LeaseLost, LinkError, PhotoError
from blimp.files import write_atomically
from blimp.link.paths import make_own_directory
from blimp.photo import (
    JPEG,
    PHOTO,
    PREVIEW,
    RECORD,
    Photo,
    failing,
    path_of,
    read_photo,
    read_photos,
)
from blimp.system import OPEN_FLAGS, fcntl, read_at, sync_directory, write_at
from blimp.tasks.client import (
    VehicleClient,
    photo_channel,
    photo_place,
    photo_turn,
    user_name,
)

PART = ".part"
LISTED = 4  # records in one answer: 2 kB, on a slow link as long as a piece
# A ground that was killed keeps others from fetching for as long as its turn lasts. A turn that is
# too short costs a wait for the next one, where its renewals are late.
LEAST_TURN_S, MOST_TURN_S = 3.0, 10.0
# A renewal is due after a third of a turn. TCP sends again after 3, 9, 21 and 45 round trips (RFC
# 6298, with a variance of half of one), so three losses in a row end none.
TURN_ROUND_TRIPS = 50
TURN_WAIT_S = 60.0  # a photograph of 8 MB at 1 Mbit/s
LEAST_BYTES, MOST_BYTES = 1024, 131_072  # of a piece
LEAST_WAIT_S = 2.0  # for a piece before it is asked for again; longer, if pieces take longer
TRIES = 5  # for one piece; then the ship does not answer
# The figure of the issue: a command beside photographs takes at most 1.2 times as long as without.
SHARE = 0.2
LEAST_BUDGET_S = 0.01  # for a piece; on a link that fast nobody notices
PROBE_EVERY = 8  # pieces; a small one shows how long a round trip takes with nothing before it


def turn_s(round_trip_s: float) -> float:
    """Return how long a turn on such a link lasts unless it is renewed, in seconds."""
    return min(MOST_TURN_S, max(LEAST_TURN_S, TURN_ROUND_TRIPS * round_trip_s))


class Pace:
    """How much is asked for at once: what the link carries while a command hardly notices it.

    A command is several round trips, and each may wait for a piece that is on the wire. So a piece
    may be there for `SHARE` of a round trip in which nothing is lost, which small pieces show. By
    the slower ones, of a link that loses 5 %, commands took 1.65 times as long.
    """

    def __init__(self) -> None:
        self.size = LEAST_BYTES
        self._probes: deque[float] = deque(maxlen=32)
        self._took: deque[tuple[int, float]] = deque(maxlen=16)
        self._count = 0

    def next_size(self) -> int:
        self._count += 1
        return LEAST_BYTES if self._count % PROBE_EVERY == 1 else self.size

    def took(self, size: int, seconds: float) -> None:
        """Learn from a piece that came `seconds` after it was asked for."""
        if size <= LEAST_BYTES:
            self._probes.append(seconds)
        else:
            self._took.append((size, seconds))
        if not self._probes:
            return
        least_s = min(self._probes)
        budget_s = max(LEAST_BUDGET_S, SHARE * least_s)
        if not self._took:
            self.size = 2 * LEAST_BYTES
            return
        # The median: most come without a loss; what came as fast as a probe by chance is no rate.
        rates = sorted(
            (size - LEAST_BYTES) / max(1e-4, took - least_s) for size, took in self._took
        )
        wanted = budget_s * rates[len(rates) // 2]
        self.size = int(max(LEAST_BYTES, min(MOST_BYTES, wanted, 2 * self.size)))

    @property
    def wait_s(self) -> float:
        """For how long a piece is waited for."""
        return max(LEAST_WAIT_S, 4.0 * max((took for _, took in self._took), default=0.0))


class PhotoFiles:
    """One ship's photographs on the ground. directory: of the ship; made with the first."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def photos(self) -> list[Photo]:
        """Return those that are here, the newest first."""
        if not self.directory.is_dir():
            return []
        names = sorted((one.stem for one in self.directory.glob(f"*{RECORD}")), reverse=True)
        found = (self.find(name) for name in names)
        return [one for one in found if one is not None]

    def find(self, name: object) -> Photo | None:
        """Return the record of one whose preview or picture is here. Raises PhotoError."""
        try:
            return read_photo(path_of(self.directory, name, RECORD).read_bytes())
        except (FileNotFoundError, PhotoError):
            path_of(self.directory, name, RECORD)
            return None

    def path(self, name: object, *, preview: bool = False) -> Path | None:
        """Return the file of a picture that is here, whole. Raises PhotoError for no name."""
        path = path_of(self.directory, name, PREVIEW if preview else PHOTO)
        return path if path.is_file() else None

    @contextlib.contextmanager
    def part(self, photo: Photo, *, preview: bool) -> Iterator["PartialFile"]:
        """Open what is here of a picture that is not whole. Raises PhotoError, ConfigError."""
        make_own_directory(self.directory, what="photographs")
        path = path_of(self.directory, photo.name, PREVIEW if preview else PHOTO)
        with failing(f"photograph {photo.name}"):
            flags = os.O_RDWR | os.O_CREAT | OPEN_FLAGS
            file = os.open(path.with_name(path.name + PART), flags, 0o600)
            try:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise PhotoError(f"{photo.name} is being fetched by another program") from None
                yield PartialFile(file, path, photo, photo.digest(preview=preview))
            finally:
                os.close(file)


class PartialFile:
    """A picture that is being fetched: its first bytes, in order."""

    def __init__(self, file: int, path: Path, photo: Photo, digest: str) -> None:
        self._file, self._path, self._photo, self._digest = file, path, photo, digest
        self._hash = hashlib.sha256()
        self.size = 0
        while block := read_at(file, MOST_BYTES, self.size):
            self._hash.update(block)
            self.size += len(block)

    def add(self, data: bytes) -> None:
        at = self.size
        while at < self.size + len(data):
            at += write_at(self._file, data[at - self.size :], at)
        self._hash.update(data)
        self.size = at

    def clear(self) -> None:
        os.ftruncate(self._file, 0)
        self._hash, self.size = hashlib.sha256(), 0

    def finish(self) -> bool:
        """Give the picture its name, if it is what the record says; else begin again."""
        if self._hash.hexdigest() != self._digest or read_at(self._file, 3, 0) != JPEG:
            self.clear()
            return False
        os.fsync(self._file)
        record = path_of(self._path.parent, self._photo.name, RECORD)
        write_atomically(record, msgspec.json.encode(self._photo))
        os.replace(self._path.with_name(self._path.name + PART), self._path)
        sync_directory(self._path.parent)
        return True


class PhotoFetcher(Closing):
    """The way of a ship's photographs to this ground. For one thread; a context manager.

    is_wanted: asked between two pieces; where it says no, what is begun stays as it is.
    Methods raise LinkError if the broker or the ship does not answer, PhotoError for what cannot be
    fetched or kept, LeaseError if another ground fetches from this ship.
    """

    def __init__(
        self, client: VehicleClient, files: PhotoFiles, *, clock: Clock,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self.files = files
        self.pace = Pace()
        self._client = client
        self._clock = clock
        self._is_wanted = is_wanted
        self._nonce = secrets.token_hex(8)
        self._holder = f"{user_name()}#{self._nonce}"
        self._heard: Any = None
        self._number = 0  # of the newest question

    def __enter__(self) -> Self:
        return self

    def waiting(self) -> list[Photo]:
        """Return the photographs that the ship has, the newest first."""
        found: list[Photo] = []
        while True:
            arguments = {"before": found[-1].name if found else "", "most": LISTED}
            data = self._answer("photo_list", arguments)
            self._client.check_answer(data, place=self._place())
            page = read_photos(data)[:LISTED]
            found += page
            is_older = all(a.name > b.name for a, b in pairwise(found))
            if len(page) < LISTED or not is_older:
                return found

    def fetch(
        self,
        photo: Photo,
        *,
        preview: bool = False,
        on_bytes: Callable[[int], object] = lambda _: None,
    ) -> Path | None:
        """Return the file of a picture, which is here whole then; None if it is no more wanted.

        Of a photograph, its preview is fetched first. At last the ship deletes it. A turn that is
        lost is taken again: another ground may come first.
        """
        from blimp.queue.resources import ResourcePool

        vehicle = self._client.vehicle
        pool = ResourcePool(self._client.server(), photo_turn(vehicle), clock=self._clock)
        asked_s = self._clock.now_s()
        pool.add(vehicle)
        pool.ttl_s = turn_s(self._clock.now_s() - asked_s)
        path = None
        for is_preview in (True,) if preview else (True, False):
            path = self.files.path(photo.name, preview=is_preview)
            while path is None:
                with contextlib.suppress(LeaseLost), pool.lease(self._holder, TURN_WAIT_S) as turn:
                    path = self._fetched(photo, is_preview, turn.check, on_bytes)
                    if path is None:
                        return None
        if not preview:
            self.confirm(photo)
        return path

    def confirm(self, photo: Photo) -> None:
        """Have the ship delete a photograph that is here."""
        self._answer("photo_confirm", {"name": photo.name, "sha256": photo.sha256})

    def _fetched(
        self, photo: Photo, preview: bool, check: Callable[[], None], on_bytes: Callable[[int], Any]
    ) -> Path | None:
        whole = photo.size(preview=preview)
        with self.files.part(photo, preview=preview) as part, failing(f"photograph {photo.name}"):
            if part.size > whole:
                part.clear()
            is_again = part.size > 0
            while True:
                while part.size < whole:
                    if not self._is_wanted():
                        return None
                    check()
                    size = min(self.pace.next_size(), whole - part.size)
                    part.add(self._piece(photo.name, part.size, size, preview))
                    on_bytes(part.size)
                if part.finish():
                    return self.files.path(photo.name, preview=preview)
                if not is_again:
                    raise PhotoError(f"{photo.name} is not what its record says: {whole} bytes")
                is_again = False  # what was here before may have been damaged

    def _piece(self, name: str, offset: int, size: int, preview: bool) -> bytes:
        arguments = {"name": name, "offset": offset, "size": size, "preview": preview}
        asked_s = self._clock.now_s()
        data = self._answer("photo_piece", arguments)
        if not 0 < len(data) <= size:
            raise PhotoError(f"{name}: {len(data)} bytes at {offset}, asked for {size}")
        if len(data) == size:
            self.pace.took(size, self._clock.now_s() - asked_s)
        return data

    def _answer(self, task: str, arguments: dict[str, Any]) -> bytes:
        """Return the ship's answer: asked until it comes, and nothing else meanwhile."""
        self._number += 1
        asked = arguments | {"to": self._nonce, "number": self._number}
        done, failed = b"%d" % self._number, b"-%d" % self._number
        for _ in range(TRIES):
            with self._linked():
                heard = self._subscribed()
                self._client.ask(task, asked)
                until_s = self._clock.now_s() + self.pace.wait_s
                while (left_s := until_s - self._clock.now_s()) > 0.0:
                    found = heard.get_message(timeout=left_s)
                    if found is None or found["type"] != "message":
                        continue
                    head, _, data = found["data"].partition(b" ")
                    if head == failed:
                        raise PhotoError(f"the ship: {data.decode(errors='replace')[:200]}")
                    if head == done:  # else an older one came twice
                        return bytes(data)
        raise LinkError(f"{self._client.vehicle} does not answer {task}: asked {TRIES} times")

    def _place(self) -> str:
        return photo_place(self._client.vehicle, self._nonce, self._number)

    @contextlib.contextmanager
    def _linked(self) -> Iterator[None]:
        try:
            with self._client.server().link():
                yield
        except LinkError:
            self.close()  # another broker may be in use by the next time
            raise

    def _subscribed(self) -> Any:
        if self._heard is None:
            heard = self._client.server().client.pubsub(ignore_subscribe_messages=True)
            heard.subscribe(photo_channel(self._client.vehicle, self._nonce))
            self._heard = heard
        return self._heard

    def close(self) -> None:
        """Close the connection on which pieces come. Idempotent."""
        if self._heard is not None:
            self._heard.close()
            self._heard = None
