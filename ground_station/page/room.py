"""One ship and those who look at it: what is new reaches every viewer, and waits for none."""

import asyncio
import contextlib
from collections import Counter, deque
from typing import Annotated, Any

import msgspec

from blimp.clock import Clock
from blimp.reading import ready
from ground_station.page import Votable
from ground_station.page.source import Source
from ground_station.page.state import PAST_S, PAST_STEP_S, plotted

PERIOD_S = 0.04  # of two updates, at least: a ship publishes each 0.05 s, not to the ms
MAX_WAITING = 60  # messages for one viewer; who is further behind is dropped
COMMANDS = 30
TRAIL_POINTS = 1500
TRAIL_STEP_M = 0.1
COUNT_S = 0.5  # of two tallies, at least
MOST_VOTES = 48  # viewers that an audience has at once

_encode = msgspec.json.Encoder().encode


class Viewer:
    """One browser. Its messages wait here; the socket's own task sends them."""

    def __init__(self, *, role: str) -> None:
        self.role = role
        self.vote = ""
        self.is_dropped = False
        self._waiting: deque[str] = deque()
        self._news = asyncio.Event()

    def put(self, text: str) -> None:
        """Add a message. One who does not read is dropped: the picture would be old anyway."""
        if len(self._waiting) >= MAX_WAITING:
            self.is_dropped = True
            self._waiting.clear()
        elif not self.is_dropped:
            self._waiting.append(text)
        self._news.set()

    async def take(self) -> list[str]:
        """Return all that waits, as soon as there is something; nothing if it was dropped."""
        await self._news.wait()
        self._news.clear()
        found = list(self._waiting)
        self._waiting.clear()
        return found


