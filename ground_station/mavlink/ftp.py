"""FILE_TRANSFER_PROTOCOL: the ship's recorded flights as files, read and never written.

The tree is `/logs/NAME.mcap`; `@MAV_LOG` is another name of `/logs`. A name is looked up among the
ship's logs and never joined to a path, so no other file of this machine is read. As in `logs.py`
the process runs beside the recorder, and a file is read only while the ship is disarmed.

Layout and numbers: https://mavlink.io/en/services/ftp.html
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from blimp.recording.directory import logs_of
from blimp.system import OPEN_FLAGS, read_at
from ground_station.mavlink.logs import LOOK_S
from ground_station.mavlink.peer import Peer
from ground_station.mavlink.stations import Station
from ground_station.mavlink.system import System
from ground_station.mavlink.wire import Message, message

HEADER = struct.Struct("<HBBBBBxI")  # sequence, session, opcode, size, of request, complete, offset
DATA_BYTES = 239
NONE, TERMINATE, RESET, LIST, OPEN, READ, CRC, BURST, ACK, NACK = 0, 1, 2, 3, 4, 5, 14, 15, 128, 129
WRITING = range(6, 14)  # from CreateFile to Rename
FAIL, BAD_SIZE, BAD_SESSION, NO_SESSION, END, UNKNOWN, PROTECTED, NOT_FOUND = (
    1,
    3,
    4,
    5,
    6,
    7,
    9,
    10,
)
BURST_PIECES = 64  # then the station asks for more: a UDP buffer holds them
CRC_BYTES = 2**20  # read at once, off the event loop
MAX_SESSIONS = 8  # of all stations together
IDLE_S = 30.0  # a session that is not read for so long makes room for another one
LOGS = "logs"
_FOLDERS = (LOGS, "@MAV_LOG")
_MOST_BYTES = 2**32 - 1  # an offset has 32 bits


class FtpError(Exception):
    """The request is answered with this error of MAVLink's."""

    def __init__(self, error: int) -> None:
        super().__init__(error)
        self.error = error


class Request(msgspec.Struct, frozen=True):
    """size: as it was sent, of `data` or of what is asked for."""

    peer: Any
    station: Station
    seq: int
    session: int
    opcode: int
    size: int
    offset: int
    data: bytes

    @property
    def path(self) -> tuple[str, ...]:
        """Return the names of a path, the root's first; "." and ".." are names as any other."""
        text = self.data.split(b"\0")[0].decode("ascii", "replace")
        return tuple(name for name in text.split("/") if name)


class Session(msgspec.Struct):
    """A log that a station reads. size: when it was opened; what is recorded later is not read.

    No file stays open between two requests, so that a lost station keeps none. burst: the newest
    request of one, which ends those before it.
    """

    path: Path
    size: int
    used_s: float
    burst: Request | None = None


