"""Flying a mission: leg after leg through the queue, even if parts of the queue fail.

The ship flies on its own between two commands, so a dead worker or broker is no emergency. The
runner waits until the ship answers again and asks how the leg ended. If that can no longer be
known, it sends the leg again with a new id. Legs are absolute, so a leg that is sent twice ends at
the same place. A leg that the ship refuses or fails ends the mission in a hold.
"""

import contextlib
import math
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from blimp.clock import Clock
from blimp.errors import ControlUnknown, LinkError, NotInControl
from blimp.tasks.client import Reply
from ground_station.legs import Goto, Land, Leg, Takeoff, Velocity
from ground_station.mission_file import (
    Mission,
    builtin_missions,
    load_mission,
    parse_mission,
)
from ground_station.track import TrackLeg

__all__ = [
    "LegReport",
    "Mission",
    "MissionEvent",
    "MissionResult",
    "MissionRunner",
    "builtin_missions",
    "load_mission",
    "parse_mission",
]

START_TTL_S = 5.0  # a leg that has not begun by then must not begin
SHORT_LIMIT_S = 15.0
# The last word of an argument's name is its unit.
_UNITS = {"mps": "m/s", "deg": "°", "us": "µs", "seconds": "s"}
LEG_LIMIT_S = 120.0  # for a leg without length; longer legs get extra time for their distance
SECONDS_PER_METRE = 10.0
MAX_ATTEMPTS = 6  # of one leg
OUTAGE_S = 20.0  # how long all of broker, worker and ship may be silent
SLICE_S = 0.5
QUIET_S = 30.0  # a started leg without any report for this long may be lost
PING_S = 2.0
RETRY_PAUSE_S = 0.25

_ANSWERS = ("SUCCESS", "REFUSED", "FAILURE")


class Pending(Protocol):
    """A task that was sent; see `blimp.tasks.client.Pending`."""

    @property
    def id(self) -> str: ...

    def wait(
        self, timeout_s: float, on_progress: Callable[[str, float | None], None] | None = None
    ) -> Reply: ...

    def close(self) -> None: ...


class MissionClient(Protocol):
    """What the runner needs of `blimp.tasks.client.VehicleClient`."""

    def send(
        self, task: str, arguments: dict[str, Any] | None = None, *, ttl_s: float = ...
    ) -> Pending: ...

    def result(self, id: str) -> Reply:
        """Return what is known of a task now; state TIMEOUT if it has not ended."""
        ...


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


