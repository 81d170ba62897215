"""Plays a recording against a clock: at any speed, from any place, or standing still."""

from collections.abc import Collection

from blimp.clock import Clock
from blimp.errors import ConfigError
from blimp.recording.recording import Entry, Recording

SHOWN = ("/status", "/command", "/outcome", "/event", "/fault", "/injected")
MAX_SPEED = 1000.0


class Player:
    """A place in a recording that moves with `clock`. Ask `due` from time to time.

    topics: which messages are wanted; by default all but the 100 cycles a second.
    """

    def __init__(self, log: Recording, *, clock: Clock, topics: Collection[str] = SHOWN) -> None:
        self._log, self._clock, self._topics = log, clock, frozenset(topics)
        self._speed = 0.0
        self.seek(0.0)

    @property
    def duration_s(self) -> float:
        return self._log.duration_s

    @property
    def position_s(self) -> float:
        """Where it is now, seconds since the recording's first message."""
        moved_s = self._speed * (self._clock.now_s() - self._set_s)
        return min(self.duration_s, self._from_s + moved_s)

    @property
    def speed(self) -> float:
        """Times real time; 0 while it stands still."""
        return self._speed

    def play(self, speed: float = 1.0) -> None:
        """Go on at `speed` times real time; 0 stands still. Raises ConfigError."""
        if not 0.0 <= speed <= MAX_SPEED:
            raise ConfigError(f"speed {speed:g}: must be 0 to {MAX_SPEED:g} times real time")
        self._from_s, self._set_s = self.position_s, self._clock.now_s()
        self._speed = speed

    def seek(self, t_s: float) -> None:
        """Go to `t_s`, within the recording; `due` then begins with the picture at that place."""
        self._from_s = min(max(0.0, t_s), self.duration_s) if t_s == t_s else 0.0
        self._set_s = self._clock.now_s()
        self._next: Entry | None = None
        self._entries = self._log.entries(self._topics, from_s=self._from_s)
        self._is_new = self._from_s > 0.0

    def due(self) -> list[Entry]:
        """Return what has happened in the recording since the last call, in its order.

        After `seek` the newest status of that place comes first. Raises LogError if the log is
        damaged there.
        """
        found: list[Entry] = []
        if self._is_new:
            self._is_new = False
            status = self._log.status_at(self._from_s)
            found += [] if status is None else [status]
        until_s = self.position_s
        while True:
            if self._next is None:
                self._next = next(self._entries, None)
            if self._next is None or self._next.t_s > until_s:
                return found
            found.append(self._next)
            self._next = None

    @property
    def at_end(self) -> bool:
        return self.position_s >= self.duration_s
