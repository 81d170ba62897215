"""The ship's recorded flights by LOG_REQUEST_LIST and LOG_REQUEST_DATA: read, and never erased.

They are the MCAP files of this machine's log directory, so the process runs beside the recorder.
"""

from __future__ import annotations

import asyncio
import calendar
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blimp.recording.directory import logs_of
from ground_station.mavlink.stations import Station
from ground_station.mavlink.wire import Message, message

if TYPE_CHECKING:
    from ground_station.mavlink.link import Peer
    from ground_station.mavlink.vehicle import Vehicle

PIECE_BYTES = 90  # of LOG_DATA
AT_ONCE, PAUSE_S = 64, 0.01  # pieces of all transfers, then a pause: a UDP buffer holds them
MAX_LOGS = 1000
LOOK_S = 1.0  # between two looks into the directory, for all stations
MAX_READERS = 8  # stations that are sent something at once
MAX_SPANS = 32  # of a log, asked for by one station: MAVProxy asks for 20 gaps at once
_MOST_BYTES = 2**32 - 1

_Listed = list[tuple[Path, int]]
_Span = tuple[int, int]  # of a log: offset, end


class _Reader:
    """What one station was listed, and what it is being sent: spans of a log, or a list (0)."""

    def __init__(self) -> None:
        self.listed: _Listed = []
        self.id = 0
        self.spans: list[_Span] = []
        self.sending: asyncio.Task[Any] | None = None

    def takes(self, id: int, span: _Span) -> bool:
        """Whether a span of log `id` is sent after the others: it has nothing in common."""
        return (
            self.sending is not None
            and not self.sending.done()
            and self.id == id
            and 0 < len(self.spans) < MAX_SPANS
            and all(span[1] <= offset or end <= span[0] for offset, end in self.spans)
        )

    def end(self) -> None:
        if self.sending is not None:
            self.sending.cancel()
        self.sending = None


