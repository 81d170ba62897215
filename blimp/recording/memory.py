"""A recording that stays in memory: of a simulated flight, for what is asked of it at its end."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from blimp.recording.flight_data import FlightData, read_flight
from blimp.recording.recording import Entry, Happened
from blimp.recording.tape import Session
from blimp.recording.topics import NS, Translator


class Memory:
    """Takes what a tape writes, as a `SessionLog` does. session: of the flight process."""

    path = Path("in memory")
    complete = True

    def __init__(self, session: Session) -> None:
        self.session = session
        self.metadata: dict[str, str] = {}
        self._records: list[tuple[int, bytes]] = []
        self._ends_s = (0.0, 0.0)

    def take(self, kind: int, payload: bytes) -> bool:
        """Take a record of the tape; its `write`."""
        self._records.append((kind, payload))
        return True

    def close(self) -> None:
        """Nothing is open."""

    def flight(self) -> FlightData:
        """Return the flight up to now. Raises LogError if no cycle is in it."""
        return read_flight(self)

    @property
    def duration_s(self) -> float:
        return self._ends_s[1] - self._ends_s[0]

    @property
    def began_s(self) -> float:
        """The ship's own time of the first message, once it was read."""
        return self._ends_s[0] - self.session.epoch_s

    def entries(self, topics: Collection[str]) -> Iterator[Entry]:
        translator = Translator(self.session)
        begin_ns = None
        for kind, payload in self._records:
            for topic, time_ns, data in translator.messages(kind, payload):
                begin_ns = time_ns if begin_ns is None else begin_ns
                self._ends_s = begin_ns / NS, time_ns / NS
                if topic in topics:
                    yield Entry(topic, (time_ns - begin_ns) / NS, msgspec.json.decode(data))

    def timeline(self) -> list[Happened]:
        """No report is made of it."""
        return []
