"""A flight as columns of numbers, and what happened in it: what pictures and reports are made of.

Times are seconds since the log's first message, angles radians, frames as in the log. Needs numpy,
which the extra `plot` installs; raises ConfigError when it is imported without.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

from blimp.distribution import needing
from blimp.errors import LogError
from blimp.recording.recording import QUIET, Entry, Recording, mark_of
from blimp.recording.tape import Session

with needing("plot", "pictures need"):
    import numpy as np
    from numpy.typing import NDArray

Values = NDArray[np.float64]
AXES = ("north", "east", "down")
ANGLES = ("roll", "pitch", "yaw")
QUANTITIES = {
    "height": "m", "climb": "m/s", "position": "m", "velocity": "m/s", "attitude": "rad",
    "heading": "rad",
}  # fmt: skip
TOPICS = ("/snapshot", "/status", "/truth", "/command", "/outcome", "/event", "/fault")
_NAN = float("nan")
_SHOWN = ("ship", "killed", "dropped", "unreadable")  # of the events, beside failsafes
_WITHIN_S = 0.15  # a message of the ship that repeats an event: both are of one /status


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


class Happening(NamedTuple):
    """What happened. number: from 1, in order of time. kind: a key of `KINDS`."""

    number: int
    t_s: float
    kind: str
    words: str


KINDS = ("command", "refusal", "failsafe", "fault", "message")


class FlightData(NamedTuple):
    """All of a log that is drawn or counted.

    facts: the log's metadata. votes: innovation and agreement (1 or 0) by "quantity sensor".
    overruns: since the log's first /status; None if it has none. latency_s: of each command, from
    its sender to the flight loop, where it is known.
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
    happenings: list[Happening]
    overruns: int | None
    latency_s: Values
    end_s: float

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


def read_flight(log: Recording) -> FlightData:
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
        happenings=reader.numbered(),
        overruns=reader.overruns,
        latency_s=np.array(reader.latency_s, dtype=np.float64),
        end_s=end_s,
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
            "step_ms", "number", "armed", "on_ground", "idle", *session.actuators, short=True,
        )  # fmt: skip
        self.status = _Rows(
            "battery_v", "current_a", "wind_north", "wind_east", "heaviness_kg", "link_age_s",
            *(f"sigma_{name}" for name in QUANTITIES),
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
        self._happened: list[tuple[float, str, str]] = []
        self._commands: dict[str, dict[str, Any]] = {}
        self._accepted: set[str] = set()
        self._refused: set[str] = set()
        self._take = {
            "/snapshot": self._cycle, "/status": self._status, "/truth": self._truth,
            "/command": self._command, "/outcome": self._outcome, "/event": self._event,
            "/fault": self._fault,
        }  # fmt: skip

    def take(self, entry: Entry) -> None:
        self._take[entry.topic](entry.t_s, entry.data)

    def numbered(self) -> list[Happening]:
        happened = sorted(self._happened, key=lambda one: one[0])
        return [Happening(i, *one) for i, one in enumerate(happened, start=1)]

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
        sigmas = [health.get(name, {}).get("sigma", _NAN) for name in QUANTITIES]
        self.status.add(
            t_s, data.get("battery_v", _NAN), data.get("current_a", _NAN), wind[0], wind[1],
            data.get("heaviness_kg", _NAN), data.get("link_age_s", _NAN), *sigmas,
        )  # fmt: skip
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
        self._commands[data["id"]] = data
        if data["name"] not in QUIET:
            self._happened.append((t_s, "command", _command_words(data)))

    def _outcome(self, t_s: float, data: dict[str, Any]) -> None:
        id, accepted_s = data["id"], data.get("accepted_s")
        command = self._commands.get(id)
        if command is None:
            return
        if data["state"] == "refused" and id not in self._refused:
            self._refused.add(id)
            name = command["name"]
            reason = data["reason"].removeprefix(f"{name}: ")
            self._happened.append((t_s, "refusal", f"{name} refused: {reason}"))
        sent_s = command.get("sent_s")
        if accepted_s is not None and sent_s is not None and id not in self._accepted:
            self._accepted.add(id)
            self.latency_s.append(command["age_s"] + max(0.0, accepted_s - sent_s))

    def _event(self, t_s: float, data: dict[str, Any]) -> None:
        name, words = data["name"], data["message"]
        if name == "failsafe":
            self._happened.append((t_s, "failsafe", words))
            return
        lately = [said for at_s, _, said in self._happened[-8:] if t_s - at_s < _WITHIN_S]
        if name in _SHOWN and words not in lately:
            self._happened.append((t_s, "message", words))

    def _fault(self, t_s: float, data: dict[str, Any]) -> None:
        mark = mark_of(Entry("/fault", t_s, data))
        assert mark is not None
        text = str(data["text"]).removeprefix(f"{data['device']}: ")
        words = f"{mark[0]}: {text}" if text else mark[0]
        self._happened.append((t_s, "fault", words))


def _closed(changes: list[tuple[float, str]], end_s: float) -> list[Span]:
    """Return the spans between changes; the last one lasts to the end of the log."""
    ends = [t_s for t_s, _ in changes[1:]]
    spans = [
        Span(from_s, to_s, name)
        for (from_s, name), to_s in zip(changes, [*ends, end_s], strict=False)
    ]
    return [*spans[:-1], spans[-1]._replace(is_over=False)] if spans else []


def _command_words(command: dict[str, Any]) -> str:
    """Return a command as a person reads it: "goto north_m 10, east_m -5, altitude_m 3"."""
    arguments = ", ".join(f"{name} {_short(value)}" for name, value in command["arguments"].items())
    return f"{command['name']} {arguments}".rstrip()


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:40]