class Logs:
    """The logs of one ship, numbered from 1, the oldest first, as of each station's newest list.

    A station is sent one thing at a time; all together have one rate. Gaps of one log are sent one
    after the other; any other request replaces what is being sent. The files are looked for and
    read in threads. With a key only signed requests come so far: see `wire.Decoder`.
    """

    def __init__(self, vehicle: Vehicle, directory: Path) -> None:
        self._vehicle = vehicle
        self._directory = directory
        self._readers: dict[Station, _Reader] = {}
        self._looking: asyncio.Future[_Listed] | None = None
        self._looked_s = 0.0
        self._turn = asyncio.Lock()
        self.hears: dict[str, Callable[[Peer, Station, Message], object]] = {
            "LOG_REQUEST_LIST": self._list,
            "LOG_REQUEST_DATA": self._data,
            "LOG_REQUEST_END": lambda _, station, __: self._end(station),
            "LOG_ERASE": lambda *_: self._vehicle.say("logs are not erased over MAVLink"),
        }

    def _list(self, peer: Peer, station: Station, asked: Message) -> None:
        reader = self._reader(station)
        if reader is not None:
            work = self._send_list(peer, reader, asked.start, asked.end)
            self._begin(reader, 0, [], work)

    async def _send_list(self, peer: Peer, reader: _Reader, start: int, end: int) -> None:
        now_s = self._vehicle.transport.now_s()
        is_old = now_s - self._looked_s >= LOOK_S
        if self._looking is None or (is_old and self._looking.done()):
            self._looked_s = now_s
            self._looking = asyncio.ensure_future(asyncio.to_thread(self._look))
        reader.listed = await asyncio.shield(self._looking)
        count = len(reader.listed)
        if not count:
            self._entry(peer, 0, 0, time_utc=0, size=0)
        numbers = range(max(1, start), min(end, count) + 1)
        for at in range(0, len(numbers), AT_ONCE):
            async with self._turn:
                for number in numbers[at : at + AT_ONCE]:
                    path, size = reader.listed[number - 1]
                    began = time.strptime(path.stem.rsplit("-", 1)[1], "%Y%m%dT%H%M%SZ")
                    self._entry(peer, number, count, time_utc=calendar.timegm(began), size=size)
                await asyncio.sleep(PAUSE_S)

    def _look(self) -> _Listed:
        mine = logs_of(self._directory, self._vehicle.transport.vehicle)[-MAX_LOGS:]
        return [(one.path, one.size) for one in mine]

    def _entry(self, peer: Peer, number: int, count: int, *, time_utc: int, size: int) -> None:
        entry = {"id": number, "num_logs": count, "last_log_num": count}
        size = min(size, _MOST_BYTES)
        self._vehicle.send(message("log_entry", **entry, time_utc=time_utc, size=size), peer)

    def _data(self, peer: Peer, station: Station, asked: Message) -> None:
        reader = self._reader(station)
        if reader is None:
            return
        if not 1 <= asked.id <= len(reader.listed):
            self._vehicle.say(f"no log {asked.id}: the list has 1 to {len(reader.listed)}")
        elif not self._is_disarmed():
            self._vehicle.say("logs are sent while the ship is disarmed")
        else:
            path, size = reader.listed[asked.id - 1]
            span = asked.ofs, asked.ofs + max(0, min(asked.count, size - asked.ofs))
            if reader.takes(asked.id, span):
                reader.spans.append(span)
            else:
                spans = [span]
                work = self._send_data(peer, path, asked.id, spans)
                self._begin(reader, asked.id, spans, work)

    def _is_disarmed(self) -> bool:
        seen = self._vehicle.seen
        return seen is not None and not seen.ship.armed

    async def _send_data(self, peer: Peer, path: Path, id: int, spans: list[_Span]) -> None:
        """Send spans of a log; each is removed when it is sent, and more may be added."""
        sent = 0  # bytes of the first one
        while spans and self._vehicle.reaches(peer):
            if not self._is_disarmed():
                self._vehicle.say("logs are sent while the ship is disarmed")
                return
            async with self._turn:
                offset, end = spans[0][0] + sent, spans[0][1]
                wanted = min(end - offset, AT_ONCE * PIECE_BYTES)
                try:
                    block = await asyncio.to_thread(_read, path, offset, wanted)
                except OSError as error:
                    self._vehicle.say(f"log {path.name}: {error.strerror}")
                    return
                for at in range(0, max(1, len(block)), PIECE_BYTES):
                    piece = block[at : at + PIECE_BYTES]
                    data = [*piece, *bytes(PIECE_BYTES - len(piece))]
                    one = {"id": id, "ofs": offset + at, "count": len(piece), "data": data}
                    self._vehicle.send(message("log_data", **one), peer)
                sent += len(block)
                if offset + len(block) >= end or not block:
                    del spans[0]
                    sent = 0
                await asyncio.sleep(PAUSE_S)

    def _reader(self, station: Station) -> _Reader | None:
        """Return a station's place; None, in words, if as many as may are being sent something."""
        reader = self._readers.get(station)
        if reader is None and len(self._readers) >= MAX_READERS:
            for idle, one in list(self._readers.items()):
                if one.sending is None or one.sending.done():
                    del self._readers[idle]
                    break
            else:
                self._vehicle.say(f"logs are being sent to {MAX_READERS} stations, the limit")
                return None
        return self._readers.setdefault(station, reader or _Reader())

    def _begin(self, reader: _Reader, id: int, spans: list[_Span], work: Any) -> None:
        """Send this instead of what is being sent."""
        reader.end()
        reader.id, reader.spans = id, spans
        reader.sending = self._vehicle.start(work)

    def _end(self, station: Station) -> None:
        if station in self._readers:
            self._readers[station].end()


def _read(path: Path, offset: int, size: int) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.pread(file, size, offset)
    finally:
        os.close(file)
