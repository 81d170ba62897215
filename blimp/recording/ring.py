"""A ring of records in shared memory, from the flight process to its recorder.

One file in the runtime directory, which is on tmpfs on board, mapped by both: to write is to copy
bytes, with no system call that could wait. If the ring is full the record is dropped and counted.
The reader takes what it has stored for good off the ring, so that whichever process is killed, what
the ring holds is not lost: the next reader goes on where the last one stored.

    header: magic, size, boot id, head, tail, dropped; then what `keep` keeps
    record: length of payload, kind, CRC-32 of kind and payload, payload, padded to 8 bytes

`head` and `tail` count bytes and never go back; one process writes each. The checksum shows a
record of which the other processor sees `head` but not yet all bytes.
"""

import mmap
import os
import struct
import zlib
from pathlib import Path
from uuid import UUID

from blimp.closing import Closing
from blimp.errors import ConfigError

SIZE = 2**20  # 14 s of flight: longer than a card takes for its slowest write
_MAGIC = b"BLMPRNG1"
_KEPT = 64  # where `keep` keeps
_HEADER = 65_536
_HEAD, _TAIL, _DROPPED = 4, 5, 6  # 8-byte words of the header
_FRAME = struct.Struct("<III")  # length of the payload, kind, checksum


class Ring(Closing):
    """The ring at `path`; made if it is missing, or if it is of another boot of this machine.

    Raises ConfigError if that fails. One process may `write`, one other
    `read` and `release`.
    """

    def __init__(self, path: Path) -> None:
        boot = UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, _HEADER + SIZE)  # else a full tmpfs is a SIGBUS
                self._memory = mmap.mmap(descriptor, _HEADER + SIZE)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ConfigError(f"ring {path}: {error.strerror}") from error
        identity = _MAGIC + struct.pack("<Q", SIZE) + boot
        found = self._memory[: len(identity)]
        if found != identity:
            # A new file is zero: leave it so, for the other process may be writing to it already.
            if any(one not in (0, ours) for one, ours in zip(found, identity, strict=True)):
                self._memory[:_KEPT] = bytes(_KEPT)
                self._memory[_KEPT : _KEPT + _FRAME.size] = bytes(_FRAME.size)
            self._memory[: len(identity)] = identity
        # Of 8 bytes each, which a processor writes in one step.
        self._words = memoryview(self._memory)[:_KEPT].cast("Q")
        self._ahead = self._words[_TAIL]

    @property
    def dropped(self) -> int:
        """How many records found no room since the ring was made."""
        return self._words[_DROPPED]

    def write(self, kind: int, payload: bytes) -> bool:
        """Add a record. Never waits: without room it is dropped, counted, and False returned."""
        words = self._words
        head, length = words[_HEAD], _framed(len(payload))
        if length > SIZE - (head - words[_TAIL]):
            words[_DROPPED] += 1
            return False
        frame = _FRAME.pack(len(payload), kind, zlib.crc32(payload, kind))
        at = head % SIZE
        data = frame + payload
        if at + len(data) <= SIZE:
            self._memory[_HEADER + at : _HEADER + at + len(data)] = data
        else:
            room = SIZE - at
            self._memory[_HEADER + at :] = data[:room]
            self._memory[_HEADER : _HEADER + len(data) - room] = data[room:]
        words[_HEAD] = head + length
        return True

    def keep(self, payload: bytes) -> bool:
        """Keep `payload` beside the records, for every reader to come; False if it is too long."""
        frame = _FRAME.pack(len(payload), 0, zlib.crc32(payload))
        if _KEPT + len(frame) + len(payload) > _HEADER:
            return False
        self._memory[_KEPT : _KEPT + len(frame) + len(payload)] = frame + payload
        return True

    def kept(self) -> bytes:
        """Return what was kept last, b"" if nothing whole is there."""
        start = _KEPT + _FRAME.size
        length, _, checksum = _FRAME.unpack(self._memory[_KEPT:start])
        payload = self._memory[start : min(start + length, _HEADER)]
        return payload if zlib.crc32(payload) == checksum else b""

    def read(self) -> tuple[int, bytes] | None:
        """Return kind and payload of the next record, None if there is none yet.

        It stays in the ring until `release`.
        """
        head = self._words[_HEAD]
        if head <= self._ahead:
            return None
        length, kind, checksum = _FRAME.unpack(self._copy(self._ahead, _FRAME.size))
        if length <= SIZE and _framed(length) <= head - self._ahead:
            payload = self._copy(self._ahead + _FRAME.size, length)
            if zlib.crc32(payload, kind) == checksum:
                self._ahead += _framed(length)
                return kind, payload
        return None

    @property
    def waits(self) -> bool:
        """Whether something is in the ring that `read` has not returned."""
        return self._words[_HEAD] > self._ahead

    @property
    def held(self) -> int:
        """Bytes of the records that `read` has returned, and that still take room."""
        return self._ahead - self._words[_TAIL]

    def release(self) -> None:
        """Give the room of all records that `read` has returned to the writer."""
        self._words[_TAIL] = self._ahead

    def skip(self) -> None:
        """Drop all that waits: it cannot be read."""
        self._ahead = self._words[_HEAD]
        self.release()

    def _copy(self, position: int, length: int) -> bytes:
        at = position % SIZE
        first = self._memory[_HEADER + at : _HEADER + min(SIZE, at + length)]
        return first + self._memory[_HEADER : _HEADER + length - len(first)]

    def close(self) -> None:
        self._words.release()
        self._memory.close()


def _framed(length: int) -> int:
    """Return the room that a payload of `length` bytes takes."""
    return (_FRAME.size + length + 7) & ~7
