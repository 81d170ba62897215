"""The phases of a landing, and the table of what ends each of them.

A phase goes on until one of its rows matches what is seen. No two rows of a phase match the same
evidence, so their order means nothing. `python -m benchmarks.failsafe_page` draws the table.
"""

from enum import Enum
from typing import NamedTuple

import msgspec

from blimp.types import Contact


class LandingPhase(Enum):
    """Each with what is flown in it, and what it has found out about the ground."""

    LEVEL = "keeps its height and weighs itself", Contact.AIRBORNE
    SINK = "comes down over its place, slower near the ground", Contact.AIRBORNE
    TOUCH = "is sent down as before, and does not sink", Contact.AIRBORNE
    TRIAL = "motors stand still, still armed", Contact.TOUCHING
    PRESSED = "is pushed onto the ground by more than it lifts", Contact.PRESSED
    LOOSE = "is flown down at touchdown speed", Contact.TOUCHING
    DOUBT = "motors idle, still armed, until a person has looked", Contact.RESTING
    LANDED = "motors idle, and the supervisor disarms", Contact.RESTING

    def __init__(self, text: str, contact: Contact) -> None:
        self.text = text
        self.contact = contact


class LandingEvidence(NamedTuple):
    """The evidence of one cycle; in a row None means that either will do."""

    proven: bool | None = None  # the phase has lasted as long as its proof takes
    still: bool | None = None  # it neither sinks nor climbs, or its height cannot be
    lower: bool | None = None  # than where it stopped, by more than a height's noise
    light: bool | None = None  # it has weighed itself in this flight, and more probably lifts
    sure: bool | None = None  # that it is light is less probable than one in a thousand
    lifts: bool | None = None  # it is higher than where it lay, by more than a height's noise
    strays: bool | None = None  # it is elsewhere than where it was let go
    doubted: bool | None = None  # raw heights say "not down", or it felt itself lose ballast


class OnEntry(Enum):
    """What is done once, when a row is taken."""

    MARK = "the height here is where it lies"
    FEEL = "ballast that it felt itself lose on its way counts"
    LIGHT = "it is taken for light"
    PRESS = "the press is its lift and a margin"
    HARDER = "the press is half as much again"
    ASK = "it says what makes it doubtful, and marks the place"


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One way out of a phase."""

    name: str
    when: LandingEvidence
    next: LandingPhase
    does: tuple[OnEntry, ...] = ()
    why: str

    def matches(self, seen: LandingEvidence) -> bool:
        wanted = zip(self.when, seen, strict=True)
        return all(wish is None or wish is found for wish, found in wanted)


LANDING: dict[LandingPhase, tuple[Transition, ...]] = {
    LandingPhase.LEVEL: (
        Transition(
            name="level flight is over", next=LandingPhase.SINK,
            when=LandingEvidence(proven=True),
            why="it knows its weight, is too low to wait, or has waited for 10 s",
        ),
    ),
    LandingPhase.SINK: (
        Transition(
            name="stops", next=LandingPhase.TOUCH,
            when=LandingEvidence(still=True), does=(OnEntry.MARK,),
            why="the ground may hold it, or a lull of the estimate",
        ),
    ),
    LandingPhase.TOUCH: (
        Transition(
            name="moves on", next=LandingPhase.SINK, when=LandingEvidence(still=False),
            why="the ground holds nothing that moves",
        ),
        Transition(
            name="creeps", next=LandingPhase.TOUCH,
            when=LandingEvidence(still=True, lower=True), does=(OnEntry.MARK,),
            why="a light ship that thrust just brings down sinks too slowly to be seen moving",
        ),
        Transition(
            name="touches down, light", next=LandingPhase.PRESSED,
            when=LandingEvidence(still=True, lower=False, proven=True, light=True),
            does=(OnEntry.MARK, OnEntry.FEEL, OnEntry.PRESS),
            why="it would rise on a trial: it is never let go",
        ),
        Transition(
            name="touches down", next=LandingPhase.TRIAL,
            when=LandingEvidence(still=True, lower=False, proven=True, light=False),
            does=(OnEntry.MARK, OnEntry.FEEL),
            why="ballast drops: whatever it weighed, only a trial shows that it stays down",
        ),
    ),
    LandingPhase.TRIAL: (
        Transition(
            name="rises on trial", next=LandingPhase.LOOSE,
            when=LandingEvidence(lifts=True), does=(OnEntry.LIGHT, OnEntry.PRESS),
            why="what rises without thrust is light",
        ),
        Transition(
            name="sinks on trial", next=LandingPhase.SINK,
            when=LandingEvidence(lifts=False, lower=True),
            why="it hung in the air on thrust",
        ),
        Transition(
            name="stays down", next=LandingPhase.LANDED,
            when=LandingEvidence(lifts=False, lower=False, proven=True, sure=True, doubted=False),
            why="it has stayed by its weight, and no sensor sees it in the air",
        ),
        Transition(
            name="stays down, may be light", next=LandingPhase.DOUBT,
            when=LandingEvidence(lifts=False, lower=False, proven=True, sure=False, doubted=False),
            does=(OnEntry.ASK,),
            why="let go, a light ship is lost as soon as its feet slip; a person's look costs less",
        ),
        Transition(
            name="stays down, in doubt", next=LandingPhase.DOUBT,
            when=LandingEvidence(lifts=False, lower=False, proven=True, doubted=True),
            does=(OnEntry.ASK,),
            why="no sensor alone may disarm, and feet that hold hide a light ship",
        ),
    ),
    LandingPhase.DOUBT: (
        Transition(
            name="rises in doubt", next=LandingPhase.LOOSE,
            when=LandingEvidence(lifts=True), does=(OnEntry.LIGHT, OnEntry.PRESS),
            why="its feet gave way: it is light",
        ),
        Transition(
            name="strays in doubt", next=LandingPhase.PRESSED,
            when=LandingEvidence(lifts=False, strays=True), does=(OnEntry.LIGHT, OnEntry.PRESS),
            why="what wind carries off does not stand, whatever its height says",
        ),
    ),
    LandingPhase.PRESSED: (
        Transition(
            name="comes off", next=LandingPhase.LOOSE, when=LandingEvidence(lifts=True),
            why="by the press alone it would touch down hard",
        ),
    ),
    LandingPhase.LOOSE: (
        Transition(
            name="is still off", next=LandingPhase.LOOSE, when=LandingEvidence(lifts=True),
            why="only what lies still where it lay counts as down",
        ),
        Transition(
            name="lies again", next=LandingPhase.PRESSED,
            when=LandingEvidence(lifts=False, proven=True), does=(OnEntry.HARDER,),
            why="the press before did not hold it",
        ),
    ),
    LandingPhase.LANDED: (),
}  # fmt: skip
