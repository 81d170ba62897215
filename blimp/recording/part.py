"""One file of a log, whole or cut: what is in it, found record by record and without its index.

A chunk counts if all of it is there.
"""

import json
import os
import struct
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple

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
from blimp.recording.log_file import AIRFRAME, FORMAT, LIBRARY, METADATA, NEXT, PLANT
from blimp.recording.tape import Session
from blimp.recording.topics import NS, Message, schemas

_RECORD_HEAD = 9  # opcode and length
_MAX_RECORD_BYTES = 64 * 2**20  # of ours: a chunk has 256 KiB
_CHUNK_TIMES = 16  # both of a chunk's, at its beginning


class NothingWhole(LogError):
    """A log was cut so early that nothing whole is in it."""


class ChunkAt(NamedTuple):
    """Where a whole chunk is in its file, and the times of its messages, ns."""

    offset: int
    length: int  # with opcode and length
    start_ns: int
    end_ns: int


class LogPart(Closing):
    """One open file. Raises LogError if it is none of ours, or nothing whole is in it.

    session: of the flight process that it records, with airframe. complete: it was closed, and has
    its index. before, after: names of the logs that this one continues, and that continue it; ""
    for none, and `after` of a cut one is not known.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.complete = False
        self.is_ours: bool | None = None  # None: it was cut before it says so
        self.chunks: list[ChunkAt] = []
        self.metadata: dict[str, str] = {}
        self.after = ""
        self.attachments: dict[str, bytes] = {}
        self._channels: dict[int, str] = {}
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

    @property
    def before(self) -> str:
        return self.metadata.get("before", "")

    @property
    def epoch_ns(self) -> int:
        """What was added to its times: 0 of the machine's clock is then, since the Unix epoch."""
        return int(self.session.epoch_s * NS)

    def messages(self, chunk: ChunkAt) -> list[Message]:
        """Return the messages of a chunk. Raises LogError if it is damaged."""
        try:
            self._file.seek(chunk.offset + _RECORD_HEAD)
            stored = Chunk.read(_stream(self._file.read(chunk.length - _RECORD_HEAD)))
            if stored.uncompressed_size > _MAX_RECORD_BYTES:
                raise ValueError(f"has {stored.uncompressed_size} bytes uncompressed")
            records = breakup_chunk(stored, validate_crc=True)
            self._channels |= {one.id: one.topic for one in records if isinstance(one, Channel)}
            return [
                Message(self._channels[one.channel_id], one.log_time, one.data)
                for one in records
                if isinstance(one, McapMessage)
            ]
        except Exception as error:  # zlib, zstandard and mcap have no common base
            raise LogError(
                f"log {self.path}: the chunk at byte {chunk.offset} is damaged ({error}); "
                "blimp log recover gives back the others"
            ) from error

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
                elif metadata.name == NEXT:
                    self.after = metadata.metadata.get("log", "")
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


def _stream(data: bytes) -> ReadDataStream:
    return ReadDataStream(BytesIO(data))