class Room:
    """What is known of one ship, for viewers who come at any time. Of the server's loop alone.

    `hear` is what its source calls, from any thread. past: what the plots begin with.
    """

    def __init__(self, source: Source, *, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self.source = source
        self._clock = clock
        self._loop = loop
        self._viewers: set[Viewer] = set()
        self._state: dict[str, Any] | None = None
        self._seen_s = 0.0
        self._heard = asyncio.Event()
        self._sent_s = 0.0
        self._is_new = False
        self._kept: dict[str, Any] = {}  # the newest of each other kind
        self._commands: dict[str, dict[str, Any]] = {}
        self._trail: deque[tuple[float, float, float]] = deque(maxlen=TRAIL_POINTS)
        self.past: deque[dict[str, Any]] = deque(maxlen=round(PAST_S / PAST_STEP_S))
        self._tick: asyncio.TimerHandle | None = None
        self._round = 0  # of the votes: each fault begins one
        self._counting: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.source.start(self.hear)

    @property
    def vehicle(self) -> str:
        return self.source.vehicle

    def state(self) -> dict[str, Any] | None:
        """Return the newest state with its ages as they are now; None before the first."""
        if self._state is None:
            return None
        return _older(self._state, self._clock.now_s() - self._seen_s)

    def known(self, kind: str) -> Any:
        """Return the newest message of a kind that is kept; None without one."""
        return self._kept.get(kind)

    async def first_state(self, *, within_s: float) -> dict[str, Any] | None:
        """Return the newest state; waits for the first one, and returns None if none comes."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._heard.wait(), within_s)
        return self.state()

    def hear(self, kind: str, content: Any) -> None:
        """Take what the source tells; from any thread, also after the end."""
        try:
            self._loop.call_soon_threadsafe(self._take, kind, content, self._clock.now_s())
        except RuntimeError:
            return  # the loop is closed: nobody looks any more

    def enter(self, viewer: Viewer) -> None:
        """Give a viewer all that is known, and from now on all that is new."""
        viewer.put(_message("trail", list(self._trail)))
        for kind, content in self._kept.items():
            viewer.put(_message(kind, content))
        viewer.put(_message("commands", list(self._commands.values())))
        state = self.state()
        if state is not None:
            viewer.put(_message("state", state))
        self._viewers.add(viewer)

    def leave(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)
        if viewer.vote:
            self._count_soon()
        if viewer.role == "relay":  # with it the room is gone, and what it wanted
            self._take("votes", {"round": self._round, "counts": {}}, self._clock.now_s())

    def close(self) -> None:
        for timer in (self._tick, self._counting):
            if timer is not None:
                timer.cancel()

    # --- votes for the next fault: a viewer has one, and the operator sees how many there are ---

    def vote(self, viewer: Viewer, content: dict[str, Any]) -> None:
        """Take a viewer's vote instead of its last one. Raises ValidationError of msgspec."""
        viewer.vote = msgspec.convert(content, _Vote).action
        self._count_soon()

    def tally(self, content: dict[str, Any]) -> None:
        """Take how the room's viewers vote; of an earlier round it is too late.

        Raises ValidationError of msgspec.
        """
        votes = msgspec.convert(content, _Votes)
        if votes.round == self._round:
            self._take("votes", msgspec.to_builtins(votes), self._clock.now_s())

    def _count_soon(self) -> None:
        if self._counting is None:
            self._counting = self._loop.call_later(COUNT_S, self._count)

    def _count(self) -> None:
        self._counting = None
        counts = Counter(viewer.vote for viewer in self._viewers if viewer.vote)
        self.source.ask("votes", {"round": self._round, "counts": dict(counts)})

    def _begin_round(self, number: int) -> None:
        self._round = number
        for viewer in self._viewers:
            viewer.vote = ""

    # --- what the source says ---------------------------------------------------------------

    def _take(self, kind: str, content: Any, at_s: float) -> None:
        if kind == "votes":
            content = content or {"round": self._round + 1, "counts": {}}  # a fault begins
            if content["round"] != self._round:
                self._begin_round(content["round"])
        if kind == "state":
            self._remember(content, at_s)
            self._is_new = True
            if self._tick is None:
                wait_s = self._sent_s + PERIOD_S - self._clock.now_s()
                self._tick = self._loop.call_later(max(0.0, wait_s), self._send_state)
        elif kind == "trail":  # of another place in a recording: what was about to be sent is old
            self._is_new = False
            self._trail = deque(content, maxlen=TRAIL_POINTS)
            self._send(kind, list(self._trail))
        elif kind == "past":
            self.past.clear()
            self.past.extend(content)
        elif kind == "commands":
            self._commands = {one["id"]: one for one in content[-COMMANDS:]}
            self._send(kind, list(self._commands.values()))
        elif kind == "command":
            self._commands[content["id"]] = content  # in its place: the last sent stays the last
            while len(self._commands) > COMMANDS:
                self._commands.pop(next(iter(self._commands)))
            self._send(kind, content)
        elif self._kept.get(kind) != content:
            self._kept[kind] = content
            self._send(kind, content)

    def _remember(self, state: dict[str, Any], at_s: float) -> None:
        before = self._state
        if before is not None and before["boot_id"] != state["boot_id"]:
            self._trail.clear()  # another flight: its origin is its own pad
            self.past.clear()
        if not self.past or state["t_s"] - self.past[-1]["t_s"] >= PAST_STEP_S:
            self.past.append(plotted(state))
        self._state, self._seen_s = state, at_s
        self._heard.set()
        here = tuple(state["position_ned_m"])
        if (
            not self._trail
            or max(abs(a - b) for a, b in zip(here, self._trail[-1], strict=True)) > TRAIL_STEP_M
        ):
            self._trail.append(here)

    def _send_state(self) -> None:
        self._tick = None
        self._sent_s = self._clock.now_s()
        if self._is_new and self._viewers:
            self._send("state", self.state())
        self._is_new = False

    def _send(self, kind: str, content: Any) -> None:
        if self._viewers:
            text = _message(kind, content)
            for viewer in self._viewers:
                viewer.put(text)


@ready
class _Vote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    action: Votable


@ready
class _Votes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    round: int
    counts: dict[Votable, Annotated[int, msgspec.Meta(ge=0, le=MOST_VOTES)]]


def _older(state: dict[str, Any], by_s: float) -> dict[str, Any]:
    """Return `state` with every age `by_s` greater."""

    def aged(sensor: dict[str, Any]) -> dict[str, Any]:
        age_s = sensor["age_s"]
        return sensor | {"age_s": None if age_s is None else age_s + by_s}

    return state | {
        "age_s": state["age_s"] + by_s,
        "ages": {name: age_s + by_s for name, age_s in state["ages"].items()},
        "sensors": {name: aged(sensor) for name, sensor in state["sensors"].items()},
    }


def _message(kind: str, content: Any) -> str:
    return _encode({"kind": kind, "content": content}).decode()
