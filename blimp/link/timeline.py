"""What happened to a ship, in order and in words: one record, wherever it is read.

The flight process writes the record: of what passes its mailbox, and of what the supervisor of its
stack tells it about the other processes. From there it goes into the log, and by the worker to the
broker. So each happening has the same id in the log, in `ground events`, on the page, in a report.
"""

import itertools
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, Protocol, TypeVar

import msgspec

from blimp.reading import ready
from blimp.types import Command, Outcome, OutcomeState, SensorStatus, Snapshot

# Each kind, and whether it is a fault: marked in red, and in a report.
KINDS = {
    "command": False, "done": False, "refused": True,  # with the id of the command
    "start": False, "mode": False, "armed": False, "killed": True, "failsafe": True, "ship": False,
    "fault": True, "doubt": True, "link": True,
    "died": True, "runs": False, "hung": True, "safe": False, "unsafe": True,  # of processes
    "dropped": False, "unreadable": False,  # of the log itself
}  # fmt: skip
QUIET = ("ping", "status", "sensor")  # they move nothing
STREAMED = ("stick", "velocity", "motor")  # by a joystick, 20 times a second
STARTING = "starting"  # a device's error before its first sample
LINK_S = 3.0  # without a word of the ground, as the failsafe "link lost" waits
STREAM_S = 2.0  # without one of them, the next one begins another stream
KEPT = 256  # of the last: a reader who comes later gets them
MAX_TEXT = 240
_COMMANDS = 512  # as many outcomes as the mailbox remembers
_LATE_S = 60.0  # a time that falls by more is of a machine that has booted since

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]


@ready
class Happening(msgspec.Struct, frozen=True, kw_only=True, tag="happening"):
    """One thing that happened. t_s: on the monotonic clock of the ship's machine.

    id: the same wherever it is read. by: who noticed it. kind: of KINDS. command: the id of the
    command that it is about, "" if it is about none.
    """

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    t_s: float
    by: Literal["flight", "supervisor"]
    kind: Annotated[str, msgspec.Meta(max_length=16)]
    text: Text
    command: Annotated[str, msgspec.Meta(max_length=128)] = ""

    @property
    def is_fault(self) -> bool:
        return KINDS.get(self.kind, False) and not self.text.startswith("over: ")


class Timeline:
    """The flight process's pen. has_died: the flight process before it did not end in order."""

    def __init__(self, *, boot_id: str, has_died: bool = False) -> None:
        self._ids = (f"{boot_id}-{number}" for number in itertools.count(1))
        self._has_died = has_died
        self._before: Snapshot | None = None
        self._commands: OrderedDict[str, tuple[str, bool]] = OrderedDict()  # and whether it ended
        self._streams: dict[str, float] = {}

    def take(self, message: Command | Outcome | Snapshot, now_s: float) -> list[Happening]:
        """Return what a message of the mailbox adds to the record, most often nothing."""
        if isinstance(message, Snapshot):
            before, self._before = self._before, message
            found = [(kind, text, "") for kind, text in changes(before, message)]
            if before is None and self._has_died:
                found.insert(0, ("start", "the flight process before this one died", ""))
        elif isinstance(message, Command):
            found = list(self._sent(message, now_s))
        else:
            found = list(self._ended(message))
        return [
            Happening(
                id=next(self._ids), t_s=round(now_s, 4), by="flight", kind=kind,
                text=text[:MAX_TEXT], command=command[:128],
            )
            for kind, text, command in found
        ]  # fmt: skip

    def _sent(self, command: Command, now_s: float) -> Iterator[tuple[str, str, str]]:
        name = command.name
        if name in QUIET:
            return
        if name in STREAMED:
            is_known = now_s - self._streams.get(name, -STREAM_S) < STREAM_S
            self._streams[name] = now_s
            if is_known:
                return
        words = command_words(name, command.arguments)
        if command.id in self._commands:
            words = f"{name} again: delivery {command.fence}"
        self._commands.setdefault(command.id, (name, False))
        while len(self._commands) > _COMMANDS:
            self._commands.popitem(last=False)
        source = f" from {command.source}" if command.source else ""
        yield "command", f"{words}{source}", command.id

    def _ended(self, outcome: Outcome) -> Iterator[tuple[str, str, str]]:
        name, has_ended = self._commands.get(outcome.id, ("", True))
        if has_ended or outcome.state is OutcomeState.IN_PROGRESS:
            return
        self._commands[outcome.id] = (name, True)
        if outcome.state is OutcomeState.REFUSED:
            reason = outcome.reason.removeprefix(f"{name}: ")
            yield "refused", f"{name} refused: {reason}", outcome.id
        elif name not in STREAMED:
            reason = f": {outcome.reason}" if outcome.reason else ""
            yield "done", f"{name} done{reason}", outcome.id


