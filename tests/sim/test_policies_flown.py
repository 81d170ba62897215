"""Whole flights keep every policy, and each policy that needs the truth can be breached."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from benchmarks.campaign import Draw
from benchmarks.fuzz import TOURS, Case, Event, fly, search
from benchmarks.policies import TRUTH_POLICIES, TrueTrace, Witness
from blimp.recording.flight_data import FlightData, Span, Table
from blimp.recording.policies import check
from blimp.ship import Lockstep
from tests.recording.edits import AT, Edit, no_mail, put, says, several, with_span

Change = Callable[[TrueTrace], TrueTrace]


@pytest.fixture(scope="module")
def flown() -> TrueTrace:
    """A flight of the twin from its pad and back, and two minutes on the ground."""
    witness = Witness()
    with Lockstep("twin", seed=5, wind_mps=0.1, log=witness.keep) as ship:
        witness.watch(ship)
        ship.command("arm")
        ship.complete("takeoff", within_s=30.0, altitude_m=1.5)
        ship.command("goto", north_m=1.0, east_m=0.0, altitude_m=1.5)
        ship.step(45.0)
        ship.command("land")
        ship.step(90.0)
        return witness.trace()


def of(*edits: Edit) -> Change:
    """Return a change of what the log has."""
    return lambda trace: TrueTrace(several(*edits)(trace.flight), trace.world, "")


def world(name: str, value: Any, at_s: float = 0.0, for_s: float = 1e3) -> Change:
    """Return a change of the truth."""

    def change(trace: TrueTrace) -> TrueTrace:
        values = np.array(trace.world[name])
        values[(trace.world.t_s >= at_s) & (trace.world.t_s < at_s + for_s)] = value
        columns = trace.world.columns | {name: values}
        return TrueTrace(trace.flight, Table(trace.world.t_s, columns), "")

    return change


def all_of(*changes: Change) -> Change:
    def change(trace: TrueTrace) -> TrueTrace:
        for one in changes:
            trace = one(trace)
        return trace

    return change


def lands(flight: FlightData) -> FlightData:
    return flight._replace(modes=[Span(0.0, 1e3, "LAND")])


ARMED = put("cycles", "armed", 1.0, 0.0, 1e3)
STILL = [put("cycles", f"out_{name}", 0.0, 0.0, 7.0) for name in ("left", "right", "tail")]
BREACHES: dict[str, Change] = {
    "never disarmed in the air": world("above_m", 1.0),
    "no light ship is let go": world("heaviness_kg", -0.1),
    "not flown away": world("far_m", 50.0, AT),
    "gentle touchdown": world("touchdown_mps", 0.9),
    "what has landed lies there": all_of(world("above_m", 2.0, 120.0)),
    "a ship on the ground is there": of(put("cycles", "on_ground", 1.0, AT, 5.0)),
    "held down is so": of(says("light by about 3.0 g: held down by thrust of 0.1 N", AT)),
    "light is so": all_of(
        world("heaviness_kg", 0.5), of(says("light by about 3.0 g: off the ground", AT))
    ),
    "it weighs itself rightly": of(put("status", "heaviness_kg", 0.5, 0.0, 1e3)),
    "a heavy ship does not run on the ground": all_of(
        of(lands, ARMED), world("above_m", 0.0), world("turning", 1.0)
    ),
    "a light ship that rises is pressed": all_of(
        world("heaviness_kg", -0.01), world("above_m", 0.0, 0.0, 30.0), world("above_m", 1.0, 30.0),
        world("push_n", -1.0), world("press_n", 9.0), of(lands, ARMED, *STILL),
        of(put("truth", "v_down", -0.1, 0.0, 1e3)),
    ),
    "a failsafe lifts no ship, in truth": all_of(
        of(no_mail("takeoff"), *STILL, with_span("failsafes", "link lost: holding", 5.0, 9.0)),
        world("above_m", 0.0, 0.0, 7.0), world("above_m", 1.0, 7.0),
    ),
    "a stop stops the propellers": all_of(
        of(put("status", "killed", 1.0, AT, 3.0), put("cycles", "armed", 0.0, AT, 3.0)),
        world("turning", 1.0),
    ),
    "disarmed stands still": world("turning", 1.0),
    "a healthy ship is not accused": of(says("left: does nothing", AT)),
    "who is accused is broken": of(says("left and right: runs by itself", AT)),
    "a healthy ship has healthy sensors": of(
        lambda flight: flight._replace(sick=((0.0, frozenset()), (AT, frozenset({"imu"}))))
    ),
    "a healthy ship knows its height": of(put("cycles", "down", -9.0, AT, 9.0)),
    "a healthy ship knows its place": of(put("cycles", "north", 9.0, AT, 9.0)),
    "a healthy ship knows its speed": of(put("cycles", "v_north", 2.0, AT, 9.0)),
    "a healthy ship knows its heading": of(put("cycles", "yaw", 2.0, AT, 9.0)),
    "a healthy ship comes down": all_of(of(lands, ARMED), world("above_m", 2.0)),
    "a takeoff that is done is up, in truth": world("above_m", 0.0),
    "a healthy ship keeps its place": of(put("cycles", "set_north", 50.0, 0.0, 1e3)),
}  # fmt: skip


def test_a_flight_in_which_all_goes_well_keeps_every_policy_of_the_truth(flown: TrueTrace) -> None:
    assert [breach.words for breach in check(flown, TRUTH_POLICIES)] == []
    assert set(BREACHES) == {policy.name for policy in TRUTH_POLICIES}


@pytest.mark.parametrize("policy", TRUTH_POLICIES, ids=lambda policy: policy.name)
def test_a_breach_of_the_truth_is_found(policy: Any, flown: TrueTrace) -> None:
    broken = BREACHES[policy.name](flown)
    assert [one.policy.name for one in check(broken, (policy,))] == [policy.name]


@pytest.mark.long
@pytest.mark.parametrize("name", TOURS)
def test_a_tour_keeps_every_policy(name: str) -> None:
    """The mutants of `tests/mutants/policies.toml` each breach one here."""
    assert fly(TOURS[name]).breaches == {}


@pytest.mark.long
@pytest.mark.timeout(900)  # it computes for 70 s, beside others
def test_a_search_is_the_same_for_the_same_seed() -> None:
    """Its second generation is chosen by what the first one was near to."""
    ships = ("no ship has tours here", "gtmab")[1:]
    first, second = (
        [one.case for one in islice(search(flights=11, seed=4, ships=ships), 11)] for _ in range(2)
    )
    assert first == second
    assert first[2:] != first[:9]


def _ordered(at_s: float, name: str, **arguments: float) -> Event:
    return Event(at_s=at_s, what="command", name=name, arguments=arguments)


UP = (_ordered(0.0, "arm"), _ordered(0.5, "takeoff", altitude_m=2.0))
FOUND = {
    # "front: runs by itself": the heading of a gyro that does not feel the ship turn.
    "a gyro that shows one number": Case(
        draw=Draw(
            airframe="blimp2b", seed=646889, load=0.013, wind_mps=0.083, drag_scale=0.646,
            thrust_scale=1.185,
        ),
        events=(
            *UP,
            Event(at_s=11.849, what="failure", name="gyro-z-stuck"),
            _ordered(13.605, "goto", north_m=2.449, east_m=2.05, altitude_m=2.541),
        ),
    ),
    # "left and right: does nothing".
    "a person who holds it for ten seconds": Case(
        draw=Draw(
            airframe="hobby", seed=263994, load=0.011519, wind_mps=0.06086, drag_scale=1.72883,
            thrust_scale=1.04908,
        ),
        events=(
            *UP,
            _ordered(9.8641, "goto", north_m=0.11324, east_m=2.76591, altitude_m=2.68664),
            Event(at_s=16.7636, what="hold"),
            Event(at_s=26.7636, what="hold"),
        ),
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_no_output_is_accused_for_what_a_sensor_or_a_person_does(case: Case) -> None:
    """Cases that `benchmarks.fuzz` has found; each was a breach."""
    assert "who is accused is broken" not in fly(case).breaches
