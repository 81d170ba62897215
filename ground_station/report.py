"""What `ground` prints, and the exit status it ends with.

Data goes to standard output, everything else to standard error. With `--json`, standard
output is one object on one line for every command but `status` and `watch`, whose objects
are the snapshot: `id, task, state, result, reason, latency_ms`.

| exit | meaning                                                                    |
|------|----------------------------------------------------------------------------|
| 0    | done                                                                       |
| 2    | wrong usage: an option, a number, a mission file                           |
| 3    | no link: no broker, no ship running, none that answers                     |
| 4    | not confirmed: by you, or a stop of all ships by one of them               |
| 5    | the ship refused; its reason is printed                                    |
| 6    | timed out, failed, expired or interrupted: look at the ship                |
| 7    | not authorised: by the broker, or another pilot holds control of the ship  |
"""

import json
import sys
from typing import Any, TextIO

import msgspec

from blimp.errors import NotInControl
from blimp.link.timeline import Happening
from blimp.queue.log import printable
from blimp.tasks.reply import Reply
from blimp.types import Snapshot
from blimp.web.outcome import Outcome as Outcome  # of all commands

DONE = 0
USAGE = 2
NO_LINK = 3
NOT_CONFIRMED = 4
REFUSED = 5
UNKNOWN = 6
NOT_AUTHORISED = 7

_FOR_PROGRAMS = ("fraction", "accepted_s", "roads_ms")
_EXIT = {"SUCCESS": DONE, "PENDING": DONE, "REFUSED": REFUSED}


def exit_status(state: str) -> int:
    """Return the exit status for a task's final state."""
    return _EXIT.get(state, UNKNOWN)


class Report:
    """Writes for a person, or for a program with `as_json`."""

    def __init__(
        self, *, as_json: bool, out: TextIO | None = None, err: TextIO | None = None
    ) -> None:
        self.as_json = as_json
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._open_line = False

    @property
    def out_is_terminal(self) -> bool:
        return self._out.isatty()

    def data(self, text: str) -> None:
        """Print the requested data as lines; text from others in them is escaped."""
        print(_plain(text), file=self._out, flush=True)

    def json(self, document: Any) -> None:
        """Print one JSON object on one line, in ASCII: any encoding of the output carries it."""
        text = msgspec.json.encode(document).decode()
        if not text.isascii():
            text = json.dumps(json.loads(text), separators=(",", ":"))
        self.data(text)

    def say(self, text: str) -> None:
        """Print a message for a person: one line, even if text from others contains line breaks."""
        self.end_line()
        print(printable(text), file=self._err, flush=True)

    @property
    def err_is_terminal(self) -> bool:
        return self._err.isatty()

    def progress(self, text: str) -> None:
        """Print a step of a running command; on a terminal it replaces the last step."""
        text = printable(text)
        if self.err_is_terminal:
            print(f"\r\x1b[2K{text}", end="", file=self._err, flush=True)
            self._open_line = True
        else:
            print(text, file=self._err, flush=True)

    def go_on(self, text: str) -> None:
        """Add to the line of a running command; the next message ends the line."""
        print(printable(text), end="", file=self._err, flush=True)
        self._open_line = True

    def ask(self, question: str) -> None:
        """Print a question; the answer ends its line."""
        print(printable(question), end="", file=self._err, flush=True)

    def outcome(self, outcome: Outcome) -> int:
        """Print how a command ended and return the exit status."""
        self.end_line()
        if self.as_json:
            self.json(outcome)
        elif outcome.state == "SUCCESS" and outcome.result is not None:
            words = _words(outcome.result)
            if words:
                self.data(words)
        return exit_status(outcome.state)

    def end_line(self) -> None:
        """End the line that `progress` or `go_on` left open."""
        if self._open_line:
            print(file=self._err)
            self._open_line = False


def reply_status(reply: Reply) -> int:
    """Return the exit status of a command that ended so."""
    return NOT_AUTHORISED if reply.kind == NotInControl.__name__ else exit_status(reply.state)


def outcome_of(reply: Reply) -> Outcome:
    """Return a client's reply as the object that is printed."""
    return Outcome(
        id=reply.id,
        task=reply.task,
        state=reply.state,
        result=reply.result,
        reason=reply.reason,
        latency_ms=reply.latency_ms,
    )