class Ftp:
    """The files of one ship."""

    def __init__(self, system: System, directory: Path) -> None:
        self._system = system
        self._directory = directory
        self._sessions: dict[tuple[Station, int], Session] = {}
        self._summing: asyncio.Task[Any] | None = None
        self._known: dict[str, tuple[Path, int]] = {}
        self._looked_s = 0.0
        self._does: dict[int, Callable[[Request], object]] = {
            NONE: self._answer, TERMINATE: self._terminate, RESET: self._reset, LIST: self._list,
            OPEN: self._open, READ: self._read, CRC: self._crc, BURST: self._burst,
        }  # fmt: skip
        self.hears: dict[str, Callable[[Peer, Station, Message], object]] = {
            "FILE_TRANSFER_PROTOCOL": self._hear
        }

    # --- requests -------------------------------------------------------------------------

    def _hear(self, peer: Peer, station: Station, m: Message) -> object:
        payload = bytes(m.payload)
        seq, session, opcode, size, _, _, offset = HEADER.unpack_from(payload)
        data = payload[HEADER.size :][:size]
        asked = Request(peer, station, seq, session, opcode, size, offset, data)
        try:
            if size > DATA_BYTES:
                raise FtpError(BAD_SIZE)
            if opcode in WRITING:
                raise FtpError(PROTECTED)
            if opcode not in self._does:
                raise FtpError(UNKNOWN)
            return self._does[opcode](asked)
        except FtpError as refusal:
            self._refuse(asked, refusal)
            return None

    def _list(self, asked: Request) -> None:
        match asked.path:
            case ():
                entries = [b"D" + LOGS.encode() + b"\0"]
            case (folder,) if folder in _FOLDERS:
                entries = [
                    f"F{path.name}\t{size}\0".encode()
                    for path, size in sorted(self._logs().values())
                ]
            case _:
                raise FtpError(NOT_FOUND)
        found = b""
        for entry in entries[asked.offset :]:
            if len(found) + len(entry) > DATA_BYTES:
                break
            found += entry
        if not found:
            raise FtpError(END)
        self._answer(asked, found)

    def _open(self, asked: Request) -> None:
        path, size = self._log(asked)
        key = self._free(asked, path)
        self._sessions[key] = Session(path, size, self._system.ship.now_s)
        self._answer(asked, struct.pack("<I", size), session=key[1])

    def _read(self, asked: Request) -> None:
        session = self._session(asked)
        with _opened(session.path) as file:
            self._answer(asked, _piece(file, session, asked.offset, asked.size))

    async def _burst(self, asked: Request) -> AsyncIterator[Message]:
        """Send pieces one after the other; the station asks again from where they end.

        It ends early where the peer has no room for another one, and for the session's next burst.
        """
        number, is_last = 0, False
        try:
            session = self._session(asked)
            session.burst = asked
            size, offset = asked.size or DATA_BYTES, asked.offset
            while session.burst is asked and not is_last:
                self._check_disarmed()
                with _opened(session.path) as file:
                    piece = _piece(file, session, offset, size)
                number += 1
                is_last = (
                    number == BURST_PIECES or offset + len(piece) >= session.size
                    or asked.peer.room <= 2 * (HEADER.size + DATA_BYTES)  # this one, and another
                )  # fmt: skip
                yield self._reply(asked, piece, offset=offset, number=number, is_last=is_last)
                offset += len(piece)
        except FtpError as refusal:
            self._refuse(asked, refusal)

    def _terminate(self, asked: Request) -> None:
        self._sessions.pop((asked.station, asked.session), None)  # none: its answer was lost
        self._answer(asked)

    def _reset(self, asked: Request) -> None:
        for key in [one for one in self._sessions if one[0] == asked.station]:
            del self._sessions[key]
        self._answer(asked)

    def _crc(self, asked: Request) -> None:
        path, size = self._log(asked)
        if self._summing is not None and not self._summing.done():
            raise FtpError(FAIL)  # it is asked again, and the sum of one large file is enough work
        self._summing = self._system.start(self._sum(asked, path, size))

    async def _sum(self, asked: Request, path: Path, size: int) -> None:
        """Answer with the CRC-32 from 0 and not inverted, as ArduPilot, PX4 and MAVSDK have it."""
        try:
            with _opened(path) as file:
                total = _FROM_ZERO
                for offset in range(0, size, CRC_BYTES):
                    self._check_disarmed()
                    part = min(CRC_BYTES, size - offset)
                    total = await asyncio.to_thread(_crc_of, file, offset, part, total)
            self._answer(asked, struct.pack("<I", total ^ _FROM_ZERO))
        except FtpError as refusal:
            self._refuse(asked, refusal)
        except OSError:  # the recorder removed it
            self._refuse(asked, FtpError(FAIL))

    # --- files ----------------------------------------------------------------------------

    def _logs(self) -> dict[str, tuple[Path, int]]:
        """Return the ship's logs by their names, with their bytes, as of the last LOOK_S.

        Requests come from anybody, and a look at 1,000 logs takes 14 ms: no stop is heard then.
        """
        now_s = self._system.ship.now_s
        if self._known and now_s - self._looked_s < LOOK_S:
            return self._known
        self._looked_s = now_s
        self._known = {
            one.path.name: (one.path, min(one.size, _MOST_BYTES))
            for one in logs_of(self._directory, self._system.ship.vehicle)
        }
        return self._known

    def _log(self, asked: Request) -> tuple[Path, int]:
        """Return the log of a path and its bytes, if it may be read now."""
        match asked.path:
            case (folder, name) if folder in _FOLDERS and (found := self._logs().get(name)):
                self._check_disarmed()
                return found
        raise FtpError(NOT_FOUND)

    def _check_disarmed(self) -> None:
        seen = self._system.seen
        if seen is None or seen.ship.armed:
            self._system.say("logs are sent while the ship is disarmed")
            raise FtpError(FAIL)

    # --- sessions -------------------------------------------------------------------------

    def _free(self, asked: Request, path: Path) -> tuple[Station, int]:
        """Return the station and the number of a new session.

        It is the number that is asked for: MAVProxy reads on with it, whatever is answered. One
        that has another file open gets the next number, which all other stations take.
        """
        sessions, station = self._sessions, asked.station
        for number in range(asked.session, asked.session + MAX_SESSIONS + 1):
            key = (station, number % 256)
            if key in sessions and sessions[key].path != path:
                continue
            if key not in sessions and len(sessions) >= MAX_SESSIONS:
                oldest = min(sessions, key=lambda one: sessions[one].used_s)
                if self._system.ship.now_s - sessions[oldest].used_s < IDLE_S:
                    break
                del self._sessions[oldest]
            return key
        raise FtpError(NO_SESSION)

    def _session(self, asked: Request) -> Session:
        key = (asked.station, asked.session)
        if key not in self._sessions:
            raise FtpError(BAD_SESSION)
        self._check_disarmed()
        session = self._sessions[key]
        session.used_s = self._system.ship.now_s
        return session

    # --- answers --------------------------------------------------------------------------

    def _answer(self, asked: Request, data: bytes = b"", **options: Any) -> None:
        self._system.send(self._reply(asked, data, **options), asked.peer)

    def _reply(
        self, asked: Request, data: bytes, *, opcode: int = ACK, session: int | None = None,
        offset: int | None = None, number: int = 1, is_last: bool = True,
    ) -> Message:  # fmt: skip
        """Return an answer. number: of this request's; each has the next sequence number."""
        header = HEADER.pack(
            (asked.seq + number) % 2**16, asked.session if session is None else session, opcode,
            len(data), asked.opcode, int(asked.opcode == BURST and is_last),
            asked.offset if offset is None else offset,
        )  # fmt: skip
        system, component, _ = asked.station
        payload = (header + data).ljust(HEADER.size + DATA_BYTES, b"\0")
        return message(
            "file_transfer_protocol", target_network=0, target_system=system,
            target_component=component, payload=list(payload),
        )  # fmt: skip

    def _refuse(self, asked: Request, refusal: FtpError) -> None:
        self._answer(asked, bytes([refusal.error]), opcode=NACK)


_FROM_ZERO = 2**32 - 1  # zlib inverts before and after


def _piece(file: int, session: Session, offset: int, size: int) -> bytes:
    """Return what is there of a file, at least a byte. Raises FtpError."""
    try:
        piece = read_at(file, max(0, min(size, session.size - offset)), offset)
    except OSError as error:
        raise FtpError(FAIL) from error
    if not piece:
        raise FtpError(END)
    return piece


def _crc_of(file: int, offset: int, size: int, total: int) -> int:
    return zlib.crc32(read_at(file, size, offset), total)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a log. Raises FtpError for one that is gone, or is a link by now."""
    try:
        file = os.open(path, os.O_RDONLY | OPEN_FLAGS)
    except OSError as error:
        raise FtpError(NOT_FOUND) from error
    try:
        yield file
    finally:
        os.close(file)
