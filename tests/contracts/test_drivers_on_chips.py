"""A whole board of drivers on simulated chips; each chip alone is in `test_every_chip.py`."""

from collections.abc import Iterator

import pytest

from blimp.types import ActuatorCommand, SensorReadings
from tests.contracts.flight import Flight
from tests.contracts.machines import lockstep


@pytest.fixture
def flight() -> Iterator[Flight]:
    with lockstep() as machine:
        made = Flight(machine)
        with made.board:
            yield made


def test_a_stuck_bus_costs_its_devices_and_no_others(flight: Flight) -> None:
    flight.run(2.0)
    flight.board.actuators.enable()
    flight.world.fault("baro", "bus_stuck")
    readings = flight.run(2.5, ActuatorCommand(motors=(0.4, 0.4, 0.0), servos=(0.0,) * 3))
    assert set(readings.unhealthy) == {"imu", "baro", "ranger", "power", "servos"}
    assert list(flight.world.electronics.throttles())[:2] == pytest.approx([0.4, 0.4])
    flight.world.fault("baro", "clear")
    flight.run(2.5)
    assert flight.readings.unhealthy == ()


def test_the_servo_board_comes_back_after_it_was_dead(flight: Flight) -> None:
    flight.run(1.0)
    flight.board.actuators.enable()
    command = ActuatorCommand(motors=(0.0,) * 3, servos=(0.5, 0.2, 0.2))
    flight.run(1.5, command)
    flight.world.fault("servos", "no_answer")
    flight.run(1.0, command)
    assert "servos" in flight.readings.unhealthy
    flight.world.fault("servos", "clear")
    flight.run(2.0, command)
    assert flight.readings.unhealthy == ()
    assert flight.world.outputs["tilt"] == pytest.approx(0.5, abs=0.01)


def test_the_same_seed_gives_the_same_samples_to_the_bit() -> None:
    def fly() -> SensorReadings:
        with lockstep() as machine:
            flight = Flight(machine)
            with flight.board:
                return flight.run(2.0)

    assert fly() == fly()
