"""A ship flown by hand from the page: a gamepad's or the keyboard's sticks, 20 times a second.

Each demand is absolute and the newest wins: here, where one is sent at a time; in the queue, where
a newer one supersedes those that wait; and on board, where each ends by itself after `DEMAND_S`.
They pass every mission in the queue. A viewer that lets go, or is silent, leaves a ship that holds.
"""

import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import BlimpError
from blimp.reading import ready
from blimp.tasks.reply import Reply
from ground_station.page.state import Hear
from ground_station.plain import Ship

PERIOD_S = 0.05
DEMAND_S = 0.5  # on board; without a newer one the ship lets go by itself
TTL_S = 0.5  # in the queue
SILENT_S = 0.4  # a viewer that is silent for longer has let go
ANSWER_S = 0.5
REST_S = 3.0
DROP_S = 2.0

Percent = Annotated[float, Meta(ge=-100.0, le=100.0)]


@ready
class Sticks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the sticks of one grip are; a grip lasts from taking them to letting go.

    values: the arguments of `stick` or `velocity`; in MANUAL the throttles by the motors' names.
    """

    grip: Annotated[str, Meta(min_length=1, max_length=40)]
    mode: Literal["MANUAL", "STABILIZE", "ALTHOLD", "VELOCITY"]
    values: Annotated[dict[str, Percent], Meta(max_length=16)] = {}
    release: bool = False


class Joystick(Closing):
    """Sends the sticks of one viewer at a time; `fly` runs in a thread of its own.

    open_ship: returns the connection to the ship.
    """

    def __init__(self, open_ship: Callable[[], Ship], *, clock: Clock) -> None:
        self._open_ship = open_ship
        self._clock = clock
        self._news = threading.Condition()
        self._newest: Sticks | None = None
        self._grip = ""  # whose sticks count now
        self._ended = ""  # has ended: what it still sends moves nothing
        self._is_dropped = False
        self._is_closing = False

    def take(self, content: dict[str, Any]) -> None:
        """Take a viewer's sticks, from any thread; returns at once. Raises ValidationError."""
        sticks = msgspec.convert(content, Sticks)
        with self._news:
            is_mine = sticks.grip == self._grip if self._grip else not sticks.release
            if is_mine and sticks.grip != self._ended:
                self._grip, self._newest = sticks.grip, sticks
                self._news.notify_all()

    def drop(self) -> None:
        """Let go without holding, before another command goes out: that one is the newest."""
        with self._news:
            if self._grip:
                self._is_dropped = True
                self._news.notify_all()
                self._news.wait_for(lambda: not self._grip, timeout=DROP_S)

    def close(self) -> None:
        with self._news:
            self._is_closing = True
            self._news.notify_all()

    def fly(self, hear: Hear) -> None:
        """Fly by the sticks that are taken, until `close`."""
        while not self._is_closing:
            first = self._next(None)
            if first is None:
                continue
            status = {"grip": first.grip, "mode": first.mode, "reason": ""}
            hear("joystick", status | {"flying": True})
            try:
                reason = self._follow(self._open_ship(), first)
            except BlimpError as error:
                reason = str(error)
            with self._news:
                self._ended, self._grip, self._newest = self._grip, "", None
                self._is_dropped = False
                self._news.notify_all()
            hear("joystick", status | {"flying": False, "reason": reason})

    def _next(self, within_s: float | None) -> Sticks | None:
        """Return the newest sticks, as soon as there are some; None if none come, or at the end."""
        with self._news:
            self._news.wait_for(
                lambda: self._newest is not None or self._is_dropped or self._is_closing,
                timeout=within_s,
            )
            found, self._newest = self._newest, None
            return None if self._is_dropped or self._is_closing else found

    def _follow(self, ship: Ship, first: Sticks) -> str:
        """Send one grip's sticks; return why it ended, "" if the viewer let go."""
        if first.mode != "VELOCITY":
            mode = {"name": first.mode}
            reply = ship.command("mode", mode, timeout_s=REST_S, coalesce="joystick mode")
            if reply.state != "SUCCESS":
                return _words(reply)
        sticks: Sticks | None = first
        while sticks is not None and not sticks.release and not self._is_dropped:
            next_s = self._clock.now_s() + PERIOD_S
            refused = ship.push(_commands(sticks, seconds=DEMAND_S), ttl_s=TTL_S)
            if refused is not None:  # which another has sent elsewhere: it is not held
                return _words(refused)
            self._clock.sleep_until(next_s)
            sticks = self._next(SILENT_S)
        if self._is_dropped:
            return "another command was sent"
        return _rest(ship, first, is_lost=sticks is None)


def _commands(sticks: Sticks, *, seconds: float) -> list[tuple[str, str, dict[str, Any]]]:
    """Return key, command and arguments of what the sticks ask for."""
    if sticks.mode == "MANUAL":
        return [
            (f"joystick {name}", "motor", {"name": name, "percent": percent, "seconds": seconds})
            for name, percent in sticks.values.items()
        ]
    task = "velocity" if sticks.mode == "VELOCITY" else "stick"
    return [("joystick", task, {**sticks.values, "seconds": seconds})]


def _rest(ship: Ship, first: Sticks, *, is_lost: bool) -> str:
    """Have the ship hold; return what to say of it, "" for nothing.

    After VELOCITY it keeps its place, which HOLD does not.
    """
    stop = msgspec.structs.replace(first, values=dict.fromkeys(first.values, 0.0))
    replies = []
    if first.mode in ("MANUAL", "VELOCITY"):
        for key, task, arguments in _commands(stop, seconds=0.0):
            replies.append(ship.command(task, arguments, timeout_s=ANSWER_S, coalesce=key))
    if first.mode != "VELOCITY" or any(one.state != "SUCCESS" for one in replies):
        reply = ship.command("hold", {}, timeout_s=REST_S, coalesce="joystick")
        if reply.state != "SUCCESS":
            return _words(reply)
    return "the page fell silent: the ship holds" if is_lost else ""


def _words(reply: Reply) -> str:
    return reply.reason or reply.state.lower()
