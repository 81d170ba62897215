"""Reads a flight from its logs, whole ones and cut ones: `open_recording(path)`."""

import bisect
import contextlib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from blimp.closing import Closing
from blimp.errors import LogError
from blimp.link.timeline import MAX_TEXT, Happening, ordered
from blimp.recording.chain import flight_of
from blimp.recording.part import ChunkAt, LogPart
from blimp.recording.topics import NS, Message
from blimp.types import Progress, Snapshot, unseen


class LogInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What `blimp log info` tells. complete: the log was closed, and has its index.

    started: UTC, ISO 8601. duration_s: from the first message to the last. topics: their messages.
    logs: the names of all files of the flight, in their order.
    """

    path: str
    vehicle: str
    simulated: bool
    started: str
    duration_s: float
    complete: bool
    chunks: int
    topics: dict[str, int]
    logs: tuple[str, ...]


class Entry(NamedTuple):
    """One message. t_s: since the recording's first message. data: its JSON as Python values."""

    topic: str
    t_s: float
    data: dict[str, Any]


class Happened(NamedTuple):
    """A happening of a recording. t_s: since the recording's first message."""

    t_s: float
    happening: Happening

    @property
    def id(self) -> str:
        return self.happening.id


class Recording(Closing):
    """An open flight: one log, or all that a flight left, one after the other.

    path: the log that was asked for. session, metadata: of the first log. chunks: all whole ones,
    and the log that each is in. Times of a log after the first count by the first one's epoch: the
    wall clock may have been set between two flight processes, the machine's own clock was not.
    progress: is called with the share of the log up to the chunk that is read, 0 to 1.
    """

    def __init__(
        self, path: Path, parts: list[LogPart] | None = None, *, progress: Progress = unseen
    ) -> None:
        self.path = path
        self._progress = progress
        self.parts = parts or [LogPart(path)]
        first = self.parts[0]
        self.session, self.metadata = first.session, first.metadata
        self.complete = all(part.complete for part in self.parts)
        self.chunks: list[tuple[LogPart, ChunkAt]] = []
        for part in self.parts:
            ahead_ns = part.epoch_ns - first.epoch_ns
            self.chunks += [(part, _earlier(chunk, ahead_ns)) for chunk in part.chunks]
        self._last: tuple[int, list[Message]] = (-1, [])
        self.start_ns = min((chunk.start_ns for _, chunk in self.chunks), default=0)
        self.end_ns = max((chunk.end_ns for _, chunk in self.chunks), default=0)
        self._starts = [chunk.start_ns for _, chunk in self.chunks]

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
            logs=tuple(part.path.name for part in self.parts),
        )

    def entries(
        self, topics: Collection[str] | None = None, *, from_s: float = 0.0
    ) -> Iterator[Entry]:
        """Yield the messages from `from_s` on, in the order they were written."""
        from_ns = self.start_ns + int(from_s * NS)
        for number, (_, chunk) in enumerate(self.chunks):
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

    def timeline(self) -> list[Happened]:
        """Return what happened in the flight, in the order of its times, each once."""
        # A happening has the time of the ship's clock, which all logs of a flight share.
        before_s = self.start_ns / NS - self.session.epoch_s
        found = []
        for number, entry in enumerate(self.entries(("/event",))):
            happened = happened_of(entry, before_s=before_s, number=number)
            if happened is not None:
                found.append(happened)
        return ordered(found)

    def messages(self, number: int) -> list[Message]:
        """Return the messages of a chunk. Raises LogError if it is damaged."""
        if self._last[0] == number:
            return self._last[1]
        part, chunk = self.chunks[number]
        self._progress(number / len(self.chunks))
        found = part.messages(chunk)
        if part is not self.parts[0]:
            found = self._continued(number, part, found)
        self._last = number, found
        return found

    def _continued(self, number: int, part: LogPart, found: list[Message]) -> list[Message]:
        """Return messages as they continue the log before, each once.

        A recorder that is killed after it has stored a chunk, and before it has taken it off the
        ring, leaves it to the next one as well.
        """
        ahead_ns = part.epoch_ns - self.parts[0].epoch_ns
        found = [one._replace(time_ns=one.time_ns - ahead_ns) for one in found]
        first = next(i for i, (its, _) in enumerate(self.chunks) if its is part)
        if first == 0 or self.chunks[number][1].start_ns > self.chunks[first - 1][1].end_ns:
            return found
        before, chunk = self.chunks[first - 1]
        stored: set[Message] = set()
        with contextlib.suppress(LogError):  # it is damaged: who reads it says so
            stored = set(self._continued(first - 1, before, before.messages(chunk)))
        return [one for one in found if one not in stored]

    def close(self) -> None:
        for part in self.parts:
            part.close()


def open_recording(
    path: Path | str, *, alone: bool = False, progress: Progress = unseen
) -> Recording:
    """Open the flight that the log at `path` is of, or `alone` this log of it.

    Raises LogError if it cannot be read, or is none of this program's.
    """
    path = Path(path)
    return Recording(path, None if alone else flight_of(path), progress=progress)


def snapshot_of(fields: dict[str, Any]) -> Snapshot:
    """Return the snapshot that a /status message holds."""
    return msgspec.convert({"battery_v": None, **fields}, Snapshot)


def happened_of(entry: Entry, *, before_s: float = 0.0, number: int = 0) -> Happened | None:
    """Return the happening of an /event; None if it cannot be read.

    before_s: time of the ship's clock at the recording's first message. number: of the entry, for
    what the recorder itself says, which has no id.
    """
    data = entry.data
    fields = {
        "id": data.get("id") or f"log-{number}", "t_s": data.get("t_s", entry.t_s),
        "by": data.get("by") or "flight", "kind": data.get("name"),
        "text": str(data.get("message"))[:MAX_TEXT], "command": data.get("command", ""),
    }  # fmt: skip
    try:
        happening = msgspec.convert(fields, Happening)
    except msgspec.ValidationError:
        return None
    return Happened(happening.t_s - before_s, happening)


def _earlier(chunk: ChunkAt, by_ns: int) -> ChunkAt:
    return chunk._replace(start_ns=chunk.start_ns - by_ns, end_ns=chunk.end_ns - by_ns)
