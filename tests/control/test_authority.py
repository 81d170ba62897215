"""The fence at the mailbox: an older authority moves nothing, from any sender."""

import pytest

from blimp.control.admission import Refusal
from blimp.control.authority import AuthorityFence
from blimp.control.commander import HANDLERS
from blimp.types import MAX_AUTHORITY, Command, OutcomeState
from tests.control.parts import Bench

DONE, REFUSED, RUNNING = OutcomeState.DONE, OutcomeState.REFUSED, OutcomeState.IN_PROGRESS
ALICE, BOB = 10, 12  # two grants, one after the other


def test_a_late_command_of_a_pilot_who_lost_control_moves_nothing() -> None:
    ship = Bench()
    assert ship.send(Command(id="a", name="arm", authority=ALICE)).state is DONE
    assert ship.send(Command(id="b", name="disarm", authority=BOB)).state is DONE
    late = ship.send(Command(id="c", name="arm", authority=ALICE))
    assert late.state is REFUSED
    assert late.reason == (
        "authority 10 is older than 12, the newest seen: control has changed since this "
        "command was sent"
    )
    assert late.result == {"authority": BOB}
    assert not ship.loop.armed
    assert ship.send(Command(id="d", name="arm", authority=BOB)).state is DONE


@pytest.mark.parametrize("name", sorted(HANDLERS))
def test_without_authority_what_moves_the_ship_is_refused_and_what_only_asks_is_not(
    name: str,
) -> None:
    ship = Bench()
    ship.send(Command(id="b", name="hold", authority=BOB))
    arguments = {"name": "baro"} if name == "sensor" else {}
    outcome = ship.send(Command(id="c", name=name, arguments=arguments))
    if name in ("ping", "limits", "sensor", "estop"):
        assert outcome.state is DONE
    elif name in ("land", "hold"):
        assert outcome.reason == "not armed: send arm first"
    else:
        assert outcome.reason.startswith("no authority is older than 12, the newest seen")


@pytest.mark.parametrize("name", ["land", "hold"])
@pytest.mark.parametrize("authority", [0, ALICE, MAX_AUTHORITY + 1, -1])
def test_what_only_brings_a_ship_to_rest_passes_a_stale_fence(name: str, authority: int) -> None:
    """And moves it nowhere."""
    ship = Bench()
    ship.send(Command(id="a", name="arm", authority=BOB))
    outcome = ship.send(Command(id="b", name=name, authority=authority))
    assert outcome.state is not REFUSED
    assert "older than 12" in ship.send(Command(id="c", name="arm", authority=ALICE)).reason
    assert ship.send(Command(id="d", name="arm", authority=BOB)).state is DONE


def test_an_emergency_stop_is_anybodys_and_gives_nobody_control() -> None:
    ship = Bench()
    ship.send(Command(id="a", name="arm", authority=ALICE))
    assert ship.send(Command(id="b", name="estop", authority=MAX_AUTHORITY)).state is DONE
    assert ship.send(Command(id="c", name="arm", authority=ALICE)).state is DONE


def test_a_command_that_is_refused_for_its_age_names_who_has_control_all_the_same() -> None:
    ship = Bench()
    old = Command(id="a", name="arm", authority=BOB, age_s=9.0, ttl_s=5.0, sent_s=0.0)
    assert "stale" in ship.send(old).reason
    assert "older than 12" in ship.send(Command(id="b", name="arm", authority=ALICE)).reason


def test_a_command_under_way_is_followed_to_its_end_by_who_sent_it() -> None:
    """Asked again it moves nothing, and returns its outcome to any pilot."""
    ship = Bench()
    ship.send(Command(id="a", name="arm", authority=ALICE))
    takeoff = Command(id="t", name="takeoff", arguments={"altitude_m": 3.0}, authority=ALICE)
    assert ship.send(takeoff).state is RUNNING
    ship.send(Command(id="x", name="motor", authority=BOB))
    assert ship.send(takeoff).state is RUNNING


@pytest.mark.parametrize("authority", [MAX_AUTHORITY + 1, 10**30, -1])
def test_a_number_that_can_be_nobodys_is_refused_and_locks_nobody_out(authority: int) -> None:
    ship = Bench()
    assert ship.send(Command(id="a", name="arm", authority=authority)).state is REFUSED
    assert ship.send(Command(id="b", name="arm", authority=ALICE)).state is DONE


def admits(fence: AuthorityFence, authority: int, name: str = "goto") -> bool:
    try:
        fence.admit(Command(id="a", name=name, authority=authority))
    except Refusal:
        return False
    return True


def test_a_transmitter_has_control_until_somebody_takes_it_on_the_ground() -> None:
    fence = AuthorityFence()
    assert admits(fence, ALICE)
    fence.take()
    fence.take()  # a second time it bars nobody else
    assert not admits(fence, 0)
    assert not admits(fence, ALICE)
    assert admits(fence, ALICE, "land")
    assert admits(fence, BOB)
    first = AuthorityFence()
    first.take()
    assert not admits(first, ALICE)  # the first authority seen was there before the transmitter
    assert admits(first, BOB)


def test_a_transmitter_that_is_lost_bars_nobody() -> None:
    fence = AuthorityFence()
    assert admits(fence, ALICE)
    fence.take()
    fence.silent = True
    assert admits(fence, ALICE)
    fence.obeyed(Command(id="a", name="hold"))
    assert fence.held
    fence.obeyed(Command(id="b", name="goto"))
    assert not fence.held