def changes(before: Snapshot | None, now: Snapshot) -> list[tuple[str, str]]:
    """Return kind and words of each thing that is not as it was; all that is, before any."""
    found = []
    if before is None or before.boot_id != now.boot_id:
        before = None
        found.append(("start", f"the flight process runs: {now.mode}"))
    elif now.mode != before.mode:
        found.append(("mode", f"{before.mode} to {now.mode}"))
    for name in ("armed", "killed"):
        value = getattr(now, name)
        if value != (before is not None and getattr(before, name)):
            found.append((name, name if value else f"not {name}"))
    was = "" if before is None else before.failsafe
    if now.failsafe != was:
        found.append(("failsafe", now.failsafe or f"over: {was}"))
    for device, status in now.sensors.items():
        known = None if before is None else before.sensors.get(device)
        fault = fault_of(status)
        if bool(fault) != bool(known and fault_of(known)):
            why = fault.removeprefix(f"{device}: ")
            found.append(("fault", f"{device}: {why}" if fault else f"over: {device} works again"))
    doubted = set() if before is None else {_doubt(one) for one in before.health.doubts}
    found += [("doubt", one) for one in now.health.doubts if _doubt(one) not in doubted]
    doubts = {_doubt(one) for one in now.health.doubts}
    found += [("doubt", f"over: {one}") for one in sorted(doubted - doubts)]
    lost = now.link_age_s >= LINK_S
    if lost != (before is not None and before.link_age_s >= LINK_S):
        words = f"no word of the ground for {LINK_S:g} s: worker, broker or link is down"
        found.append(("link", words if lost else "over: the ground is heard again"))
    said = [text for _, text in found]  # a failsafe is a message, too
    new = newer(now.messages, () if before is None else before.messages)
    return found + [("ship", text) for text in new if text not in said]


def newer(now: tuple[str, ...], before: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a list that keeps its last items has got since; an item may come twice."""
    for start in range(len(before)):
        if before[start:] == now[: len(before) - start]:
            return now[len(before) - start :]
    return now


def fault_of(status: SensorStatus) -> str:
    """Return why a device is not healthy; "" for one that is, or has not started yet."""
    return "" if status.healthy or status.error == STARTING else status.error or "unhealthy"


def command_words(name: str, arguments: dict[str, Any]) -> str:
    """Return a command as a person reads it: "goto north_m 10, east_m -5, altitude_m 3"."""
    words = ", ".join(f"{key} {_short(value)}" for key, value in arguments.items())
    return f"{name} {words}".rstrip()


class Timed(Protocol):
    """What stands in an order: a happening, however it is read."""

    @property
    def id(self) -> str: ...

    @property
    def t_s(self) -> float: ...


T = TypeVar("T", bound=Timed)


def ordered(found: Iterable[T]) -> list[T]:
    """Return happenings in the order of their times, each id once.

    They come as they were sent: one about a flight process that was dead is sent to its successor.
    """
    groups: list[list[T]] = [[]]
    known: set[str] = set()
    newest_s = float("-inf")
    for one in found:
        if one.id in known:
            continue
        known.add(one.id)
        if one.t_s < newest_s - _LATE_S:
            groups.append([])
            newest_s = float("-inf")
        newest_s = max(newest_s, one.t_s)
        groups[-1].append(one)
    return [one for group in groups for one in sorted(group, key=lambda each: each.t_s)]


class Backlog:
    """The last happenings, as datagrams, and how many each reader has had. Nothing waits."""

    def __init__(self) -> None:
        self._last: deque[bytes] = deque(maxlen=KEPT)
        self._count = 0
        self._had: dict[int | str, int] = {}

    def add(self, data: bytes) -> None:
        self._last.append(data)
        self._count += 1

    def missing(self, reader: int | str, *, most: int) -> list[bytes]:
        """Return the oldest that a reader has not had, `most` at a time."""
        first = self._count - len(self._last)
        start = max(self._had.get(reader, 0), first) - first
        return list(itertools.islice(self._last, start, start + most))

    def had(self, reader: int | str) -> None:
        """Note that a reader has had the oldest that it was missing."""
        first = self._count - len(self._last)
        self._had[reader] = max(self._had.get(reader, 0), first) + 1

    def forget(self, reader: int | str) -> None:
        self._had.pop(reader, None)


def _doubt(words: str) -> str:
    """Return what a doubt is about, without its figures."""
    return words.partition(":")[0]


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:40]
