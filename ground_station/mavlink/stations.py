"""Who speaks on the links, and which station has the ship.

The process holds the ship's control (the pilot lease) for one station at a time: the first that
commands. While its heartbeat comes nobody else gets it. Without its heartbeat the ship is not
sent the pilot's either, and does what it does for a lost link.
"""

from collections.abc import Callable
from typing import NamedTuple

LOST_S = 3.0  # three heartbeats; the ship holds LINK_HOLD_S after the pilot's last one
MAX_STATIONS = 64


class Station(NamedTuple):
    """Who sent a message. peer: its link and address, so that no other has its number there."""

    system: int
    component: int
    peer: str


class _Sign(NamedTuple):
    """The last sign of life of a station; of one that has ever sent a heartbeat, its last one."""

    at_s: float
    is_beat: bool


def name_of(station: Station) -> str:
    return f"station {station.system}" + (
        "" if station.component == 190 else f"/{station.component}"
    )


class Stations:
    """Used in one event loop, but for `present`. now_s: the time of the event loop's side."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._signs: dict[Station, _Sign] = {}
        self._holder: Station | None = None

    @property
    def holder(self) -> Station | None:
        """The station that has the ship."""
        return self._holder

    def holder_at(self, peer: str) -> bool:
        """Whether the station that has the ship is there."""
        return self._holder is not None and self._holder.peer == peer

    def give(self, station: Station) -> None:
        """Let a station that has just commanded have the ship."""
        self.hear(station)
        self._holder = station

    def hear(self, station: Station, *, is_beat: bool = False) -> None:
        """Note a message of a station, which is a sign of life until it sends heartbeats."""
        known = self._signs.get(station)
        if known is not None and known.is_beat and not is_beat:
            return
        if known is None and len(self._signs) >= MAX_STATIONS:
            others = [one for one in self._signs if one != self._holder]
            del self._signs[min(others, key=lambda one: self._signs[one].at_s)]
        self._signs[station] = _Sign(self._now_s(), is_beat)

    @property
    def lost_s(self) -> float:
        """For how long the station that has the ship is missed; 0 for not.

        It is missed LOST_S after its last heartbeat; one that has never sent a heartbeat LOST_S
        after its last message of any kind.
        """
        sign = None if self._holder is None else self._signs.get(self._holder)
        return 0.0 if sign is None else max(0.0, self._now_s() - sign.at_s - LOST_S)

    def present(self) -> bool:
        """Whether the ship may be sent its pilot's heartbeat; from any thread."""
        return self.lost_s == 0.0

    def refusal(self, station: Station) -> str:
        """Return why this station may not command, "" if it may."""
        holder = self._holder
        if holder in (None, station) or not self.present():
            return ""
        assert holder is not None
        same = holder[:2] == station[:2]
        who = f"another {name_of(holder)} at {holder.peer}" if same else name_of(holder)
        return f"{who} has the ship while its heartbeat comes"
