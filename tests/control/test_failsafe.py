from typing import Any

import pytest

from blimp.control.failsafe import Action, Failsafe, Flags, Times, rules
from blimp.control.weight import a_weight
from blimp.geofence import Geofence, Zone
from blimp.types import VehicleState
from tests.control.parts import at, twin

HEAVY, LIGHT = (a_weight(kg, sigma_kg=0.001) for kg in (0.005, -0.005))
SHIP = twin()
FLYING = at(5.0, 0.0, 3.0)
LOST = at(5.0, 0.0, 3.0, position_valid=False)
DRIFTS = "position lost: holding height and heading"
BROKEN = "an output does not do what is commanded: landing"


def outcome(state: VehicleState, *, seconds: float = 0.0, **flags: Any) -> tuple[Action, str]:
    """The outcome after a condition has lasted `seconds`."""
    failsafe = Failsafe(airframe=SHIP)
    failsafe.update(100.0, state, Flags(**flags))
    found = failsafe.update(100.0 + seconds, state, Flags(**flags))
    return found.action, found.text


@pytest.mark.parametrize(
    ("state", "seconds", "flags", "action", "text"),
    [
        (FLYING, 0.0, {}, Action.NONE, ""),
        (FLYING, 0.0, {"link_age_s": 2.9}, Action.NONE, ""),
        (FLYING, 0.0, {"link_age_s": 3.0}, Action.HOLD, "link lost: holding"),
        (FLYING, 0.0, {"link_age_s": 29.9}, Action.HOLD, "link lost: holding"),
        (FLYING, 0.0, {"link_age_s": 30.0}, Action.RETURN, "link lost: returning"),
        (FLYING, 0.0, {"link_age_s": 60.0}, Action.LAND, "link lost: landing"),
        (FLYING, 0.0, {"link_age_s": 1e9}, Action.LAND, "link lost: landing"),
        (FLYING, 0.0, {"pilot_lost_s": 0.0}, Action.HOLD, "transmitter lost: holding"),
        (FLYING, 0.0, {"pilot_lost_s": 30.0}, Action.RETURN, "transmitter lost: returning"),
        (FLYING, 0.0, {"pilot_lost_s": 60.0}, Action.LAND, "transmitter lost: landing"),
        (LOST, 0.0, {"pilot_lost_s": 30.0}, Action.HOLD, DRIFTS),
        (LOST, 0.0, {}, Action.HOLD, DRIFTS),
        (LOST, 29.0, {}, Action.HOLD, DRIFTS),
        (LOST, 30.0, {}, Action.LAND, "position lost: landing"),
        # Nowhere to return to without a position.
        (LOST, 0.0, {"link_age_s": 40.0}, Action.HOLD, DRIFTS),
        (LOST, 0.0, {"link_age_s": 61.0}, Action.LAND, "link lost: landing"),
        (LOST, 6.0, {"battery_v": 6.9}, Action.LAND, "battery low and position lost: landing"),
        (FLYING, 4.9, {"battery_v": 6.9}, Action.NONE, ""),  # a dip is not a flat battery
        (FLYING, 5.0, {"battery_v": 6.9}, Action.RETURN, "battery low: returning"),
        (FLYING, 3.0, {"battery_v": 6.3}, Action.LAND, "battery empty: landing"),
        (FLYING, 60.0, {"battery_v": None}, Action.NONE, ""),  # a ship that measures none
        (FLYING, 0.0, {"power_age_s": 4.9}, Action.NONE, ""),
        (FLYING, 0.0, {"power_age_s": 5.0}, Action.RETURN, "battery unknown: returning"),
        (FLYING, 0.0, {"power_age_s": 60.0}, Action.LAND, "battery unknown: landing"),
        (LOST, 0.0, {"power_age_s": 5.0}, Action.LAND, "battery unknown: landing"),
        (FLYING, 0.0, {"broken": ("left",)}, Action.LAND, BROKEN),
        (FLYING, 0.0, {"broken": ("left",), "spared": 0.39}, Action.LAND, BROKEN),
        (FLYING, 0.0, {"broken": ("left",), "spared": 0.4}, Action.NONE, ""),
        (at(115.0, 0.0, 3.0), 1.0, {}, Action.RETURN, "outside the fence: returning"),
        (at(0.0, 0.0, 34.0), 1.0, {}, Action.RETURN, "outside the fence: returning"),
        (at(105.0, 0.0, 3.0), 9.0, {}, Action.NONE, ""),
        (at(115.0, 0.0, 3.0, position_valid=False), 9.0, {}, Action.HOLD, DRIFTS),
        (
            FLYING,
            0.0,
            {"unattended": True},
            Action.LAND,
            "MANUAL without an order in force: landing",
        ),
        (FLYING, 1.9, {"unhealthy": ("servos",)}, Action.NONE, ""),
        (FLYING, 2.0, {"unhealthy": ("servos",)}, Action.LAND, "servos lost: landing"),
        (FLYING, 9.0, {"unhealthy": ("sonar",)}, Action.NONE, ""),
        (
            at(0.0, 0.0, 3.0, attitude_valid=False),
            0.0,
            {"link_age_s": 99.0, "battery_v": 6.0},
            Action.DESCEND,
            "attitude lost: level descent",
        ),
        (
            at(0.0, 0.0, 3.0, height_valid=False),
            0.0,
            {},
            Action.DESCEND,
            "height lost: blind descent",
        ),
    ],
)
def test_the_table(
    state: VehicleState, seconds: float, flags: dict[str, Any], action: Action, text: str
) -> None:
    assert outcome(state, seconds=seconds, **flags) == (action, text)


