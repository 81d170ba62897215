"""A recorded flight as the page shows it: played at any speed, from any place. No ship is there."""

import bisect
import threading
from typing import Annotated, Any

import msgspec

from blimp.airframe import from_table
from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import LogError
from blimp.reading import ready
from blimp.recording.player import MAX_SPEED, SHOWN, Player
from blimp.recording.recording import Entry, Recording, snapshot_of
from blimp.types import OutcomeState
from ground_station import report
from ground_station.page.journey import QUESTIONS, STREAMED
from ground_station.page.room import TRAIL_POINTS, TRAIL_STEP_M
from ground_station.page.source import Source
from ground_station.page.state import (
    EVENTS,
    PAST_S,
    PAST_STEP_S,
    Hear,
    airframe_object,
    plotted,
    state_object,
)
from ground_station.report import Outcome, event_object
from ground_station.stops import NoShip

TICK_S = 0.05
STILL_S = 0.25  # while it stands still: repeated, so that nothing seems to age
MAX_MARKS = 1000
_STATES = {
    OutcomeState.DONE: "SUCCESS",
    OutcomeState.REFUSED: "REFUSED",
    OutcomeState.IN_PROGRESS: "PROGRESS",
}


class RecordedShip(Closing):
    """The ship of a recording, as `Ships` and as the `Source` of the only one there is.

    It is read once, so that what is damaged is found now. Playing begins at `speed`, times real
    time, when the first browser looks; 0 stands still. Raises LogError for what cannot be shown.
    """

    is_live = False

    def __init__(self, log: Recording, *, speed: float, clock: Clock) -> None:
        self.vehicle = log.session.vehicle
        self._reason = f"this is a recording of {self.vehicle}: there is no ship to command"
        self.stoppable = NoShip(self._reason)
        self._log = log
        self._speed = speed
        self._story = Story(log)
        self._player = Player(log, clock=clock)
        self._status = self._story.first
        self._commands = Commands()
        self._has_begun = False
        self._shown = -1  # how many happenings
        self._wishes: dict[str, float] = {}  # the newest of each kind
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    # --- the ship ---------------------------------------------------------------------------

    def vehicles(self) -> list[str]:
        return [self.vehicle]

    def about(self, vehicle: str) -> dict[str, Any]:  # noqa: ARG002 - there is one
        """Return the ship's shape and limits; nothing if the log has none that can be read."""
        try:
            airframe = from_table(self._log.session.airframe)
        except msgspec.ValidationError:
            return {}
        return {"airframe": airframe_object(airframe)}

    def source(self, vehicle: str) -> Source:  # noqa: ARG002
        return self

    def command(
        self, vehicle: str, name: str, arguments: dict[str, Any]  # noqa: ARG002
    ) -> tuple[int, dict[str, Any]]:  # fmt: skip
        outcome = Outcome(id=None, task=f"blimp.{name}"[:80], state="REFUSED", reason=self._reason)
        return report.REFUSED, msgspec.to_builtins(outcome)

    # --- the source -------------------------------------------------------------------------

    def start(self, hear: Hear) -> None:
        self._thread = threading.Thread(target=self._run, args=(hear,), name="replay", daemon=True)
        self._thread.start()

    def ask(self, kind: str, content: dict[str, Any]) -> None:
        """Take a wish: "begin", "play" with `speed`, "seek" with `t_s`."""
        if kind == "play":
            value = msgspec.convert(content, _Play).speed
        elif kind == "seek":
            value = msgspec.convert(content, _Seek).t_s
        elif kind == "begin":
            value = self._speed
        else:
            return
        with self._lock:
            self._wishes[kind] = value
        self._wake.set()

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, hear: Hear) -> None:
        hear(
            "recording",
            {
                "name": self._log.path.name,
                "started": self._log.metadata.get("started", ""),
                "duration_s": self._player.duration_s,
                "speed": self._speed,
                "marks": self._story.marks,
            },
        )
        while not self._is_closed:
            try:
                self._take(hear)
                self._tell(hear)
            except (LogError, msgspec.MsgspecError) as error:  # the file was changed meanwhile
                self._player.play(0.0)
                hear("caption", {"text": str(error)})
            self._wake.wait(TICK_S if self._player.speed else STILL_S)
            self._wake.clear()

    def _take(self, hear: Hear) -> None:
        with self._lock:
            wishes, self._wishes = self._wishes, {}
        if "seek" in wishes:
            self._go(wishes["seek"], hear)
        if "begin" in wishes and not self._has_begun:
            wishes.setdefault("play", wishes["begin"])
        if "play" in wishes:
            self._has_begun = True
            if self._player.at_end and wishes["play"]:
                self._go(0.0, hear)
            self._player.play(wishes["play"])

    def _go(self, t_s: float, hear: Hear) -> None:
        """Go to a place, and tell what led to it."""
        self._player.seek(t_s)
        here_s = self._player.position_s
        self._status = self._story.first
        self._commands = Commands()
        for entry in self._story.commands:
            if entry.t_s <= here_s:
                self._commands.take(entry)
        hear("past", self._story.past(here_s))
        hear("trail", self._story.trail(here_s))
        hear("commands", self._commands.documents())
        self._tell_events(here_s, hear)

    def _tell(self, hear: Hear) -> None:
        for entry in self._player.due():
            if entry.topic == "/status":
                self._status = entry
            elif document := self._commands.take(entry):
                hear("command", document)
        position_s = self._player.position_s
        self._tell_events(position_s, hear)
        if self._player.at_end:
            self._player.play(0.0)
        age_s = max(0.0, position_s - self._status.t_s)
        hear("state", state_object(snapshot_of(self._status.data), age_s))
        hear("replay", {"position_s": position_s, "speed": self._player.speed})

    def _tell_events(self, until_s: float, hear: Hear) -> None:
        """Tell what has happened up to a place, if that is not what was said last."""
        count = bisect.bisect_right(self._story.happened, until_s, key=lambda one: one["t_s"])
        if count != self._shown:
            self._shown = count
            hear("events", self._story.happened[max(0, count - EVENTS) : count])


