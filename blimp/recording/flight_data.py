"""A flight as columns of numbers, and what happened in it: what pictures and reports are made of.

Times are seconds since the log's first message, angles radians, frames as in the log. Needs numpy,
which the extra `plot` installs; raises ConfigError when it is imported without.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from blimp.distribution import needing
from blimp.errors import LogError
from blimp.link.timeline import newer
from blimp.reading import ready
from blimp.recording.recording import Entry, Happened
from blimp.recording.tape import Injected, Session
from blimp.types import VOTE_FRESH_S, Command, Outcome

with needing("plot", "pictures need"):
    import numpy as np
    from numpy.typing import NDArray

ready(Command)
ready(Outcome)

Values = NDArray[np.float64]
AXES = ("north", "east", "down")
ANGLES = ("roll", "pitch", "yaw")
QUANTITIES = {
    "height": "m", "climb": "m/s", "position": "m", "velocity": "m/s", "attitude": "rad",
    "heading": "rad",
}  # fmt: skip
TOPICS = ("/snapshot", "/status", "/truth", "/command", "/outcome", "/injected")
_NAN = float("nan")


@dataclass(frozen=True)
class Table:
    """Columns of one topic over its times. A value that is not known is NaN.

    What there is much of is kept to 7 digits; given as what is computed with.
    """

    t_s: Values
    columns: dict[str, NDArray[np.floating[Any]]]

    def __getitem__(self, name: str) -> Values:
        return self.columns[name].astype(np.float64, copy=False)

    def at(self, name: str, t_s: Values) -> Values:
        """Return a column at other times, linear between its own; NaN outside of them."""
        if len(self.t_s) == 0:
            return np.full(len(t_s), _NAN)
        found: Values = np.interp(t_s, self.t_s, self[name], left=_NAN, right=_NAN)
        return found


class Span(NamedTuple):
    """A mode, or a failsafe, from a time to another. is_over: its end is in the log."""

    from_s: float
    to_s: float
    name: str
    is_over: bool = True


class Listed(NamedTuple):
    """A happening of the report's list. number: from 1, in order of time. kind: of `KINDS`."""

    number: int
    t_s: float
    kind: str
    words: str
    id: str = ""
    command: str = ""
    is_fault: bool = False


# The kinds of the list, and which of the record each is made of; the last one of all others.
KINDS = {
    "command": ("command",), "refusal": ("refused",), "failsafe": ("failsafe",),
    "fault": ("fault", "doubt"),
    "process": ("died", "runs", "hung", "safe", "unsafe", "killed", "link"),
    "message": (),
}  # fmt: skip


class FlightData(NamedTuple):
    """All of a log that is drawn or counted.

    cycles: an output's column is "out_" and its name: a motor may be called "yaw".
    facts: the log's metadata. votes: innovation and agreement (1 or 0) by "quantity sensor".
    overruns: since the log's first /status; None if it has none. latency_s: of each command, from
    its sender to the flight loop, where it is known. mail: commands and outcomes in their order.
    boots: each flight process's first status. said: messages, each once. sick: the devices that are
    not healthy, whenever they change. injected: what a simulation did to the ship.
    """

    path: str
    session: Session
    facts: dict[str, str]
    complete: bool
    cycles: Table
    status: Table
    truth: Table
    votes: dict[str, Table]
    modes: list[Span]
    failsafes: list[Span]
    happenings: list[Listed]
    overruns: int | None
    latency_s: Values
    end_s: float
    mail: tuple[tuple[float, Command | Outcome], ...] = ()
    boots: tuple[tuple[float, str], ...] = ()
    said: tuple[tuple[float, str], ...] = ()
    sick: tuple[tuple[float, frozenset[str]], ...] = ()
    injected: tuple[tuple[float, Injected], ...] = ()

    @property
    def has_position(self) -> bool:
        """Whether any sensor gave a place of the ship."""
        return any(name.startswith("position ") for name in self.votes)

    @property
    def is_flown(self) -> NDArray[np.bool_]:
        """Of each cycle: whether the ship is armed, off the ground and not idle."""
        cycles = self.cycles
        flown: NDArray[np.bool_] = (
            (cycles["armed"] > 0) & (cycles["on_ground"] == 0) & (cycles["idle"] == 0)
        )
        return flown


class Readable(Protocol):
    """What a flight is read from: a `Recording`, or a `Memory`."""

    @property
    def path(self) -> Path: ...
    @property
    def session(self) -> Session: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    @property
    def complete(self) -> bool: ...
    @property
    def duration_s(self) -> float: ...
    def entries(self, topics: Collection[str]) -> Iterable[Entry]: ...
    def timeline(self) -> list[Happened]: ...