class ProgressLine:
    """One line that grows as a command goes.

    "goto: queued → received → executing 40 % → done (received in 12 ms)": on a terminal the
    per cent count up in their place, elsewhere each tenth is added.
    """

    def __init__(self, *, report: Report, what: str) -> None:
        self._report = report
        self._what = what
        self._stages: list[str] = []
        self._shown: tuple[str, float] | None = None

    def __call__(self, stage: str, fraction: float | None = None) -> None:
        share = fraction or 0.0
        step = 0.01 if self._report.err_is_terminal else 0.1
        if self._shown is not None and self._shown[0] == stage and share < self._shown[1] + step:
            return
        self._add(stage if fraction is None else f"{stage} {100.0 * share:.0f} %", stage)
        self._shown = (stage, share)

    def end(self, *, state: str, reason: str, latency_ms: float | None) -> None:
        """Close the line; `latency_ms`: until the ship took the command or refused it."""
        time = "" if latency_ms is None else f" (received in {latency_ms:.0f} ms)"
        done = "done" if state == "SUCCESS" else state.lower()
        self._add(f"{done}{time}{': ' if reason else ''}{reason}", done)

    def _add(self, words: str, stage: str) -> None:
        if self._report.as_json:
            return
        counting = self._shown is not None and self._shown[0] == stage
        if self._report.err_is_terminal:
            if counting:
                self._stages.pop()
            self._stages.append(words)
            self._report.progress(f"{self._what}: {' → '.join(self._stages)}")
        else:
            self._report.go_on(f" → {words}" if self._stages else f"{self._what}: {words}")
            self._stages.append(words)


def status_object(snapshot: Snapshot, age_s: float) -> dict[str, Any]:
    """Return the object of `ground --json status`. Ages are those at this moment, seconds."""
    return {
        "vehicle": snapshot.vehicle,
        "mode": snapshot.mode,
        "armed": snapshot.armed,
        "killed": snapshot.killed,
        "failsafe": snapshot.failsafe,
        "age_s": age_s,
        "position_ned_m": snapshot.position_ned_m,
        "velocity_ned_mps": snapshot.velocity_ned_mps,
        "altitude_m": snapshot.altitude_m,
        "attitude_rad": {
            "roll": snapshot.attitude_rad.roll,
            "pitch": snapshot.attitude_rad.pitch,
            "yaw": snapshot.attitude_rad.yaw,
        },
        "battery_v": snapshot.battery_v,
        "actuators": snapshot.actuators,
        "sensors": {
            name: {
                "value": status.value,
                "unit": status.unit,
                "age_s": None if status.age_s is None else status.age_s + age_s,
                "healthy": status.healthy,
            }
            for name, status in snapshot.sensors.items()
        },
        "loop": {"rate_hz": snapshot.loop.rate_hz, "overruns": snapshot.loop.overruns},
    }


def event_object(happening: Happening, *, t_s: float, at_s: float | None = None) -> dict[str, Any]:
    """Return the object of `ground --json events`. at_s: seconds since the Unix epoch, here.

    t_s: on the clock of the ship's machine, or since a recording's first message.
    """
    return {
        "id": happening.id,
        "t_s": t_s,
        "at_s": at_s,
        "by": happening.by,
        "kind": happening.kind,
        "text": happening.text,
        "command": happening.command,
        "is_fault": happening.is_fault,
    }


def _plain(text: str) -> str:
    """Return lines that are safe to print on any terminal."""
    return "\n".join(map(printable, text.split("\n")))


def _words(result: Any) -> str:
    """Return a result as lines a person reads, without what only a program wants."""
    if not isinstance(result, dict):
        return printable(str(result))
    shown = {name: v for name, v in result.items() if name not in _FOR_PROGRAMS and v != ""}
    return "\n".join(printable(f"{name}: {value_words(value)}") for name, value in shown.items())


def value_words(value: Any) -> str:
    """Return a value of a report as a person reads it: to a thousandth, yes and no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{round(value, 3) + 0.0:g}"  # + 0.0: no "-0"
    if isinstance(value, list | tuple):
        return " ".join(value_words(part) for part in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {value_words(part)}" for name, part in value.items())
    return str(value)