def test_the_fence_of_the_flight_is_judged_in_flight() -> None:
    fence = Geofence(zones=(Zone(circle=(5.0, 0.0, 2.0), exclude=True),))
    failsafe = Failsafe(airframe=SHIP, fence=lambda: fence)
    failsafe.update(0.0, FLYING, Flags())
    assert failsafe.update(1.0, FLYING, Flags()).text == "outside the fence: returning"
    assert failsafe.update(1.1, at(8.0, 0.0, 3.0), Flags()).action is Action.NONE


def test_a_condition_that_ends_starts_again() -> None:
    failsafe = Failsafe(airframe=SHIP)
    low, fine = Flags(battery_v=6.9), Flags(battery_v=7.5)
    failsafe.update(0.0, FLYING, low)
    failsafe.update(4.0, FLYING, fine)
    assert failsafe.update(8.0, FLYING, low).action is Action.NONE
    assert failsafe.update(13.0, FLYING, low).action is Action.RETURN


def test_reset_forgets_since_when() -> None:
    failsafe = Failsafe(airframe=SHIP)
    failsafe.update(0.0, LOST, Flags())
    failsafe.reset()
    assert failsafe.update(30.0, LOST, Flags()).action is Action.HOLD


def test_only_the_last_stage_stops_motors_and_only_of_a_ship_weighed_heavy() -> None:
    """A light ship that is let go flies away: no row but one has an action that stops motors."""
    rows = [rule for rule in rules(SHIP, Times()) if rule.action is Action.IDLE]
    assert [rule.name for rule in rows] == ["outputs, last stage", "outputs astray"]
    assert outcome(FLYING, astray=True, weight=LIGHT) == (Action.NONE, "")
    assert outcome(FLYING, rising_s=60.0, weight=LIGHT) == (Action.NONE, "")
    driven = outcome(FLYING, rising_s=6.0, driven_up=True)  # faster than any lightness
    assert driven[0] is Action.IDLE
    assert outcome(FLYING, rising_s=5.9, weight=HEAVY) == (Action.NONE, "")
    stopped = "sent down and not sinking: motors idle until an arm"
    assert outcome(FLYING, rising_s=6.0, weight=HEAVY) == (Action.IDLE, stopped)
    assert outcome(FLYING, unmoved_s=60.0, driven_up=True) == (Action.NONE, "")
    assert outcome(FLYING, unmoved_s=11.9, weight=HEAVY) == (Action.NONE, "")
    assert outcome(FLYING, unmoved_s=12.0, weight=HEAVY) == (Action.IDLE, stopped)


def test_what_is_latched_ends_with_an_arm_only() -> None:
    failsafe = Failsafe(airframe=SHIP)
    failsafe.update(0.0, FLYING, Flags(rising_s=6.0, weight=HEAVY))
    assert failsafe.update(60.0, FLYING, Flags()).action is Action.IDLE
    failsafe.release(FLYING, Flags(), up_to=Action.LAND)
    assert failsafe.update(61.0, FLYING, Flags()).action is Action.IDLE
    failsafe.reset()
    assert failsafe.update(61.0, FLYING, Flags()).action is Action.NONE


def test_a_pilot_ends_what_is_latched_once_its_cause_is_gone() -> None:
    failsafe, left = Failsafe(airframe=SHIP), Flags(unattended=True)
    failsafe.update(0.0, FLYING, left)
    failsafe.release(FLYING, left, up_to=Action.LAND)
    assert failsafe.update(1.0, FLYING, Flags()).action is Action.LAND
    failsafe.release(FLYING, Flags(), up_to=Action.LAND)
    assert failsafe.update(2.0, FLYING, Flags()).action is Action.NONE


def test_each_row_says_why_it_is_safe_for_a_light_and_for_a_heavy_ship() -> None:
    assert all(rule.light and rule.heavy for rule in rules(SHIP, Times()))


def test_the_table_is_ordered_worst_first() -> None:
    actions = [rule.action for rule in rules(SHIP, Times())]
    assert actions == sorted(actions, reverse=True)
