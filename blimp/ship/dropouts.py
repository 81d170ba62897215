"""The longest drop-out that each mode survives, in lockstep: `blimp sim matrix --drop-outs`.

Each sensor falls silent or stands still for a while, each I2C bus hangs, each output on I2C does
not answer; then all is good again. The mode must go on: no failsafe ends it, nothing is accused,
and at the end the ship does what it does in the same flight without a drop-out. A person holds the
ship still until it is armed.
"""

from collections.abc import Collection, Iterator, Sequence
from multiprocessing import Pool

import msgspec

from blimp.airframe import Airframe
from blimp.ship.lockstep import Lockstep
from blimp.ship.matrix import MODES, in_a_fork, on_the_way

DURATIONS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
WATCH_S = 20.0  # after the drop-out
LOOK_S = 0.1


class DropOut(msgspec.Struct, frozen=True, kw_only=True):
    """The longest of `DURATIONS_S` that one mode survives, 0 if none.

    ended: what the next longer one ends it with, "" after the longest.
    """

    mode: str
    device: str
    kind: str
    seed: int
    longest_s: float
    ended: str


def kinds(airframe: Airframe) -> Iterator[tuple[str, str]]:
    """Yield device and kind of each drop-out of this ship; a bus goes by its first device."""
    buses = set()
    for row in airframe.device:
        wired = row.bus.startswith("i2c")
        if wired and row.bus not in buses:
            buses.add(row.bus)
            yield row.name, "bus_stuck"
        if not row.outputs:
            yield row.name, "no_answer"
            yield row.name, "frozen"
        elif wired:
            yield row.name, "no_answer"


def fly(
    airframe: Airframe, *, modes: Sequence[str], seeds: Sequence[int], jobs: int = 1
) -> Iterator[DropOut]:
    """Find the longest of each kind, by bisection. jobs: how many modes fly at once."""
    rows = [(airframe, mode, seed) for mode in modes for seed in seeds]
    with Pool(jobs) as pool:
        for found in pool.imap(_row, rows):
            yield from found


def _row(row: tuple[Airframe, str, int]) -> list[DropOut]:
    airframe, mode, seed = row
    with on_the_way(airframe, mode, seed) as ship:
        states = msgspec.json.decode(in_a_fork(ship, lambda: msgspec.json.encode(_states(ship))))
        return [_longest(ship, mode, seed, states, *each) for each in kinds(airframe)]


def _longest(
    ship: Lockstep, mode: str, seed: int, states: list[str], device: str, kind: str
) -> DropOut:
    good, bad, ended = -1, len(DURATIONS_S), ""
    while bad - good > 1:
        middle = (good + bad) // 2 if bad < len(DURATIONS_S) else bad - 1
        lasts_s = DURATIONS_S[middle]
        why = in_a_fork(ship, lambda: ends(ship, device, kind, lasts_s, states).encode()).decode()  # noqa: B023
        good, bad, ended = (good, middle, why) if why else (middle, bad, ended)
    return DropOut(
        mode=mode, device=device, kind=kind, seed=seed, ended=ended,
        longest_s=DURATIONS_S[good] if good >= 0 else 0.0,
    )  # fmt: skip


def ends(
    ship: Lockstep,
    device: str,
    kind: str,
    lasts_s: float,
    states: Sequence[str],
    *,
    watch_s: float = WATCH_S,
) -> str:
    """Let it drop out now, and return what ends the mode, "" if nothing does.

    states: that the ship goes through without a drop-out.
    """
    end_s = ship.now_s + lasts_s
    ship.fault(device, kind)
    why = ""
    while not why and end_s - ship.now_s > 0.005:  # a bus that hangs makes cycles longer
        ship.step_cycles(1)
        why = _interrupted(ship, states)
    ship.fault(device, "clear")
    end_s = ship.now_s + watch_s
    while not why and ship.now_s < end_s:
        ship.step(LOOK_S)
        why = _interrupted(ship, states)
    return why or ("" if _state(ship) in states else f"ends in {_state(ship)}")


def _interrupted(ship: Lockstep, states: Collection[str] = ()) -> str:
    """Return the failsafe that ends a mode, or what is accused. Holding only interrupts it."""
    said = ship.snapshot().failsafe
    if said and "holding" not in said and said not in states:
        return said
    return f"{' and '.join(ship.accused)} accused" if ship.accused else ""


def _states(ship: Lockstep) -> list[str]:
    found = {_state(ship)}
    end_s = ship.now_s + WATCH_S + DURATIONS_S[-1]
    while ship.now_s < end_s:
        ship.step(LOOK_S)
        found |= {_state(ship), _interrupted(ship)}
    return sorted(found)


def _state(ship: Lockstep) -> str:
    shown = ship.snapshot()
    return f"{shown.mode}, {'armed' if shown.armed else 'disarmed'}"


def table(found: Sequence[DropOut]) -> Iterator[str]:
    """Yield the lines of a Markdown table: the shortest over the seeds, in seconds."""
    modes = [mode for mode in MODES if any(mode == each.mode for each in found)]
    yield f"| drop-out | {' | '.join(modes)} |"
    yield "|---" * (len(modes) + 1) + "|"
    for device, kind in dict.fromkeys((each.device, each.kind) for each in found):
        cells = [
            min(e.longest_s for e in found if (e.mode, e.device, e.kind) == (mode, device, kind))
            for mode in modes
        ]
        name = "I2C bus stuck" if kind == "bus_stuck" else f"{device} {kind.replace('_', ' ')}"
        yield f"| {name} | {' | '.join(f'{seconds:g}' for seconds in cells)} |"
