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

from blimp.recording.directory import log_sizes
from ground_station.mavlink.stations import Station
from ground_station.mavlink.wire import Message, message

if TYPE_CHECKING:
    from ground_station.mavlink.link import Peer
    from ground_station.mavlink.vehicle import Vehicle

PIECE_BYTES = 90  # of LOG_DATA
AT_ONCE, PAUSE_S = 64, 0.01  # pieces, then a pause: a UDP buffer holds them
MAX_LOGS = 1000
_MOST_BYTES = 2**32 - 1


class Logs:
    """The logs of one ship, numbered from 1, the oldest first, as of the newest list."""

    def __init__(self, vehicle: Vehicle, directory: Path) -> None:
        self._vehicle = vehicle
        self._directory = directory
        self._listed: list[tuple[Path, int]] = []
        self._sending: asyncio.Task[Any] | None = None
        self.hears: dict[str, Callable[[Peer, Station, Message], object]] = {
            "LOG_REQUEST_LIST": self._list,
            "LOG_REQUEST_DATA": self._data,
            "LOG_REQUEST_END": lambda *_: self._end(),
            "LOG_ERASE": lambda *_: self._vehicle.say("logs are not erased over MAVLink"),
        }

    def _list(self, peer: Peer, _: Station, asked: Message) -> None:
        mine = (
            (path, size)
            for path, size in log_sizes(self._directory).items()
            if path.name.rsplit("-", 2)[0] == self._vehicle.transport.vehicle
        )
        self._listed = sorted(mine, key=lambda one: int(one[0].name.rsplit("-", 2)[1]))[-MAX_LOGS:]
        self._begin(self._send_list(peer, asked.start, asked.end))

    async def _send_list(self, peer: Peer, start: int, end: int) -> None:
        count = len(self._listed)
        if not count:
            self._entry(peer, 0, 0, time_utc=0, size=0)
        for number in range(max(1, start), min(end, count) + 1):
            path, size = self._listed[number - 1]
            began = time.strptime(path.stem.rsplit("-", 1)[1], "%Y%m%dT%H%M%SZ")
            self._entry(peer, number, count, time_utc=calendar.timegm(began), size=size)
            if number % AT_ONCE == 0:
                await asyncio.sleep(PAUSE_S)

    def _entry(self, peer: Peer, number: int, count: int, *, time_utc: int, size: int) -> None:
        entry = {"id": number, "num_logs": count, "last_log_num": count}
        size = min(size, _MOST_BYTES)
        self._vehicle.send(message("log_entry", **entry, time_utc=time_utc, size=size), peer)

    def _data(self, peer: Peer, _: Station, asked: Message) -> None:
        seen = self._vehicle.seen
        if not 1 <= asked.id <= len(self._listed):
            self._vehicle.say(f"no log {asked.id}: the list has 1 to {len(self._listed)}")
        elif seen is None or seen.ship.armed:
            self._vehicle.say("logs are sent while the ship is disarmed")
        else:
            path, size = self._listed[asked.id - 1]
            count = max(0, min(asked.count, size - asked.ofs))
            self._begin(self._send_data(peer, path, asked.id, asked.ofs, count))

    async def _send_data(self, peer: Peer, path: Path, id: int, offset: int, count: int) -> None:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            self._vehicle.say(f"log {path.name}: {error.strerror}")
            return
        try:
            end = offset + count
            while True:
                block = os.pread(file, min(end - offset, AT_ONCE * PIECE_BYTES), offset)
                for at in range(0, max(1, len(block)), PIECE_BYTES):
                    piece = block[at : at + PIECE_BYTES]
                    data = [*piece, *bytes(PIECE_BYTES - len(piece))]
                    sent = {"id": id, "ofs": offset + at, "count": len(piece), "data": data}
                    self._vehicle.send(message("log_data", **sent), peer)
                offset += len(block)
                if offset >= end or not block:
                    break
                await asyncio.sleep(PAUSE_S)
        finally:
            os.close(file)

    def _begin(self, work: Any) -> None:
        """Send this instead of what is being sent: a station asks for one thing after the other."""
        self._end()
        self._sending = self._vehicle.start(work)

    def _end(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        self._sending = None