def read_flight(log: Readable) -> FlightData:
    """Read a log once. Raises LogError if no cycle is in it, or a chunk of it is damaged."""
    reader = _Reader(log.session)
    for entry in log.entries(TOPICS):
        reader.take(entry)
    if not reader.cycles.times:
        raise LogError(
            f"log {log.path}: no cycle is in it, so there is nothing to draw; "
            "blimp log info says what is"
        )
    end_s = log.duration_s
    return FlightData(
        path=str(log.path),
        session=log.session,
        facts=log.metadata,
        complete=log.complete,
        cycles=reader.cycles.table(),
        status=reader.status.table(),
        truth=reader.truth.table(),
        votes={name: rows.table() for name, rows in sorted(reader.votes.items())},
        modes=_closed(reader.modes, end_s),
        failsafes=[span for span in _closed(reader.failsafes, end_s) if span.name],
        happenings=_listed(log),
        overruns=reader.overruns,
        latency_s=np.array(reader.latency_s, dtype=np.float64),
        end_s=end_s,
        mail=tuple(reader.mail),
        boots=tuple(reader.boots),
        said=tuple(reader.said),
        sick=tuple(reader.sick),
        injected=tuple(reader.injected),
    )


class _Rows:
    """Rows of numbers and their times. short: to 7 digits; two hours of cycles in some 90 MB."""

    def __init__(self, *names: str, short: bool = False) -> None:
        self.names = names
        self.times = array("d")
        self.values = array("f" if short else "d")

    def add(self, t_s: float, *values: float) -> None:
        self.times.append(t_s)
        self.values.extend(values)

    def table(self) -> Table:
        if not self.times:
            return Table(np.empty(0), {name: np.empty(0) for name in self.names})
        kind: Any = np.float32 if self.values.typecode == "f" else np.float64
        rows = np.frombuffer(self.values, dtype=kind).reshape(-1, len(self.names))
        columns = {name: rows[:, i] for i, name in enumerate(self.names)}
        return Table(np.frombuffer(self.times, dtype=np.float64), columns)


