"""Each row of the failsafe's table acts in a flight that names it, with chips and drivers."""

from collections.abc import Callable, Iterator

import msgspec
import pytest

from blimp.control.failsafe import Times, rules
from blimp.ship.failures import BY_NAME
from blimp.ship.lockstep import Lockstep
from blimp.ship.matrix import flush, take_control, with_receiver
from blimp.types import OutcomeState
from tests.sim.branch import branch
from tests.sim.rig import Rig
from tests.sim.ships import twin

SHIP = with_receiver(twin(), "hold")
ROWS = {rule.text: rule.name for rule in rules(SHIP, Times())}
FLIGHT_TIME_S = 60.0


def fails(*names: str) -> Callable[[Lockstep], None]:
    def happen(ship: Lockstep) -> None:
        for name in names:
            BY_NAME[name].happen(ship)

    return happen


def is_in_manual(ship: Lockstep) -> None:
    ship.command("mode", name="MANUAL")
    ship.world.physics.load(-0.1)


def rises_through_its_ceiling(ship: Lockstep) -> None:
    ship.world.physics.load(-0.3)


def loses_its_transmitter(ship: Lockstep) -> None:
    take_control(ship, "hold")
    BY_NAME["transmitter-lost"].happen(ship)


FLIGHTS: tuple[tuple[tuple[str, ...], Callable[[Lockstep], None], float], ...] = (
    (("attitude",), fails("imu-dead"), 4.0),
    (("height",), fails("height-dead"), 4.0),
    (("battery empty",), fails("battery-empty"), 20.0),
    (("outputs",), fails("mains-dead"), 30.0),
    (("servos",), fails("servos-dead"), 5.0),
    (("battery low, no position",), fails("battery-low", "position-dead"), 20.0),
    (("battery unknown", "battery unknown, last stage"), fails("power-dead"), 70.0),
    (("link, first stage", "link, second stage", "link, last stage"), fails("link-lost"), 65.0),
    (
        ("transmitter, first stage", "transmitter, second stage", "transmitter, last stage"),
        loses_its_transmitter,
        65.0,
    ),
    (("MANUAL, no order",), is_in_manual, 35.0),
    (("position", "position, last stage"), fails("position-dead"), 38.0),
    (("fence",), rises_through_its_ceiling, 20.0),
    (("battery low",), fails("battery-low"), 15.0),
)
ASTRAY = ("outputs astray",)
LIFTED = ("outputs, last stage",)
TIMED = ("flight time", "flight time over")
# A bridge on GPIO has no answer to give: an error of the operating system alone makes it unhealthy.
BRIDGES = ("motors_main", "motors_tail")


def hovering(ship: Lockstep) -> Lockstep:
    ship.command("geofence", ceiling_m=3.0)
    assert ship.command("arm").state is OutcomeState.DONE
    assert ship.complete("takeoff", altitude_m=2.0, within_s=60.0).state is OutcomeState.DONE
    return ship


def acts(ship: Lockstep, names: tuple[str, ...], seconds: float) -> None:
    seen: set[str] = set()
    while not seen.issuperset(names) and seconds > 0.0:
        ship.step(0.1)
        seconds -= 0.1
        seen.add(ROWS.get(ship.snapshot().failsafe, ""))
    assert seen.issuperset(names), (seen, ship.messages)


@pytest.fixture(scope="module", name="ship")
def up() -> Iterator[Lockstep]:
    with Lockstep(SHIP, seed=1, wind_mps=0.3) as ship:
        hovering(ship).step(12.0)  # it weighs itself
        flush(ship)
        yield ship


def test_every_row_has_a_flight_that_names_it() -> None:
    named = [name for names, _, _ in FLIGHTS for name in names]
    assert sorted([*named, *ASTRAY, *LIFTED, *TIMED, *BRIDGES]) == sorted(ROWS.values())


@pytest.mark.long
@pytest.mark.parametrize(("names", "happens", "seconds"), FLIGHTS, ids=[f[0][0] for f in FLIGHTS])
def test_a_failure_brings_about_the_rows_that_it_names(
    ship: Lockstep, names: tuple[str, ...], happens: Callable[[Lockstep], None], seconds: float
) -> None:
    def flight() -> None:
        happens(ship)
        acts(ship, names, seconds)

    branch(ship, flight)


@pytest.mark.long
def test_a_flight_timer_takes_the_ship_home_and_then_down() -> None:
    battery = msgspec.structs.replace(SHIP.battery, flight_time_s=FLIGHT_TIME_S)
    with Lockstep(msgspec.structs.replace(SHIP, battery=battery), seed=1) as ship:
        acts(hovering(ship), TIMED, FLIGHT_TIME_S)


@pytest.mark.long
def test_all_motors_of_a_ship_that_is_surely_heavy_sleep_if_those_that_lift_run_by_themselves() -> (
    None
):
    """The tail has been named before: since then nothing is weighed, so its weight stays sure. As
    the first fault it is felt as lift before it is named, and the ship lands instead."""
    with Lockstep(SHIP, seed=1) as ship:
        ship.world.physics.load(0.03)
        hovering(ship).step(12.0)
        BY_NAME["tail-full"].happen(ship)
        acts(ship, ("outputs",), 10.0)
        BY_NAME["mains-full"].happen(ship)
        acts(ship, ASTRAY, 30.0)


@pytest.mark.long
@pytest.mark.parametrize("name", BRIDGES)
def test_a_ship_whose_bridge_cannot_be_driven_lands(name: str) -> None:
    rig = Rig(airframe="twin")
    assert rig.command("arm").state is OutcomeState.DONE
    assert rig.complete("takeoff", within_s=60.0, altitude_m=2.0).state is OutcomeState.DONE
    rig.sensors.unhealthy = (name,)
    rig.step(2.5)
    assert ROWS[rig.loop.snapshot(rig.now_s).failsafe] == name


@pytest.mark.long
def test_motors_idle_if_a_ship_that_is_sent_down_rises_faster_than_any_lift_explains() -> None:
    """Something carries it up, as a stuck motor would before it is named."""
    rig = Rig(airframe="twin")
    assert rig.command("arm").state is OutcomeState.DONE
    assert rig.complete("takeoff", within_s=60.0, altitude_m=2.0).state is OutcomeState.DONE
    rig.command("land")
    seen = set()
    for _ in range(160):
        north, east, down = rig.physics.state.position_ned_m
        up = (0.0, 0.0, -1.0)
        rig.physics.place(position_ned_m=(north, east, down), velocity_ned_mps=up)
        rig.step(0.1)
        seen.add(ROWS.get(rig.loop.snapshot(rig.now_s).failsafe, ""))
    assert seen.issuperset(LIFTED), (seen, rig.loop.snapshot(rig.now_s).messages)