class _Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How one attempt at a leg ended. again: whether it may be sent again."""

    state: str
    reason: str
    id: str = ""
    again: bool = False


class LegReports:
    """The last report of a task, and when silence means that the task is lost.

    A task without any report cannot start any more once its time to live is over. A task that
    has started is redelivered when its worker comes back; it stays silent only if its message
    is lost.
    """

    def __init__(self, *, began_s: float) -> None:
        self._reported_s = began_s
        self._last: tuple[str, float | None] | None = None

    def news(self, stage: str, fraction: float | None, now_s: float) -> bool:
        """Record a step; return False if it adds nothing to the last one."""
        if stage == "queued" or (stage, fraction) == self._last:
            return False
        self._last, self._reported_s = (stage, fraction), now_s
        return True

    def silent(self, now_s: float) -> bool:
        return now_s - self._reported_s > self._patience_s

    @property
    def lost_state(self) -> str:
        return "EXPIRED" if self._last is None else "INTERRUPTED"

    @property
    def _patience_s(self) -> float:
        return START_TTL_S + 1.0 if self._last is None else QUIET_S

    def trouble(self) -> str:
        return f"no report of it for {self._patience_s:g} s"


class MissionRunner:
    """Flies one mission, once. `run` may be called from any thread.

    on_event: called with every step, in the thread of `run`.
    outage_s: how long the way to the ship may be cut in mid-mission.
    timeout_s: the time the whole mission may take; None for what its legs may take.
    """

    def __init__(
        self,
        *,
        client: MissionClient,
        mission: Mission,
        clock: Clock,
        on_event: Callable[[MissionEvent], None] | None = None,
        outage_s: float = OUTAGE_S,
        timeout_s: float | None = None,
    ) -> None:
        self._client = client
        self._mission = mission
        self._clock = clock
        self._on_event = on_event
        self._outage_s = outage_s
        self._timeout_s = timeout_s
        self._end_s = math.inf
        self._track = mission.track()
        self._replies: list[Reply] = []
        self._ousted = False

    def run(self) -> MissionResult:
        """Fly every leg. A refusal or failure ends the mission and, in the air, holds.

        Ctrl-C does so too, with state INTERRUPTED. Raises nothing that the link does.
        """
        began_s = self._clock.now_s()
        self._end_s = math.inf if self._timeout_s is None else began_s + self._timeout_s
        reports: list[LegReport] = []
        flying = False
        try:
            for number, leg in enumerate(self._mission.legs, start=1):
                on_the_pad = not flying
                flying = flying or isinstance(leg, Takeoff)  # from its first moment on
                reports.append(self._fly(number, leg))
                if reports[-1].state != "SUCCESS":
                    flying = flying and not (on_the_pad and reports[-1].state == "REFUSED")
                    break
                flying = flying and not isinstance(leg, Land)
        except KeyboardInterrupt:
            number = len(reports) + 1
            do = self._mission.legs[number - 1].do
            reports.append(
                LegReport(leg=number, do=do, state="INTERRUPTED", reason="stopped by the operator")
            )
        last = reports[-1]
        reason = "" if last.state == "SUCCESS" else f"leg {last.leg} ({last.do}): {last.reason}"
        # Another pilot commands the ship now, so the mission must not command it any more.
        taken_over = self._ousted or last.reason.startswith("superseded")
        if last.state != "SUCCESS" and flying and not taken_over:
            reason += f"; {self._hold()}"
        return MissionResult(
            name=self._mission.name,
            legs=len(self._mission.legs),
            completed=sum(1 for report in reports if report.state == "SUCCESS"),
            state=last.state,
            reason=reason,
            reports=tuple(reports),
            replies=tuple(self._replies),
            duration_s=self._clock.now_s() - began_s,
            ousted=self._ousted,
        )

    # --- one leg --------------------------------------------------------------------------

    def _fly(self, number: int, leg: Leg) -> LegReport:
        began_s = self._clock.now_s()
        deadline_s = min(self._end_s, began_s + limit_s(leg, self._track.get(number)))
        self._report(number, leg, "started")
        attempts = 0
        remaining = leg
        while True:
            attempts += 1
            sent_s = self._clock.now_s()
            ended = self._attempt(number, remaining, deadline_s)
            done = not ended.again or attempts >= MAX_ATTEMPTS
            if done or self._clock.now_s() >= deadline_s:
                break
            self._report(number, leg, "again", reason=ended.reason)
            if isinstance(remaining, Velocity) and ended.state == "INTERRUPTED":
                remaining = _rest_of(remaining, self._clock.now_s() - sent_s)
            if not self._wait_for_ship():
                reason = f"{ended.reason}; the ship was silent for {self._outage_s:g} s after that"
                ended = _Ended(state="TIMEOUT", reason=reason, id=ended.id)
                break
        if ended.state == "SUCCESS" and leg.wait_s is not None:
            until_s = self._clock.now_s() + leg.wait_s
            self._clock.sleep_until(min(self._end_s, until_s))
            if until_s > self._end_s:
                reason = "the mission's time is over"
                ended = _Ended(state="TIMEOUT", reason=reason, id=ended.id)
        self._report(number, leg, ended.state, reason=ended.reason)
        return LegReport(
            leg=number,
            do=leg.do,
            state=ended.state,
            reason=ended.reason,
            id=ended.id,
            attempts=attempts,
            duration_s=self._clock.now_s() - began_s,
        )

    def _attempt(self, number: int, leg: Leg, deadline_s: float) -> _Ended:
        """Send `leg` once and wait until its end is known, or can no longer be known."""
        try:
            pending = self._client.send(leg.do, leg.arguments(), ttl_s=START_TTL_S)
        except LinkError as error:
            return _Ended(state="TIMEOUT", reason=str(error), again=True)
        with contextlib.closing(pending):
            ended = self._follow(number, leg, pending, deadline_s)
        return msgspec.structs.replace(ended, id=pending.id)

    def _follow(self, number: int, leg: Leg, pending: Pending, deadline_s: float) -> _Ended:
        reports = LegReports(began_s=self._clock.now_s())

        def report(stage: str, fraction: float | None) -> None:
            if reports.news(stage, fraction, self._clock.now_s()):
                self._report(number, leg, stage, fraction=fraction)

        while self._clock.now_s() < deadline_s:
            try:
                reply = pending.wait(SLICE_S, report)
                if (
                    reply.state == "TIMEOUT"
                    and reports.silent(self._clock.now_s())
                    and self._answers()
                ):
                    reply = self._client.result(pending.id)
                    if reply.state == "TIMEOUT":
                        reason = f"{reports.trouble()}, though the ship answers: considered lost"
                        return _Ended(state=reports.lost_state, reason=reason, again=True)
            except LinkError as error:
                self._report(number, leg, "waiting", reason=str(error))
                if not self._wait_for_ship():
                    reason = f"{error}; silent for {self._outage_s:g} s after that"
                    return _Ended(state="TIMEOUT", reason=reason)
                continue
            if reply.state != "TIMEOUT":
                self._replies.append(reply)
                self._ousted = reply.kind == NotInControl.__name__
                again = reply.state not in _ANSWERS or reply.kind == ControlUnknown.__name__
                return _Ended(state=reply.state, reason=reply.reason, again=again)
        over = self._clock.now_s() >= self._end_s
        reason = "the mission's time is over" if over else "it did not end in its time"
        return _Ended(state="TIMEOUT", reason=reason)

    # --- the ship -------------------------------------------------------------------------

    def _answers(self) -> bool:
        """Ask once whether worker and flight process are there."""
        reply = self._ask("ping", PING_S)
        return reply is not None and reply.state == "SUCCESS"

    def _ask(self, task: str, timeout_s: float) -> Reply | None:
        """Send a short task; return its reply, None if none comes in time."""
        try:
            with contextlib.closing(self._client.send(task, {}, ttl_s=timeout_s)) as pending:
                reply = pending.wait(timeout_s)
        except LinkError:
            return None
        self._replies.append(reply)
        return reply

    def _wait_for_ship(self) -> bool:
        deadline_s = self._clock.now_s() + self._outage_s
        while self._clock.now_s() < deadline_s:
            if self._answers():
                return True
            self._clock.sleep_until(self._clock.now_s() + RETRY_PAUSE_S)
        return False

    def _hold(self) -> str:
        """Make the ship hold its place, and return the outcome."""
        reply = self._ask("hold", START_TTL_S)
        if reply is None:
            return "hold was not confirmed"
        if reply.state == "SUCCESS":
            return "the ship holds its place"
        why = f": {reply.reason}" if reply.reason else ""
        return f"hold ended {reply.state}{why}"

    def _report(
        self, number: int, leg: Leg, stage: str, *, fraction: float | None = None, reason: str = ""
    ) -> None:
        if self._on_event is not None:
            event = MissionEvent(
                leg=number,
                legs=len(self._mission.legs),
                do=leg.do,
                words=leg_words(leg),
                spoken=leg_speech(leg),
                stage=stage,
                fraction=fraction,
                reason=reason,
            )
            self._on_event(event)


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
    if leg.do in ("geofence", "arm", "disarm", "hold", "payload"):
        return SHORT_LIMIT_S + OUTAGE_S
    if isinstance(leg, Velocity):
        return leg.seconds + SHORT_LIMIT_S + OUTAGE_S
    if line is None:
        return 2.0 * LEG_LIMIT_S
    length_m = math.dist(line.start, line.end)
    speed_mps = leg.speed_mps if isinstance(leg, Goto) else None
    per_metre_s = max(SECONDS_PER_METRE, 2.0 / speed_mps if speed_mps else 0.0)
    return LEG_LIMIT_S + per_metre_s * length_m