class _Reader:
    """Takes the messages of a log in their order."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.cycles = _Rows(
            *AXES, *(f"v_{axis}" for axis in AXES), *ANGLES, "yaw_rate",
            *(f"set_{axis}" for axis in AXES), *(f"set_v_{axis}" for axis in AXES), "set_yaw",
            "step_ms", "number", "armed", "on_ground", "idle",
            *(f"out_{name}" for name in session.actuators), short=True,
        )  # fmt: skip
        self.status = _Rows(
            "battery_v", "current_a", "wind_north", "wind_east", "heaviness_kg", "link_age_s",
            *(f"sigma_{name}" for name in QUANTITIES), *(f"agree_{name}" for name in QUANTITIES),
            *(f"outvoted_{name}" for name in QUANTITIES), *(f"doubt_{name}" for name in QUANTITIES),
            "armed", "killed", "deaf", "altitude_m", "down", "overruns", "cycles",
            *(f"shown_{name}" for name in session.actuators),
        )  # fmt: skip
        self.truth = _Rows(*AXES, *(f"v_{axis}" for axis in AXES), *ANGLES)
        self.votes: defaultdict[str, _Rows] = defaultdict(
            lambda: _Rows("innovation", "agrees", short=True)
        )
        self.modes: list[tuple[float, str]] = []
        self.failsafes: list[tuple[float, str]] = []
        self.overruns: int | None = None
        self._overruns_before: int | None = None
        self.latency_s: list[float] = []
        self._first_cycle = 0
        self.mail: list[tuple[float, Command | Outcome]] = []
        self.boots: list[tuple[float, str]] = []
        self.said: list[tuple[float, str]] = []
        self.sick: list[tuple[float, frozenset[str]]] = []
        self.injected: list[tuple[float, Injected]] = []
        self._messages: tuple[str, ...] = ()
        self._sent: dict[str, Command] = {}
        self._accepted: set[str] = set()
        self._take = {
            "/snapshot": self._cycle, "/status": self._status, "/truth": self._truth,
            "/command": self._command, "/outcome": self._outcome, "/injected": self._injected,
        }  # fmt: skip

    def take(self, entry: Entry) -> None:
        self._take[entry.topic](entry.t_s, entry.data)

    def _cycle(self, t_s: float, data: dict[str, Any]) -> None:
        setpoint, attitude, actuators = data["setpoint"], data["attitude_rad"], data["actuators"]
        if not self.cycles.times:
            self._first_cycle = data["cycle"]
        place = [setpoint.get(f"{axis}_m", _NAN) for axis in AXES]
        speeds = setpoint.get("velocity_ned_mps", (_NAN,) * 3)
        self.cycles.add(
            t_s, *data["position_ned_m"], *data["velocity_ned_mps"],
            attitude["roll"], attitude["pitch"], attitude["yaw"],
            data["rates_body_radps"][2], *place, *speeds, setpoint.get("yaw_rad", _NAN),
            data["step_ms"], data["cycle"] - self._first_cycle,  # 7 digits are 46 hours
            data["armed"], data["on_ground"], data["idle"],
            *(actuators.get(name, _NAN) for name in self._session.actuators),
        )  # fmt: skip

    def _status(self, t_s: float, data: dict[str, Any]) -> None:
        health = data.get("health", {})
        wind = data.get("wind_ned_mps") or (_NAN, _NAN)
        parts = [health.get(name, {}) for name in QUANTITIES]
        fresh = [
            [vote["agrees"] for vote in part.get("votes", ()) if vote["age_s"] <= VOTE_FRESH_S]
            for part in parts
        ]
        self.status.add(
            t_s, data.get("battery_v", _NAN), data.get("current_a", _NAN), wind[0], wind[1],
            data.get("heaviness_kg", _NAN), data.get("link_age_s", _NAN),
            *(part.get("sigma", _NAN) for part in parts), *(sum(votes) for votes in fresh),
            *(len(votes) - sum(votes) for votes in fresh),
            *(bool(part.get("doubt")) for part in parts),
            data["armed"], data["killed"], bool(data.get("deaf")), data["altitude_m"],
            data["position_ned_m"][2], data["loop"]["overruns"], data["loop"]["cycles"],
            *(data["actuators"].get(name, _NAN) for name in self._session.actuators),
        )  # fmt: skip
        if not self.boots or self.boots[-1][1] != data["boot_id"]:
            self.boots.append((t_s, data["boot_id"]))
            self._messages = ()
        messages = tuple(data.get("messages", ()))
        self.said += ((t_s, text) for text in newer(messages, self._messages))
        self._messages = messages
        sick = frozenset(
            name for name, device in data["sensors"].items() if not device.get("healthy", True)
        )
        if sick != (self.sick[-1][1] if self.sick else None):
            self.sick.append((t_s, sick))
        for quantity in QUANTITIES:
            for vote in health.get(quantity, {}).get("votes", ()):
                rows = self.votes[f"{quantity} {vote['sensor']}"]
                rows.add(t_s, vote["innovation"], vote["agrees"])
        overruns = data["loop"]["overruns"]
        if self._overruns_before is None:
            self._overruns_before = overruns
        self.overruns = overruns - self._overruns_before
        if not self.modes or self.modes[-1][1] != data["mode"]:
            self.modes.append((t_s, data["mode"]))
        was = self.failsafes[-1][1] if self.failsafes else ""
        if data["failsafe"] != was:
            self.failsafes.append((t_s, data["failsafe"]))

    def _truth(self, t_s: float, data: dict[str, Any]) -> None:
        angles = data["attitude_rad"]
        self.truth.add(
            t_s, *data["position_ned_m"], *data["velocity_ned_mps"],
            *(angles[name] for name in ANGLES),
        )  # fmt: skip

    def _command(self, t_s: float, data: dict[str, Any]) -> None:
        command = msgspec.convert(data, Command)
        self.mail.append((t_s, command))
        self._sent[command.id] = command

    def _outcome(self, t_s: float, data: dict[str, Any]) -> None:
        outcome = msgspec.convert(data, Outcome)
        self.mail.append((t_s, outcome))
        command, accepted_s = self._sent.get(outcome.id), outcome.accepted_s
        if command is None or accepted_s is None or outcome.id in self._accepted:
            return
        if command.sent_s is not None:
            self._accepted.add(outcome.id)
            self.latency_s.append(command.age_s + max(0.0, accepted_s - command.sent_s))

    def _injected(self, t_s: float, data: dict[str, Any]) -> None:
        self.injected.append((t_s, msgspec.convert(data, Injected)))


def _listed(log: Readable) -> list[Listed]:
    kinds = {one: kind for kind, ones in KINDS.items() for one in ones}
    return [
        Listed(
            number, t_s, kinds.get(one.kind, "message"), one.text, one.id, one.command, one.is_fault
        )
        for number, (t_s, one) in enumerate(log.timeline(), start=1)
    ]


def _closed(changes: list[tuple[float, str]], end_s: float) -> list[Span]:
    """Return the spans between changes; the last one lasts to the end of the log."""
    ends = [t_s for t_s, _ in changes[1:]]
    spans = [
        Span(from_s, to_s, name)
        for (from_s, name), to_s in zip(changes, [*ends, end_s], strict=False)
    ]
    return [*spans[:-1], spans[-1]._replace(is_over=False)] if spans else []
