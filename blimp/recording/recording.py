"""Reads logs, whole ones and cut ones: `open_recording(path)`.

A log is scanned once, record by record, without its index: what is there of a cut one is found in
the same way. A chunk counts if all of it is there.
"""

import bisect
import json
import os
import struct
from collections import Counter
from collections.abc import Collection, Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from blimp.closing import Closing
from blimp.errors import LogError
from blimp.recording.container import (
    MCAP0_MAGIC,
    Attachment,
    Channel,
    Chunk,
    Header,
    McapError,
    McapMessage,
    Metadata,
    Opcode,
    ReadDataStream,
    breakup_chunk,
)  # fmt: skip
from blimp.recording.log_file import AIRFRAME, FORMAT, LIBRARY, METADATA, PLANT
from blimp.recording.tape import Session
from blimp.recording.topics import NS, Message, schemas
from blimp.types import Progress, Snapshot, unseen

_RECORD_HEAD = 9  # opcode and length
_MAX_RECORD_BYTES = 64 * 2**20  # of ours: a chunk has 256 KiB
QUIET = ("ping", "status", "sensor")  # they move nothing
_CHUNK_TIMES = 16  # both of a chunk's, at its beginning


class NothingWhole(LogError):
    """A log was cut so early that nothing whole is in it."""


class LogInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What `blimp log info` tells. complete: the log was closed, and has its index.

    started: UTC, ISO 8601. duration_s: from the first message to the last. topics: their messages.
    """

    path: str
    vehicle: str
    simulated: bool
    started: str
    duration_s: float
    complete: bool
    chunks: int
    topics: dict[str, int]


class Entry(NamedTuple):
    """One message. t_s: since the recording's first message. data: its JSON as Python values."""

    topic: str
    t_s: float
    data: dict[str, Any]


class ChunkAt(NamedTuple):
    """Where a whole chunk is in its file, and the times of its messages, ns."""

    offset: int
    length: int  # with opcode and length
    start_ns: int
    end_ns: int


