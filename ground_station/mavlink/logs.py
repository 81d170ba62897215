"""The ship's recorded flights by LOG_REQUEST_LIST and LOG_REQUEST_DATA: read, and never erased.

They are the MCAP files of this machine's log directory, so the process runs beside the recorder.
"""

from __future__ import annotations

import asyncio
import calendar
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from blimp.recording.directory import logs_of
from blimp.system import OPEN_FLAGS, read_at
from ground_station.mavlink.peer import Peer
from ground_station.mavlink.stations import Station
from ground_station.mavlink.system import System
from ground_station.mavlink.wire import Message, message

PIECE_BYTES = 90  # of LOG_DATA
READ_PIECES = 64  # of a log at once
MAX_LOGS = 1000
LOOK_S = 1.0  # between two looks into the directory, for all stations
MAX_READERS = 8  # stations: the one that asked first is forgotten for one more
MAX_SPANS = 32  # of a log, asked for by one station: MAVProxy asks for 20 gaps at once
_MOST_BYTES = 2**32 - 1

_Listed = list[tuple[Path, int]]
_Span = tuple[int, int]  # of a log: offset, end


class _Reader:
    """What one station was listed, and what it is being sent: spans of log `id`."""

    def __init__(self) -> None:
        self.listed: _Listed = []
        self.id = 0
        self.spans: list[_Span] = []

    def takes(self, id: int, span: _Span) -> bool:
        """Whether a span of log `id` is sent after the others: it has nothing in common."""
        return (
            self.id == id
            and 0 < len(self.spans) < MAX_SPANS
            and all(span[1] <= offset or end <= span[0] for offset, end in self.spans)
        )


class Logs:
    """The logs of one ship, numbered from 1, the oldest first, as of each station's newest list.

    A station is sent one thing at a time. Gaps of one log are sent one after the other; any other
    request replaces what is being sent. The files are looked for and read in threads.
    """

    def __init__(self, system: System, directory: Path) -> None:
        self._system = system
        self._directory = directory
        self._readers: dict[Station, _Reader] = {}
        self._looking: asyncio.Future[_Listed] | None = None
        self._looked_s = 0.0
        self.hears: dict[str, Callable[[Peer, Station, Message], object]] = {
            "LOG_REQUEST_LIST": self._list,
            "LOG_REQUEST_DATA": self._data,
            "LOG_REQUEST_END": lambda _, station, __: self._reader(station).spans.clear(),
            "LOG_ERASE": lambda *_: self._system.say("logs are not erased over MAVLink"),
        }

    async def _list(self, _: Peer, station: Station, asked: Message) -> AsyncIterator[Message]:
        reader = self._reader(station)
        reader.spans = []
        now_s = self._system.ship.now_s
        is_old = now_s - self._looked_s >= LOOK_S
        if self._looking is None or (is_old and self._looking.done()):
            self._looked_s = now_s
            self._looking = asyncio.ensure_future(asyncio.to_thread(self._look))
        reader.listed = await asyncio.shield(self._looking)
        count = len(reader.listed)
        if not count:
            yield _entry(0, 0, time_utc=0, size=0)
        for number in range(max(1, asked.start), min(asked.end, count) + 1):
            path, size = reader.listed[number - 1]
            began = time.strptime(path.stem.rsplit("-", 1)[1], "%Y%m%dT%H%M%SZ")
            yield _entry(number, count, time_utc=calendar.timegm(began), size=size)

    def _look(self) -> _Listed:
        mine = logs_of(self._directory, self._system.ship.vehicle)[-MAX_LOGS:]
        return [(one.path, one.size) for one in mine]

    def _data(self, _: Peer, station: Station, asked: Message) -> object:
        reader = self._reader(station)
        if not 1 <= asked.id <= len(reader.listed):
            self._system.say(f"no log {asked.id}: the list has 1 to {len(reader.listed)}")
            return None
        path, size = reader.listed[asked.id - 1]
        span = asked.ofs, asked.ofs + max(0, min(asked.count, size - asked.ofs))
        if reader.takes(asked.id, span):
            reader.spans.append(span)
            return None
        reader.id, reader.spans = asked.id, [span]
        return self._pieces(reader, path)

    def _is_disarmed(self) -> bool:
        seen = self._system.seen
        return seen is not None and not seen.ship.armed

    async def _pieces(self, reader: _Reader, path: Path) -> AsyncIterator[Message]:
        """Send spans of a log; each is removed when it is sent, and more may be added."""
        id, spans = reader.id, reader.spans
        sent = 0  # bytes of the first one
        while spans and reader.spans is spans:
            if not self._is_disarmed():
                self._system.say("logs are sent while the ship is disarmed")
                return
            offset, end = spans[0][0] + sent, spans[0][1]
            try:
                wanted = min(end - offset, READ_PIECES * PIECE_BYTES)
                block = await asyncio.to_thread(_read, path, offset, wanted)
            except OSError as error:
                self._system.say(f"log {path.name}: {error.strerror}")
                return
            for at in range(0, max(1, len(block)), PIECE_BYTES):
                if reader.spans is not spans or not spans:
                    return
                piece = block[at : at + PIECE_BYTES]
                data = [*piece, *bytes(PIECE_BYTES - len(piece))]
                yield message("log_data", id=id, ofs=offset + at, count=len(piece), data=data)
            sent += len(block)
            if offset + len(block) >= end or not block:
                del spans[0]
                sent = 0

    def _reader(self, station: Station) -> _Reader:
        """Return a station's place; the one that asked first makes room."""
        if station not in self._readers and len(self._readers) >= MAX_READERS:
            self._readers.pop(next(iter(self._readers))).spans = []
        return self._readers.setdefault(station, _Reader())


def _entry(number: int, count: int, *, time_utc: int, size: int) -> Message:
    entry = {"id": number, "num_logs": count, "last_log_num": count}
    return message("log_entry", **entry, time_utc=time_utc, size=min(size, _MOST_BYTES))


def _read(path: Path, offset: int, size: int) -> bytes:
    file = os.open(path, os.O_RDONLY | OPEN_FLAGS)
    try:
        return read_at(file, size, offset)
    finally:
        os.close(file)
