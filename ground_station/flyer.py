"""The one flyer of missions: leg after leg, even if parts of the queue fail.

The ship flies on its own between two commands, so a dead worker or broker is no emergency. What
becomes of a leg:

- SUCCESS: the next leg.
- An end that says nothing about the ship: the flyer waits until the ship answers, and sends the leg
  again with a new id. Legs are absolute, so a leg that is sent twice ends at the same place; of a
  velocity the rest of its time is sent.
- The ship refuses it or fails, or its time is over: the mission ends; in the air the ship holds.
- Another command or pilot flies the ship now: the mission ends, and sends nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from blimp.actions import ACTIONS, START_TTL_S, Progress
from blimp.errors import ControlUnknown, LinkError, NotInControl, OutcomeUnknown
from blimp.tasks.reply import Reply
from ground_station.following import OUTAGE_S, RETRY_S
from ground_station.legs import Goto, Land, Leg, Takeoff, Velocity
from ground_station.mission_file import Mission
from ground_station.track import TrackLeg

SHORT_LIMIT_S = 15.0
# The last word of an argument's name is its unit.
_UNITS = {"mps": "m/s", "deg": "°", "us": "µs", "seconds": "s"}
LEG_LIMIT_S = 120.0  # for a leg without length; longer legs get extra time for their distance
SECONDS_PER_METRE = 10.0
MAX_ATTEMPTS = 6  # of one leg
PING_S = 2.0


class Way(Protocol):
    """What is used of `ground_station.ship.Transport`."""

    async def command(self, name: str, arguments: dict[str, Any], *, timeout_s: float) -> Reply: ...

    def now_s(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class MissionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the mission. stage: started, received, executing, waiting (for the
    link), again, or a final state."""

    leg: int  # from 1
    legs: int
    do: str
    words: str  # the leg as a person would type it
    spoken: str = ""  # and as a person would say it, with units
    stage: str
    fraction: float | None = None
    reason: str = ""


class LegReport(msgspec.Struct, frozen=True, kw_only=True):
    """How one leg went. id: that of the last task that was sent for it."""

    leg: int
    do: str
    state: str
    reason: str = ""
    id: str = ""
    attempts: int = 1
    duration_s: float = 0.0


class MissionResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a mission went: SUCCESS, or the state in which its last leg ended.

    replies: every task that was sent, pings and second attempts included.
    ousted: it ended because another pilot holds control of the ship.
    """

    name: str
    legs: int
    completed: int
    state: str
    reason: str
    reports: tuple[LegReport, ...]
    replies: tuple[Reply, ...]
    duration_s: float
    ousted: bool = False

    @property
    def ok(self) -> bool:
        return self.state == "SUCCESS"


class Flyer:
    """Flies one mission, once.

    first: the leg to begin with. on_event: called with every step. outage_s: how long the ship may
    be silent in mid-mission. timeout_s: the time the whole mission may take; None for what its legs
    may take. `error`: of the last leg, if its reply did not come; else `reply` has its end.
    """

    def __init__(
        self,
        way: Way,
        mission: Mission,
        *,
        first: int = 1,
        on_event: Callable[[MissionEvent], object] = lambda _: None,
        outage_s: float = OUTAGE_S,
        timeout_s: float | None = None,
    ) -> None:
        self._way = way
        self._mission = mission
        self._first = first
        self._on_event = on_event
        self._outage_s = outage_s
        self._timeout_s = timeout_s
        self._end_s = math.inf
        self._track = mission.track()
        self._under_way: tuple[int, Leg] | None = None
        self._replies: list[Reply] = []
        self.reply: Reply | None = None
        self.error: LinkError | None = None
        self.held = ""  # what became of the hold, if one was sent

    async def fly(self) -> MissionResult:
        """Fly every leg; return how it went. A refusal or failure ends it and, in the air, holds.

        Ctrl-C does so too, with state INTERRUPTED. A cancelled task sends nothing more.
        """
        began_s = self._way.now_s()
        self._end_s = math.inf if self._timeout_s is None else began_s + self._timeout_s
        reports: list[LegReport] = []
        flying = self._first > 1
        legs = list(enumerate(self._mission.legs, start=1))[self._first - 1 :]
        try:
            for number, leg in legs:
                on_the_pad = not flying
                flying = flying or isinstance(leg, Takeoff)  # from its first moment on
                reports.append(await self._fly(number, leg))
                if reports[-1].state != "SUCCESS":
                    flying = flying and not (on_the_pad and reports[-1].state == "REFUSED")
                    break
                flying = flying and not isinstance(leg, Land)
        except KeyboardInterrupt:
            number, leg = legs[len(reports)]
            reason = "stopped by the operator"
            self.reply = Reply(id="", task=leg.do, state="INTERRUPTED", reason=reason)
            reports.append(LegReport(leg=number, do=leg.do, state="INTERRUPTED", reason=reason))
        last = reports[-1]
        reason = "" if last.state == "SUCCESS" else f"leg {last.leg} ({last.do}): {last.reason}"
        if last.state != "SUCCESS" and flying and not self._is_taken_over:
            self.held = await self._hold()
            reason += f"; {self.held}"
        return MissionResult(
            name=self._mission.name,
            legs=len(self._mission.legs),
            completed=sum(1 for report in reports if report.state == "SUCCESS"),
            state=last.state,
            reason=reason,
            reports=tuple(reports),
            replies=tuple(self._replies),
            duration_s=self._way.now_s() - began_s,
            ousted=self._is_ousted,
        )

    @property
    def _is_ousted(self) -> bool:
        return self.reply is not None and self.reply.kind == NotInControl.__name__

    @property
    def _is_taken_over(self) -> bool:
        """Say whether another pilot or command flies the ship now: it must not be disturbed."""
        reply = self.reply
        is_replaced = reply is not None and (
            reply.state == "SUPERSEDED" or reply.reason.startswith("superseded")
        )
        return is_replaced or self._is_ousted

    # --- one leg --------------------------------------------------------------------------

    async def _fly(self, number: int, leg: Leg) -> LegReport:
        began_s = self._way.now_s()
        deadline_s = min(self._end_s, began_s + limit_s(leg, self._track.get(number)))
        self._report(number, leg, "started")
        reply, attempts = await self._end_of(number, leg, deadline_s)
        now_s = self._way.now_s()
        if reply.state == "TIMEOUT" and now_s >= deadline_s:
            reply = _timed_out(reply, f"{self._over(now_s)}: {reply.reason}".removesuffix(": "))
        elif reply.state == "SUCCESS" and leg.wait_s is not None:
            until_s = now_s + leg.wait_s
            await self._way.sleep(min(self._end_s, until_s) - now_s)
            if until_s > self._end_s:
                reply = _timed_out(reply, self._over(self._end_s))
        self.reply = reply
        self._report(number, leg, reply.state, reason=reply.reason)
        return LegReport(
            leg=number,
            do=leg.do,
            state=reply.state,
            reason=reply.reason,
            id=reply.id,
            attempts=attempts,
            duration_s=self._way.now_s() - began_s,
        )

    async def _end_of(self, number: int, leg: Leg, deadline_s: float) -> tuple[Reply, int]:
        """Send a leg, again if its end says nothing; return how it ended, and after how many."""
        attempts, before, rest = 0, "", leg
        reply = Reply(id="", task=leg.do, state="TIMEOUT")
        while (sent_s := self._way.now_s()) < deadline_s:
            attempts += 1
            self._under_way = number, leg
            timeout_s = deadline_s - sent_s
            reply, self.error = await self._send(rest.do, rest.arguments(), timeout_s=timeout_s)
            self._under_way = None
            done = not _says_nothing(reply, self.error) or attempts >= MAX_ATTEMPTS
            if done or self._way.now_s() >= deadline_s:
                break
            before = reply.reason
            self._report(number, leg, "again", reason=before)
            if isinstance(rest, Velocity) and _has_begun(reply):
                rest = _rest_of(rest, self._way.now_s() - sent_s)
            if not await self._wait_for_ship():
                silent = f"the ship was silent for {self._outage_s:g} s after that"
                return _timed_out(reply, f"{before}; {silent}"), attempts
        if reply.state != "SUCCESS" and before not in reply.reason:
            reason = f"{reply.reason}; it was sent again after: {before}"
            reply = msgspec.structs.replace(reply, reason=reason)
        return reply, attempts

    def _over(self, now_s: float) -> str:
        is_all_over = now_s >= self._end_s
        return "the mission's time is over" if is_all_over else "it did not end in its time"

    async def _send(
        self, do: str, arguments: dict[str, Any], *, timeout_s: float
    ) -> tuple[Reply, LinkError | None]:
        """Send a command; return its reply, or TIMEOUT and why none comes."""
        try:
            reply = await self._way.command(do, arguments, timeout_s=timeout_s)
        except LinkError as error:
            id = error.id if isinstance(error, OutcomeUnknown) else ""
            return Reply(id=id, task=do, state="TIMEOUT", reason=str(error)), error
        self._replies.append(reply)
        return reply, None

    # --- the ship -------------------------------------------------------------------------

    async def _wait_for_ship(self) -> bool:
        """Return once worker and flight process answer; False after `outage_s`."""
        until_s = self._way.now_s() + self._outage_s
        while self._way.now_s() < until_s:
            reply, _ = await self._send("ping", {}, timeout_s=PING_S)
            if reply.state == "SUCCESS":
                return True
            await self._way.sleep(RETRY_S)
        return False

    async def _hold(self) -> str:
        """Make the ship hold its place, and return the outcome."""
        reply, _ = await self._send("hold", {}, timeout_s=START_TTL_S)
        if reply.state == "SUCCESS":
            return "the ship holds its place"
        return f"hold ended {reply.state}: {reply.reason}".removesuffix(": ")

    def hear(self, stage: str, fraction: float | None = None, reason: str = "") -> None:
        """Tell what is heard of the leg that is under way."""
        if self._under_way is not None:
            self._report(*self._under_way, stage, fraction=fraction, reason=reason)

    def _report(
        self, number: int, leg: Leg, stage: str, *, fraction: float | None = None, reason: str = ""
    ) -> None:
        self._on_event(
            MissionEvent(
                leg=number,
                legs=len(self._mission.legs),
                do=leg.do,
                words=leg_words(leg),
                spoken=leg_speech(leg),
                stage=stage,
                fraction=fraction,
                reason=reason,
            )
        )


def _timed_out(reply: Reply, reason: str) -> Reply:
    return msgspec.structs.replace(reply, state="TIMEOUT", reason=reason)


def _says_nothing(reply: Reply, error: LinkError | None) -> bool:
    """Say whether an end says nothing about the ship, which may be there again in a moment."""
    if isinstance(error, OutcomeUnknown):  # it was waited for long enough
        return False
    is_unknown = reply.kind == ControlUnknown.__name__
    return is_unknown or reply.state in ("EXPIRED", "INTERRUPTED", "TIMEOUT")


def _has_begun(reply: Reply) -> bool:
    """Say whether a leg whose end says nothing had begun."""
    is_accepted = reply.state == "TIMEOUT" and reply.latency_ms is not None
    return is_accepted or reply.state == "INTERRUPTED"


def _rest_of(leg: Velocity, flown_s: float) -> Velocity:
    """Return the rest of a velocity leg, the only leg that is not absolute."""
    return msgspec.structs.replace(leg, seconds=max(0.1, leg.seconds - flown_s))


def leg_words(leg: Leg) -> str:
    """Return a leg as it would be typed: "goto 10 0 3"."""
    found = leg.arguments().values()
    words = [f"{value:g}" if isinstance(value, float | int) else value for value in found]
    return " ".join([leg.do, *(word for word in words if isinstance(word, str))])


def leg_speech(leg: Leg) -> str:
    """Return a leg as it would be said: "goto 10 m north, 0 m east, 3 m altitude"."""
    parts = []
    for name, value in leg.arguments().items():
        what, _, unit = name.rpartition("_")
        if isinstance(value, float | int):
            parts.append(f"{value:g} {_UNITS.get(unit, unit)} {what}".rstrip())
    return f"{leg.do} {', '.join(parts)}".rstrip()


def limit_s(leg: Leg, line: TrackLeg | None) -> float:
    """Return the time a leg may take before the mission gives it up."""
    if ACTIONS[leg.do].progress is not Progress.WAY:
        lasts_s: float = leg.arguments().get("seconds", 0.0)
        return lasts_s + SHORT_LIMIT_S + OUTAGE_S
    if line is None:
        return 2.0 * LEG_LIMIT_S
    length_m = math.dist(line.start, line.end)
    speed_mps = leg.speed_mps if isinstance(leg, Goto) else None
    per_metre_s = max(SECONDS_PER_METRE, 2.0 / speed_mps if speed_mps else 0.0)
    return LEG_LIMIT_S + per_metre_s * length_m
