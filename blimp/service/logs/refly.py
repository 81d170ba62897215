"""`blimp log refly`: flies the recorded commands again, in lockstep, and compares."""

from __future__ import annotations

import heapq
import tempfile
from math import dist
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from blimp.airframe import from_table
from blimp.errors import LogError
from blimp.recording.recording import Entry, Recording, open_recording
from blimp.recording.tape import Injected
from blimp.service.compose import LAID_DOWN_S
from blimp.ship.lockstep import Lockstep
from blimp.types import Command, Heartbeat, Progress, unseen

_DID = ("/command", "/injected")
_LOOK_CYCLES = 100  # between two looks at how far it is


class Reflown(msgspec.Struct, frozen=True, kw_only=True):
    """How the second flight compares with the first.

    same: to the bit, in every cycle. first_difference_s: since the log's first message; None if
    there is none. max_difference_m: the largest distance between both at the same cycle.
    """

    same: bool
    first_difference_s: float | None
    max_difference_m: float


class _Cycle(NamedTuple):
    t_s: float
    digest: int
    position_ned_m: list[float]


def refly(path: Path, *, out: Path | None = None, progress: Progress = unseen) -> Reflown:
    """Fly a simulated flight again, with its airframe, seed, wind, commands and faults.

    out: where to record the second flight; None to keep no log of it. A flight in Lockstep is the
    same to the bit. One in real time is not: its sensors were read at other instants. Its ship is
    kept still for its first LAID_DOWN_S, as the world of a stack keeps it. progress: is called with
    the share that is flown, 0 to 1. Raises LogError if the log is no simulated flight
    from its beginning, or `out` cannot be written.
    """
    with open_recording(path, alone=True) as log, tempfile.TemporaryDirectory() as scratch:
        cycles = _cycles(log)
        if not cycles:
            raise LogError(f"log {path}: no cycle is in it")
        _check(log, first=min(cycles))
        second = out or Path(scratch) / "refly.mcap"
        skipped = _fly(log, second, first=min(cycles), last=max(cycles), progress=progress)
        with open_recording(second) as again:
            return _compare(cycles, _cycles(again), skipped=skipped)


def _check(log: Recording, *, first: int) -> None:
    session = log.session
    if not session.simulated or session.seed is None or session.wind_mps is None:
        raise LogError(f"log {log.path}: not a simulated flight, so it cannot be flown again")
    armed = next(log.entries({"/snapshot"})).data["armed"]
    if first > 1 and (session.lockstep or armed):
        raise LogError(
            f"log {log.path}: begins at cycle {first}: the cycles before are in another log"
        )


def _fly(log: Recording, out: Path, *, first: int, last: int, progress: Progress) -> int:
    """Fly it; return by how many cycles the second flight is ahead of the first."""
    session = log.session
    try:
        airframe = from_table(session.airframe)
        plant = None if session.plant is None else from_table(session.plant)
    except msgspec.ValidationError as error:
        raise LogError(f"log {log.path}: its airframe: {error}") from error
    assert session.seed is not None
    assert session.wind_mps is not None
    deeds = log.entries(_DID)
    if session.lockstep:
        begins = next(log.entries({"/injected"}), None)
        held = begins is not None and (begins.data["what"], begins.data["cycle"]) == ("hold", 0)
    else:  # the world of a stack keeps its ship still at first, and no log says so
        held, released = True, _released(session.rate_hz)
        if _acts(released) <= last:
            deeds = heapq.merge(deeds, [released], key=_acts)
    with Lockstep(
        airframe, seed=session.seed, wind_mps=session.wind_mps, bench=session.bench,
        rate_hz=session.rate_hz, plant=plant, log=out, held=held,
    ) as ship:  # fmt: skip
        # A log that begins on the pad, long after the start, is flown from the pad at once.
        skipped = max(0, first - 1 - ship.cycle)
        for entry in deeds:
            _wait(ship, _acts(entry) - skipped, progress, last - skipped)
            _repeat(ship, entry, exact=session.lockstep)
        _wait(ship, last - skipped, progress, last - skipped)
    return skipped


def _released(rate_hz: float) -> Entry:
    deed = Injected(
        t_s=LAID_DOWN_S, cycle=round(LAID_DOWN_S * rate_hz), what="hold", options={"held": False}
    )
    return Entry("/injected", LAID_DOWN_S, msgspec.to_builtins(deed))


def _acts(entry: Entry) -> int:
    """Return the cycle after which it came."""
    return int(entry.data["cycle"]) - (1 if entry.topic == "/command" else 0)


def _wait(ship: Lockstep, cycle: int, progress: Progress, last: int) -> None:
    while cycle > ship.cycle:
        ship.step_cycles(min(_LOOK_CYCLES, cycle - ship.cycle))
        progress(ship.cycle / last)


def _repeat(ship: Lockstep, entry: Entry, *, exact: bool) -> None:
    if entry.topic == "/command":
        fields = {name: entry.data[name] for name in entry.data if name not in ("t_s", "cycle")}
        command = msgspec.convert(fields, Command)
        if not exact:  # it was fresh, and for this ship, or it would have been refused
            command = msgspec.structs.replace(
                command, boot_id="", age_s=0.0, waited_s=0.0, sent_s=None
            )
        ship.give(command)
        return
    done = msgspec.convert(entry.data, Injected)
    options: dict[str, Any] = done.options
    match done.what:
        case "fault":
            ship.fault(done.device, done.kind, **options)
        case "gusts":
            ship.begin_gusts(options["mps"])
        case "link":
            ship.link_up = options["up"]
        case "heartbeat":
            ship.relay(msgspec.convert(options, Heartbeat))
        case "hold":
            ship.hold(options["held"])
        case "crash":
            ship.crash(down_s=options["down_s"])
        case other:
            raise LogError(f"this flight contains {other!r}, which this program cannot repeat")


def _cycles(log: Recording) -> dict[int, _Cycle]:
    return {
        int(one.data["cycle"]): _Cycle(one.t_s, one.data["digest"], one.data["position_ned_m"])
        for one in log.entries({"/snapshot"})
    }


def _compare(cycles: dict[int, _Cycle], again: dict[int, _Cycle], *, skipped: int) -> Reflown:
    difference_s, furthest_m = None, 0.0
    for number, one in cycles.items():
        other = again.get(number - skipped)
        if other is None or other.digest != one.digest:
            difference_s = one.t_s if difference_s is None else difference_s
        if other is not None:
            furthest_m = max(furthest_m, dist(one.position_ned_m, other.position_ned_m))
    return Reflown(
        same=difference_s is None,
        first_difference_s=None if difference_s is None else round(difference_s, 3),
        max_difference_m=round(furthest_m, 4),
    )
