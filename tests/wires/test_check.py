"""The action `wires`: when it may push, what ends it, and what it asks of the IMU."""

from collections.abc import Iterator

import pytest

from benchmarks.wires import bare
from blimp import airframe as airframes
from blimp.ship import Lockstep
from blimp.types import OutcomeState, SensorStatus
from blimp.wires.check import WireCheck

TWIN = airframes.load("twin")


@pytest.fixture
def ship() -> Iterator[Lockstep]:
    with Lockstep(bare(TWIN), bench=True, rate_hz=50.0) as lockstep:
        yield lockstep


def turns(ship: Lockstep) -> bool:
    return any(ship.world.outputs[name] for name in TWIN.thruster_names)


def pushed(ship: Lockstep) -> str:
    """Begin, go on until a motor turns, and return the command's id."""
    outcome = ship.command("wires")
    while not turns(ship):
        ship.step(0.02)
    return outcome.id


@pytest.mark.parametrize("command", ["estop", "wires"])
def test_a_stop_and_another_check_end_it_at_once(ship: Lockstep, command: str) -> None:
    id = pushed(ship)
    ship.command(command)
    ship.step(0.2)
    assert not turns(ship)
    assert ship.outcome(id).state is OutcomeState.REFUSED


def test_no_order_is_taken_meanwhile(ship: Lockstep) -> None:
    id = pushed(ship)
    refused = ship.command("motor", check=False, name="left", percent=50.0, seconds=5.0)
    assert "the wires are being tried" in refused.reason
    assert ship.outcome(id).state is OutcomeState.IN_PROGRESS


def test_a_disarmed_ship_that_is_not_on_the_bench_pushes_nothing() -> None:
    with Lockstep("twin") as ship:
        refused = ship.command("wires", check=False)
        assert "not armed" in refused.reason
        ship.command("arm")
        assert "works only in MANUAL" in ship.command("wires", check=False).reason
        ship.command("mode", name="MANUAL")
        id = pushed(ship)
        ship.command("hold")
        ship.step(0.2)
        assert not turns(ship)
        assert ship.outcome(id).state is OutcomeState.REFUSED


def test_a_ship_in_flight_pushes_nothing() -> None:
    with Lockstep("twin") as ship:
        ship.command("arm")
        ship.complete("takeoff", altitude_m=2.0, within_s=60.0)
        ship.command("mode", name="MANUAL")
        assert "not in flight" in ship.command("wires", check=False).reason


@pytest.mark.parametrize("value", [None, (1.0,) * 5, (float("nan"),) * 6])
def test_a_silent_imu_says_nothing(value: tuple[float, ...] | None) -> None:
    status = SensorStatus(value=value, unit="", age_s=0.0, healthy=False)
    check = WireCheck(airframe=TWIN, imu="imu", felt=lambda _: status)
    now_s = 0.0
    while check.finding is None and now_s < 200.0:
        check.update(now_s)
        now_s += 0.02
    assert check.finding is not None
    assert not check.finding.sure
    assert "IMU was silent" in check.finding.said[0]