class Recording(Closing):
    """An open log. Raises LogError if it is none of ours, or nothing whole is in it.

    session: of the flight process that it records, with airframe. chunks: all whole ones.
    progress: is called with the share of the log up to the chunk that is read, 0 to 1.
    """

    def __init__(self, path: Path, *, progress: Progress = unseen) -> None:
        self.path = path
        self._progress = progress
        self.complete = False
        self.is_ours: bool | None = None  # None: it was cut before it says so
        self.chunks: list[ChunkAt] = []
        self.metadata: dict[str, str] = {}
        self.attachments: dict[str, bytes] = {}
        self._channels: dict[int, str] = {}
        self._last: tuple[int, list[Message]] = (-1, [])
        try:
            self._file: IO[bytes] = path.open("rb")
        except OSError as error:
            raise LogError(f"log {path}: {error.strerror}") from error
        try:
            self.size = os.fstat(self._file.fileno()).st_size
            self.whole_bytes = self._scan()
            self.session = self._session()
            # They stand in the first chunk as well, which may be damaged.
            self._channels = dict(enumerate(schemas(self.session), start=1))
        except BaseException:
            self._file.close()
            raise
        self.start_ns = min((chunk.start_ns for chunk in self.chunks), default=0)
        self.end_ns = max((chunk.end_ns for chunk in self.chunks), default=0)
        self._starts = [chunk.start_ns for chunk in self.chunks]

    # --- what is in it --------------------------------------------------------------------

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) / NS

    def info(self) -> LogInfo:
        """Return what is in it; counts every message."""
        counts: Counter[str] = Counter()
        for number in range(len(self.chunks)):
            counts.update(topic for topic, _, _ in self.messages(number))
        return LogInfo(
            path=str(self.path),
            vehicle=self.session.vehicle,
            simulated=self.session.simulated,
            started=self.metadata.get("started", ""),
            duration_s=round(self.duration_s, 3),
            complete=self.complete,
            chunks=len(self.chunks),
            topics=dict(sorted(counts.items())),
        )

    def entries(
        self, topics: Collection[str] | None = None, *, from_s: float = 0.0
    ) -> Iterator[Entry]:
        """Yield the messages from `from_s` on, in the order they were written."""
        from_ns = self.start_ns + int(from_s * NS)
        for number, chunk in enumerate(self.chunks):
            if chunk.end_ns < from_ns:
                continue
            for topic, time_ns, data in self.messages(number):
                if time_ns >= from_ns and (topics is None or topic in topics):
                    yield Entry(topic, (time_ns - self.start_ns) / NS, msgspec.json.decode(data))

    def snapshots(self, *, from_s: float = 0.0) -> Iterator[tuple[float, Snapshot]]:
        """Yield every snapshot that the ground was sent, with its time since the first message."""
        for entry in self.entries(("/status",), from_s=from_s):
            yield entry.t_s, snapshot_of(entry.data)

    def at(self, t_s: float) -> Snapshot | None:
        """Return the newest snapshot at `t_s`, None before the first."""
        status = self.status_at(t_s)
        return None if status is None else snapshot_of(status.data)

    def status_at(self, t_s: float) -> Entry | None:
        """Return the newest /status at `t_s`, None before the first."""
        time_ns = self.start_ns + int(t_s * NS)
        for number in reversed(range(bisect.bisect_right(self._starts, time_ns))):
            for topic, message_ns, data in reversed(self.messages(number)):
                if topic == "/status" and message_ns <= time_ns:
                    at_s = (message_ns - self.start_ns) / NS
                    return Entry(topic, at_s, msgspec.json.decode(data))
        return None

    def messages(self, number: int) -> list[Message]:
        """Return the messages of a chunk. Raises LogError if it is damaged."""
        if self._last[0] == number:
            return self._last[1]
        chunk = self.chunks[number]
        self._progress(number / len(self.chunks))
        try:
            self._file.seek(chunk.offset + _RECORD_HEAD)
            stored = Chunk.read(_stream(self._file.read(chunk.length - _RECORD_HEAD)))
            if stored.uncompressed_size > _MAX_RECORD_BYTES:
                raise ValueError(f"has {stored.uncompressed_size} bytes uncompressed")
            records = breakup_chunk(stored, validate_crc=True)
            self._channels |= {one.id: one.topic for one in records if isinstance(one, Channel)}
            found = [
                Message(self._channels[one.channel_id], one.log_time, one.data)
                for one in records
                if isinstance(one, McapMessage)
            ]
        except Exception as error:  # zlib, zstandard and mcap have no common base
            raise LogError(
                f"log {self.path}: the chunk at byte {chunk.offset} is damaged ({error}); "
                "blimp log recover gives back the others"
            ) from error
        self._last = number, found
        return found

    # --- how it is found --------------------------------------------------------------------

    def _scan(self) -> int:
        """Find every whole record; return where the last one ends."""
        file = self._file
        magic = file.read(len(MCAP0_MAGIC))
        if not MCAP0_MAGIC.startswith(magic):
            raise LogError(f"log {self.path}: is no MCAP file")
        position = len(MCAP0_MAGIC)
        while len(head := file.read(_RECORD_HEAD)) == _RECORD_HEAD:
            opcode, length = head[0], int.from_bytes(head[1:], "little")
            end = position + _RECORD_HEAD + length
            if end > self.size or length > _MAX_RECORD_BYTES:
                break
            if opcode == Opcode.FOOTER:
                file.seek(end)
                self.complete = file.read(len(MCAP0_MAGIC)) == MCAP0_MAGIC
                return self.size if self.complete else end
            if not self._note(opcode, position, length):
                break
            file.seek(end)
            position = end
        return position

    def _note(self, opcode: int, position: int, length: int) -> bool:
        """Keep what a record says; False if it cannot be one of ours."""
        if not Opcode.HEADER <= opcode <= Opcode.DATA_END:
            return False
        if opcode == Opcode.CHUNK:
            times = self._file.read(_CHUNK_TIMES)
            start, end = (int.from_bytes(times[i : i + 8], "little") for i in (0, 8))
            self.chunks.append(ChunkAt(position, _RECORD_HEAD + length, start, end))
        if opcode not in (Opcode.HEADER, Opcode.METADATA, Opcode.ATTACHMENT):
            return True
        stream = _stream(self._file.read(length))
        try:
            if opcode == Opcode.HEADER:
                self.is_ours = Header.read(stream).library.startswith(LIBRARY + " ")
            elif opcode == Opcode.METADATA:
                metadata = Metadata.read(stream)
                if metadata.name == METADATA:
                    self.metadata = metadata.metadata
            else:
                attachment = Attachment.read(stream)
                self.attachments[attachment.name] = attachment.data
        except (McapError, struct.error, ValueError):
            return False
        return True

    def _session(self) -> Session:
        if not self.metadata and self.is_ours is not False:
            raise NothingWhole(f"log {self.path}: was cut before anything whole was in it")
        if not self.metadata:
            raise LogError(f"log {self.path}: is an MCAP file, but of another program")
        version = self.metadata.get("format")
        if version != FORMAT:
            writer = self.metadata.get("blimp", "unknown")[:40]
            raise LogError(
                f"log {self.path}: its format is {str(version)[:20]!r}, this program reads "
                f"{FORMAT}; read it with the blimp that wrote it, or a newer one: {writer}"
            )
        try:
            session = msgspec.json.decode(self.metadata["session"], type=Session)
            parts = {
                name: json.loads(self.attachments[name])
                for name in (AIRFRAME, PLANT)
                if name in self.attachments
            }
        except (KeyError, ValueError, msgspec.MsgspecError) as error:
            raise LogError(f"log {self.path}: what it says of its flight: {error}") from error
        return msgspec.structs.replace(
            session, airframe=parts.get(AIRFRAME, {}), plant=parts.get(PLANT)
        )

    def close(self) -> None:
        self._file.close()


def open_recording(path: Path | str, *, progress: Progress = unseen) -> Recording:
    """Open a log. Raises LogError if it cannot be read, or is none of this program's."""
    return Recording(Path(path), progress=progress)


def snapshot_of(fields: dict[str, Any]) -> Snapshot:
    """Return the snapshot that a /status message holds."""
    return msgspec.convert({"battery_v": None, **fields}, Snapshot)


def mark_of(entry: Entry) -> tuple[str, bool] | None:
    """Return the words that mark a message over time, and whether it is a fault; None for none."""
    data = entry.data
    if entry.topic == "/command" and data["name"] not in QUIET:
        return str(data["name"]), False
    if entry.topic == "/fault":
        state = "" if data["active"] else " works"
        return f"{data['device']}{state}", True
    if entry.topic == "/event" and data["name"] == "failsafe":
        return str(data["message"])[:40], True
    return None


def _stream(data: bytes) -> ReadDataStream:
    return ReadDataStream(BytesIO(data))
