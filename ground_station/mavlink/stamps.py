"""The times of signatures that were accepted: each counts once, also for the next process.

A file of records, which belongs to one key and one ship. It is added to and never waited for: what
the last half minute before a power cut has added may be missing.
"""

import contextlib
import hashlib
import logging
import os
import struct
import zlib
from pathlib import Path

Stream = tuple[int, int, int]  # link, system, component: as a frame names them

MOST = 32_768  # times that are kept one by one; of more, the older half are below a floor
MOST_STREAMS = 1024
MOST_BYTES = 64 * MOST  # of the file: then it is rewritten
_KEPT, _FLOOR, _SINCE = 0, 1, 2  # kinds of a record
_BODY = struct.Struct("<4BQ")  # kind, stream, time
_CHECK = struct.Struct("<I")  # CRC-32 of the body
RECORD_BYTES = _BODY.size + _CHECK.size

log = logging.getLogger("ground_station")


class Stamps:
    """Used in one thread. Close is idempotent.

    is_lost: what a process before has accepted is not known, or not all of it. Then nothing from
    before `began`, the time at which this one has begun, is accepted.
    """

    def __init__(self, path: Path, *, began: int) -> None:
        self._path = path
        self._since = -1
        self._floors: dict[Stream, int] = {}
        self._kept: set[tuple[int, Stream]] = set()
        self._file = -1
        self._bytes = 0
        self.is_lost = not self._read()
        if self.is_lost:
            self._since = max(self._since, began - 1)
        self._rewrite()

    @classmethod
    def of_key(cls, key: bytes, *, directory: Path, ship: str, began: int) -> "Stamps":
        name = hashlib.sha256(b"the name of " + key).hexdigest()[:12]
        return cls(directory / f"mavlink-{ship}-{name}.stamps", began=began)

    def has(self, stream: Stream, at: int) -> bool:
        """Whether a time was accepted before."""
        return (at, stream) in self._kept

    def is_below(self, stream: Stream, at: int) -> bool:
        """Whether a time is so old that it may have been accepted before."""
        return at <= max(self._since, self._floors.get(stream, -1))

    def add(self, stream: Stream, at: int) -> None:
        self._note(stream, at)
        if self._file >= 0:
            self._append(_record(_KEPT, stream, at))
        if (self._file < 0 and len(self._kept) % 64 == 0) or self._bytes > MOST_BYTES:
            self._rewrite()  # after a failure: there may be room again

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _note(self, stream: Stream, at: int) -> None:
        self._kept.add((at, stream))
        self._floors.setdefault(stream, -1)
        if len(self._floors) > MOST_STREAMS:
            del self._floors[min(self._floors, key=lambda one: self._floors[one])]
        if len(self._kept) > MOST:
            for old in sorted(self._kept)[: MOST // 2]:
                self._kept.remove(old)
                self._floors[old[1]] = max(old[0], self._floors.get(old[1], -1))

    def _read(self) -> bool:
        """Read what is there; return whether it is all."""
        try:
            data = self._path.read_bytes()
        except OSError:
            return False
        is_whole = len(data) % RECORD_BYTES == 0
        for at in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
            body, check = data[at : at + _BODY.size], data[at + _BODY.size : at + RECORD_BYTES]
            if check != _CHECK.pack(zlib.crc32(body)):
                is_whole = False
                continue
            kind, link, system, component, time = _BODY.unpack(body)
            stream = (link, system, component)
            if kind == _SINCE:
                self._since = max(time, self._since)
            elif kind == _FLOOR:
                self._floors[stream] = max(time, self._floors.get(stream, -1))
            else:
                self._note(stream, time)
        return is_whole

    def _rewrite(self) -> None:
        """Write what is needed, in one step. It waits for no disk, so a stop waits for none."""
        self.close()
        records = [_record(_SINCE, (0, 0, 0), max(0, self._since))]
        records += [_record(_FLOOR, stream, at) for stream, at in self._floors.items() if at >= 0]
        records += [_record(_KEPT, stream, at) for at, stream in sorted(self._kept)]
        draft = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
            self._file = os.open(draft, flags | os.O_CLOEXEC, 0o600)
            self._bytes = 0
            self._append(b"".join(records))
            if self._file >= 0:
                os.replace(draft, self._path)
        except OSError as error:
            self._fail(error)

    def _append(self, data: bytes) -> None:
        try:
            written = os.write(self._file, data)
            if written < len(data):
                raise OSError(f"{written} of {len(data)} bytes are written")
            self._bytes += written
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        """Go on in memory; have the next process see that something is missing."""
        log.error(
            "%s: %s: signatures are remembered until this process ends only", self._path, error
        )
        self.close()
        with contextlib.suppress(OSError):
            self._path.unlink()


def _record(kind: int, stream: Stream, at: int) -> bytes:
    body = _BODY.pack(kind, *stream, at)
    return body + _CHECK.pack(zlib.crc32(body))
