"""Whether the pilot still hears the ship, and the ship the pilot: the age of the heartbeat.

Nobody is missed who never sent one: a mission that flies itself needs no pilot. From a
session's first heartbeat on its silence counts, until it says goodbye. Its age is counted from
its arrival on board, on the ship's own clock.

A pilot may have several sessions (a view, and a command now and then), so the link is as old as
the newest heartbeat of any. A session that fell silent while another was received is over: so
the next pilot's goodbye, or command, leaves no old silence behind. So is every session that was
under another authority: control has changed since. A goodbye that comes late, after a restart of
the worker, ends its own session alone.
"""

from collections import OrderedDict

import msgspec

from blimp.types import Heartbeat

STALE_S = 3.0  # a heartbeat that waited for longer between the worker and here proves nothing
SILENT_S = 3.0  # the failsafe's first stage
MAX_SESSIONS = 16  # of pilots and their programs at one ship
REMEMBERED = 64  # sessions whose heartbeats cannot be played back


class _Session(msgspec.Struct, frozen=True):
    authority: int
    received_s: float


class PilotLink:
    """`receive` each heartbeat; `age_s` once a cycle."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._sequences: OrderedDict[str, int] = OrderedDict()

    def receive(self, heartbeat: Heartbeat, now_s: float) -> None:
        """Count `heartbeat`, unless its session has sent a newer one."""
        session, is_late = heartbeat.session, not heartbeat.waited_s <= STALE_S
        if is_late and not heartbeat.ends:
            return
        if heartbeat.sequence <= self._sequences.get(session, -1):
            return
        self._sequences[session] = heartbeat.sequence
        self._sequences.move_to_end(session)
        while len(self._sequences) > REMEMBERED:
            self._sequences.popitem(last=False)
        if is_late:
            self._sessions.pop(session, None)
            return
        self._sessions = {
            name: known
            for name, known in self._sessions.items()
            if known.authority == heartbeat.authority
            and now_s - known.received_s <= SILENT_S
            and name != session
        }
        if not heartbeat.ends:
            while len(self._sessions) >= MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[session] = _Session(heartbeat.authority, now_s)

    def age_s(self, now_s: float, *, armed: bool) -> float | None:
        """Return how old the newest heartbeat is; None if no pilot owes one.

        armed: of a ship that is not, silence is forgotten: there is nothing to bring home.
        """
        if not self._sessions:
            return None
        age_s = now_s - max(session.received_s for session in self._sessions.values())
        if age_s > SILENT_S and not armed:
            self._sessions.clear()
            return None
        return age_s