class Story:
    """What a recording holds beside its states: track, commands, marks, and what plots begin with.

    Raises LogError.
    """

    def __init__(self, log: Recording) -> None:
        self.commands: list[Entry] = []
        self.marks: list[dict[str, Any]] = []
        self._track: list[tuple[float, tuple[float, float, float]]] = []
        self._past: list[tuple[float, dict[str, Any]]] = []
        first = None
        checked = Commands()
        try:
            for entry in log.entries(SHOWN):
                if entry.topic == "/status":
                    first = first or entry
                    self._pass(entry)
                elif checked.take(entry):
                    self.commands.append(entry)
        except (msgspec.MsgspecError, LookupError, TypeError) as error:
            raise LogError(f"log {log.path}: the description of its flight: {error}") from error
        if first is None:
            raise LogError(f"log {log.path}: no status is in it, so there is nothing to show")
        self.first = first
        self.happened = [event_object(one.happening, t_s=one.t_s) for one in log.timeline()]
        marks = [one for one in self.happened if one["kind"] == "command" or one["is_fault"]]
        self.marks = marks[:: len(marks) // MAX_MARKS + 1]

    def trail(self, until_s: float) -> list[tuple[float, float, float]]:
        """Return where the ship was, NED in m, up to a time since the recording's beginning."""
        return [place for t_s, place in self._track if t_s <= until_s][-TRAIL_POINTS:]

    def past(self, until_s: float) -> list[dict[str, Any]]:
        """Return what the plots show of the last two minutes before a time."""
        return [one for t_s, one in self._past if until_s - PAST_S < t_s <= until_s]

    def _pass(self, entry: Entry) -> None:
        snapshot = snapshot_of(entry.data)
        if not self._past or entry.t_s - self._past[-1][0] >= PAST_STEP_S:
            self._past.append((entry.t_s, plotted(state_object(snapshot, 0.0))))
        here = snapshot.position_ned_m
        last = self._track[-1][1] if self._track else None
        if last is None or any(abs(a - b) > TRAIL_STEP_M for a, b in zip(here, last, strict=True)):
            self._track.append((entry.t_s, here))


class Commands:
    """The commands of a recording up to a place in it, as the panels know them (`Journey`).

    Of their way only the arrival at the flight loop is recorded. Questions and the setpoints of a
    joystick are left out.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def take(self, entry: Entry) -> dict[str, Any] | None:
        """Return the command as it is after `entry`; None if that changes none."""
        if entry.topic == "/command":
            command = msgspec.convert(entry.data, _Command)
            if command.name in (*QUESTIONS, *STREAMED):
                return None
            stages = {"keyboard": 0.0}
            if command.waited_s is not None:
                stages["flight"] = round(1e3 * (command.age_s + command.waited_s), 2)
            self._known[command.id] = {
                "id": command.id,
                "command": command.name,
                "arguments": command.arguments,
                "source": command.source,
                "stages": stages,
                "state": "STARTED",
                "reason": "",
                "fraction": None,
                "done_ms": None,
            }
            return self._known[command.id]
        if entry.topic == "/outcome":
            outcome = msgspec.convert(entry.data, _Outcome)
            known = self._known.get(outcome.id)
            if known is None:
                return None
            changed = known | {
                "state": _STATES[outcome.state],
                "reason": outcome.reason,
                "fraction": outcome.fraction,
            }
            self._known[outcome.id] = changed
            return changed
        return None

    def documents(self) -> list[dict[str, Any]]:
        return list(self._known.values())


@ready
class _Play(msgspec.Struct, frozen=True):
    speed: Annotated[float, msgspec.Meta(ge=0.0, le=MAX_SPEED)]


@ready
class _Seek(msgspec.Struct, frozen=True):
    t_s: float


@ready
class _Command(msgspec.Struct, frozen=True):
    """What is read of a recorded command. waited_s: None where it was endless."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    source: str = ""
    age_s: float = 0.0
    waited_s: float | None = None


@ready
class _Outcome(msgspec.Struct, frozen=True):
    id: str
    state: OutcomeState
    reason: str = ""
    fraction: float = 0.0
