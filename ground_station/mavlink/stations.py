"""Who speaks on the links, and which station has the ship.

The process holds the ship's control (the pilot lease) for one station at a time: the first that
commands. While its heartbeat comes nobody else gets it. Without its heartbeat the ship is not
sent the pilot's either, and does what it does for a lost link.
"""

import math
from collections.abc import Callable

LOST_S = 3.0  # three heartbeats; the ship holds LINK_HOLD_S after the pilot's last one
MAX_STATIONS = 64

Station = tuple[int, int]  # system and component


def name_of(station: Station) -> str:
    return f"station {station[0]}" + ("" if station[1] == 190 else f"/{station[1]}")


class Stations:
    """Used in one event loop, but for `present`. now_s: the time of the event loop's side."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._beat_s: dict[Station, float] = {}  # its last heartbeat
        self.holder: Station | None = None

    def beat(self, station: Station) -> None:
        if station not in self._beat_s and len(self._beat_s) >= MAX_STATIONS:
            others = [one for one in self._beat_s if one != self.holder]
            del self._beat_s[min(others, key=lambda one: self._beat_s[one])]
        self._beat_s[station] = self._now_s()

    @property
    def lost_s(self) -> float:
        """For how long the heartbeat of the station that has the ship is missed; 0 for not.

        One that has never sent a heartbeat is not missed, as a program that sends one command.
        """
        beat_s = math.inf if self.holder is None else self._beat_s.get(self.holder, math.inf)
        return max(0.0, self._now_s() - beat_s - LOST_S)

    def present(self) -> bool:
        """Whether the ship may be sent its pilot's heartbeat; from any thread."""
        return self.lost_s == 0.0

    def refusal(self, station: Station) -> str:
        """Return why this station may not command, "" if it may."""
        if self.holder in (None, station) or not self.present():
            return ""
        assert self.holder is not None
        return f"{name_of(self.holder)} has the ship while its heartbeat comes"
