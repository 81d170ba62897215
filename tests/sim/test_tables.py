"""Each row of the tables that docs/failsafe.html draws is taken in a flight that names it.

The flight code flies on the physics, in lockstep: see rig.py. A row without a flight is an error.
"""

from collections.abc import Callable
from itertools import product

import pytest

from blimp.control.effect import Fault
from blimp.control.failsafe import Action
from blimp.control.landing import LANDING, LandingEvidence, LandingPhase
from blimp.control.modes.land import Land
from blimp.control.response import RESPONSE_TO, RESPONSES, Stance
from blimp.types import OutcomeState
from blimp.wires.wrong import Wrong
from tests.sim.rig import Rig
from tests.sim.ships import twin, weighing

HEIGHT_M = 2.0


class Flight(Rig):
    """A twin that notes each row that is taken."""

    def __init__(self, *, heaviness_kg: float, wind_mps: float = 0.0, seed: int = 1) -> None:
        self.taken: set[str] = set()
        self._land: Land | None = None
        super().__init__(
            airframe=weighing(twin(), heaviness_kg), seed=seed, wind_mps=wind_mps, settle_s=4.0
        )
        self.on_step = Flight.note
        assert self.command("arm").state is OutcomeState.DONE

    def note(self) -> None:
        mode = self.loop._pilot.flying
        self._land = mode if isinstance(mode, Land) else self._land  # it may just have disarmed
        if self._land is not None and self._land.row is not None:
            self.taken.add(self._land.row.name)
        response = self.loop._supervisor.response
        if response is not None:
            self.taken.add(response.name)

    @property
    def phase(self) -> LandingPhase | None:
        mode = self.loop._pilot.flying
        return mode.phase if isinstance(mode, Land) else None

    def lands(self) -> None:
        done = self.complete("takeoff", within_s=60.0, altitude_m=HEIGHT_M)
        assert done.state is OutcomeState.DONE
        self.command("land")

    def until(self, reached: Callable[[], bool], *, within_s: float = 90.0) -> None:
        end_s = self.now_s + within_s
        while not reached():
            self.step(0.05)
            assert self.now_s < end_s, (self.phase, self.loop.snapshot(self.now_s))

    def sinks_to(self, altitude_m: float) -> None:
        self.until(lambda: self.physics.state.altitude_m < altitude_m)

    def is_in(self, phase: LandingPhase) -> None:
        self.until(lambda: self.phase is phase)

    def carried(self, *, east_m: float = 0.0, up_m: float = 0.0) -> None:
        north, east, down = self.physics.state.position_ned_m
        self.physics.place(position_ned_m=(north, east + east_m, down - up_m))


def a_heavy_ship(ship: Flight) -> None:
    ship.lands()
    ship.until(lambda: not ship.loop.armed)


def a_ship_that_a_person_catches(ship: Flight) -> None:
    """Caught on its way down, let go, caught again, lowered, and let go on trial."""
    ship.lands()
    ship.sinks_to(0.8)
    ship.physics.held = True
    ship.is_in(LandingPhase.TOUCH)
    ship.physics.held = False
    ship.is_in(LandingPhase.SINK)
    ship.sinks_to(0.45)
    ship.physics.held = True
    ship.step(0.5)
    while ship.physics.state.altitude_m > 0.28:
        ship.carried(up_m=-0.004)
        ship.step(0.1)
    ship.is_in(LandingPhase.TRIAL)
    ship.physics.held = False
    ship.is_in(LandingPhase.SINK)


def a_light_ship(ship: Flight) -> None:
    """Pressed, it loses more than it is pressed by, and gets that back."""
    ship.lands()
    ship.is_in(LandingPhase.PRESSED)
    ship.physics.load(-0.2)
    ship.is_in(LandingPhase.LOOSE)
    ship.step(1.0)
    ship.physics.load(0.2)
    ship.is_in(LandingPhase.PRESSED)
    assert ship.loop.armed


def a_ship_that_loses_ballast_on_trial(ship: Flight) -> None:
    ship.lands()
    ship.is_in(LandingPhase.TRIAL)
    ship.physics.load(-0.2)
    ship.is_in(LandingPhase.LOOSE)
    assert ship.loop.armed


def in_doubt(ship: Flight) -> None:
    """It feels the loss of ballast on its way, and feet would hold it."""
    ship.lands()
    ship.sinks_to(1.4)
    ship.physics.load(-0.02)
    ship.is_in(LandingPhase.DOUBT)


def a_ship_that_may_be_light(ship: Flight) -> None:
    ship.lands()
    ship.is_in(LandingPhase.DOUBT)
    assert ship.loop.armed


def a_ship_whose_feet_give_way(ship: Flight) -> None:
    in_doubt(ship)
    ship.physics.load(-0.05)
    ship.is_in(LandingPhase.LOOSE)


