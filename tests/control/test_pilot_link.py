"""Whose silence counts, and from when until when."""

from math import inf, nan
from typing import Any

import pytest

from blimp.control.pilot_link import MAX_SESSIONS, REMEMBERED, PilotLink
from blimp.types import Heartbeat
from tests.control.parts import Bench

ANYBODY, PILOT = 1, 4


def beat(session: str = "view", sequence: int = 0, **fields: Any) -> Heartbeat:
    return Heartbeat(session=session, sequence=sequence, **({"authority": ANYBODY} | fields))


def ages(*steps: tuple[float, Heartbeat], at_s: float) -> float | None:
    link = PilotLink()
    for now_s, heartbeat in steps:
        link.receive(heartbeat, now_s)
    return link.age_s(at_s, armed=True)


def test_nobody_is_missed_who_never_sent_a_heartbeat_or_said_goodbye() -> None:
    assert ages(at_s=1e6) is None
    assert ages((1.0, beat()), at_s=61.0) == 60.0
    assert ages((1.0, beat()), (2.0, beat(sequence=1, ends=True)), at_s=61.0) is None


@pytest.mark.parametrize(
    "heartbeat",
    [
        beat(sequence=5),  # the same once more
        beat(sequence=4),
        beat(sequence=6, waited_s=3.1),
        beat(sequence=6, waited_s=inf),
        beat(sequence=6, waited_s=nan),
        beat(sequence=5, ends=True),
    ],
)
def test_what_is_played_back_or_late_does_not_count(heartbeat: Heartbeat) -> None:
    assert ages((1.0, beat(sequence=5)), (9.0, heartbeat), at_s=10.0) == 9.0


def test_a_goodbye_cannot_be_undone_by_what_went_before() -> None:
    over = (beat(sequence=1), beat(sequence=2, ends=True), beat(sequence=1), beat(sequence=2))
    assert ages(*((float(n), one) for n, one in enumerate(over)), at_s=10.0) is None


@pytest.mark.parametrize("waited_s", [3.1, inf, nan])
def test_a_late_goodbye_ends_its_own_session_and_says_nothing_of_others(waited_s: float) -> None:
    late = (9.0, beat(sequence=1, ends=True, waited_s=waited_s))
    assert ages((1.0, beat()), late, at_s=10.0) is None
    other = (8.0, beat("other", authority=PILOT))
    assert ages(other, late, at_s=10.0) == 2.0
    assert ages((1.0, beat("died")), late, at_s=10.0) == 9.0


def test_a_pilot_with_two_programs_is_heard_by_either_and_missed_with_both() -> None:
    command = beat("command", 0), beat("command", 1, ends=True)
    both = ((1.0, beat()), (1.5, command[0]), (2.0, command[1]))
    assert ages(*both, at_s=2.0) == 1.0  # the view is still missed
    assert ages(*both[:2], at_s=9.0) == 7.5


def test_a_program_that_died_is_not_missed_once_the_pilot_was_heard_again() -> None:
    died = (1.0, beat("died"))
    later = (50.0, beat("command", 0)), (50.1, beat("command", 1, ends=True))
    assert ages(died, at_s=50.0) == 49.0
    assert ages(died, *later, at_s=99.0) is None
    assert ages(died, later[1], at_s=99.0) is None  # one that was over before it was read


def test_a_pilot_who_handed_over_is_not_missed() -> None:
    before, after = (1.0, beat()), (1.5, beat("other", authority=PILOT))
    assert ages(before, after, at_s=2.0) == 0.5
    assert (
        ages(before, after, (2.0, beat("other", 1, authority=PILOT, ends=True)), at_s=9.0) is None
    )


def test_there_is_a_bound_to_what_is_remembered() -> None:
    link = PilotLink()
    for number in range(2 * REMEMBERED):
        link.receive(beat(str(number)), 1.0)
    assert len(link._sessions) == MAX_SESSIONS
    assert len(link._sequences) == REMEMBERED
    assert link.age_s(2.0, armed=True) == 1.0


def test_a_silent_pilot_is_a_lost_link_though_the_broker_is_there_until_a_goodbye() -> None:
    ship = Bench()
    ship.inbox.beats = [beat("ground")]
    ship.run(5.0)
    assert ship.snapshot().pilot_age_s is None  # not armed: nothing to bring home
    ship.tell("arm")
    ship.lift(3.0)
    assert ship.snapshot().failsafe == ""  # flown without a heartbeat, as a mission is
    ship.inbox.beats = [beat(sequence=1)]
    ship.run(2.9)
    assert ship.snapshot().failsafe == ""
    ship.run(0.2)
    assert ship.snapshot().failsafe == "link lost: holding"
    assert ship.snapshot().link_age_s == pytest.approx(3.1, abs=0.05)
    ship.inbox.beats = [beat(sequence=2), beat(sequence=3, ends=True)]
    ship.run(4.0)
    assert ship.snapshot().failsafe == ""
    assert ship.snapshot().pilot_age_s is None
