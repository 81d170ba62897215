"""The check of the wires: a ship on a string or held by a person, and what is said of it."""

from math import radians

import pytest

from benchmarks.campaign import swapped
from benchmarks.wires import backward, bare, mounted, servo_reversed
from blimp import airframe as airframes
from blimp.airframe import Airframe
from blimp.rotation import from_euler
from blimp.ship import Lockstep
from blimp.sim.grip import by_person, on_string
from blimp.types import Outcome, OutcomeState

pytestmark = pytest.mark.slow


def tried(
    name: str, plant: Airframe | None = None, *, seed: int = 5, hold: str = "string"
) -> Outcome:
    ship = bare(airframes.load(name))
    plant = bare(plant) if plant else ship
    with Lockstep(ship, seed=seed, plant=plant, bench=True, rate_hz=50.0) as lockstep:
        physics = lockstep.world.physics
        physics.held = hold == "vice"
        if hold in ("person", "string"):
            attitude = from_euler(radians(2.0), radians(-2.0), 0.0)
            physics.place(position_ned_m=(0.0, 0.0, -1.5), attitude=attitude)
            grip = by_person if hold == "person" else on_string
            physics.grip = grip(plant, physics.state, seed=seed)
        lockstep.step(2.0)
        outcome = lockstep.complete("wires", within_s=180.0, check=False)
        lockstep.step(0.1)
        assert not any(lockstep.world.outputs[motor] for motor in ship.thruster_names)
        return outcome


@pytest.mark.parametrize("hold", ["person", "string"])
@pytest.mark.parametrize("name", ["twin", "gtmab", "blimp2b", "hobby"])
def test_a_ship_that_is_wired_as_its_file_says_is_not_accused(name: str, hold: str) -> None:
    outcome = tried(name, hold=hold)
    assert outcome.result["wrong"] == []
    if hold == "string":
        assert (outcome.state, outcome.result["sure"]) == (OutcomeState.DONE, True)


@pytest.mark.long
def test_what_is_wired_otherwise_is_named_with_its_cure() -> None:
    twin, gtmab = airframes.load("twin"), airframes.load("gtmab")
    for name, plant, said in (
        (
            "gtmab",
            swapped(gtmab, "left", "right"),
            "left and right seem swapped: exchange their pl",
        ),
        ("gtmab", mounted(gtmab, "-x", "y", "-z"), 'mounting = ["-x", "y", "-z"]'),
        ("twin", mounted(twin, "y", "-x", "z"), 'mounting = ["y", "-x", "z"]'),
        (
            "twin",
            servo_reversed(twin, "tilt"),
            "tilt turns the other way: exchange its min_pulse_s",
        ),
        ("twin", backward(twin, "tail"), "tail seems reversed"),
    ):
        outcome = tried(name, plant)
        assert outcome.state is OutcomeState.REFUSED
        assert said in outcome.reason


@pytest.mark.parametrize("hold", ["feet", "vice"])
def test_a_ship_that_cannot_move_freely_is_not_accused(hold: str) -> None:
    outcome = tried("twin", hold=hold)
    assert outcome.result["wrong"] == []
    if hold == "vice":
        assert outcome.state is OutcomeState.REFUSED
        assert outcome.reason.startswith("not sure")
        assert "on a string" in outcome.reason