def a_ship_that_is_carried_off(ship: Flight) -> None:
    in_doubt(ship)
    for _ in range(40):
        ship.carried(east_m=0.1)
        ship.step(0.1)
    assert ship.phase is LandingPhase.PRESSED


def a_ship_that_rests(ship: Flight) -> None:
    ship.inbox.link_age = 4.0
    ship.step(0.5)
    ship.inbox.link_age = 61.0
    ship.step(0.5)
    assert ship.loop.armed  # its feet might hide that it is light
    for _ in range(40):
        ship.carried(east_m=0.1)
        ship.step(0.1)


def a_ship_that_is_about_to_start(ship: Flight) -> None:
    ship.inbox.link_age = 4.0
    ship.step(0.1)
    ship.command("takeoff", altitude_m=HEIGHT_M)
    ship.step(6.0)
    assert ship.loop.snapshot(ship.now_s).mode == "HOLD"
    for link_s in (4.0, 31.0):
        ship.inbox.link_age = 0.0
        ship.step(0.5)
        ship.command("mode", name="MANUAL")
        ship.command("motor", name="left", percent=5.0, seconds=30.0)
        ship.step(0.5)
        assert any(ship.outputs.command.motors)
        ship.inbox.link_age = link_s
        ship.step(0.5)
        assert not any(ship.outputs.command.motors)


def a_ship_that_comes_down_blind_and_sees_again(ship: Flight) -> None:
    ship.complete("takeoff", within_s=60.0, altitude_m=HEIGHT_M)
    ship.step(10.0)
    ship.inbox.link_age = 4.0
    ship.step(1.0)
    ship.inbox.link_age = 0.0
    ship.step(1.0)
    ship.sensors.cut = {"imu"}
    ship.step(3.0)
    ship.sensors.cut = set()
    ship.step(1.0)
    assert ship.phase is LandingPhase.SINK
    ship.inbox.link_age = 61.0
    ship.is_in(LandingPhase.TRIAL)
    ship.step(0.1)
    runs = Fault(names=("left",), wrong=Wrong.RUNS, thrusts_n=(0.3,))
    ship.loop._actuation._effect._blame((runs,))  # nothing is named on the ground: it comes late
    ship.step(0.1)
    assert "asleep" in ship.loop.snapshot(ship.now_s).failsafe


FLIGHTS: tuple[tuple[Callable[[Flight], None], float, tuple[str, ...]], ...] = (
    (a_heavy_ship, 0.005, ("level flight is over", "stops", "touches down", "stays down")),
    (a_ship_that_a_person_catches, 0.005, ("moves on", "creeps", "sinks on trial")),
    (a_light_ship, -0.006, ("touches down, light", "comes off", "is still off", "lies again")),
    (a_ship_that_loses_ballast_on_trial, 0.005, ("rises on trial",)),
    (a_ship_that_may_be_light, 0.0005, ("stays down, may be light",)),
    (a_ship_whose_feet_give_way, 0.005, ("stays down, in doubt", "rises in doubt")),
    (a_ship_that_is_carried_off, 0.005, ("strays in doubt",)),
    (a_ship_that_rests, 0.005, ("rests", "rests, to come down", "strayed")),
    (
        a_ship_that_is_about_to_start,
        0.005,
        ("starts, to hold", "stands, to hold", "stands, to come down"),
    ),
    (
        a_ship_that_comes_down_blind_and_sees_again,
        0.005,
        (
            "nothing is wrong",
            "flies, to hold",
            "flies, to come down",
            "blind",
            "sees again",
            "down",
            "driven on the ground",
        ),
    ),
)


def test_every_row_has_a_flight_that_names_it() -> None:
    named = [name for _, _, names in FLIGHTS for name in names]
    ways = [row.name for rows in LANDING.values() for row in rows]
    assert sorted(named) == sorted([*ways, *(row.name for row in RESPONSES)])


@pytest.mark.long
@pytest.mark.parametrize(
    ("fly", "heaviness_kg", "names"), FLIGHTS, ids=[fly.__name__ for fly, _, _ in FLIGHTS]
)
def test_a_flight_takes_the_rows_that_it_names(
    fly: Callable[[Flight], None], heaviness_kg: float, names: tuple[str, ...]
) -> None:
    ship = Flight(heaviness_kg=heaviness_kg)
    fly(ship)
    assert set(names) <= ship.taken, ship.taken


def test_each_contact_and_action_have_one_row() -> None:
    for stance, action in product(Stance, Action):
        rows = [row for row in RESPONSES if stance in row.stances and action in row.actions]
        assert rows == [RESPONSE_TO[stance, action]], (stance, action)


def test_no_evidence_matches_two_rows_of_a_phase() -> None:
    assert set(LANDING) == set(LandingPhase)
    for rows in LANDING.values():
        for values in product((False, True), repeat=len(LandingEvidence._fields)):
            seen = LandingEvidence(*values)
            assert len([row for row in rows if row.matches(seen)]) <= 1, seen
