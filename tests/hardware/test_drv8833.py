"""Truth table: SLVSAR1E table 2."""

import math

import pytest

from blimp.errors import HardwareError
from blimp.hardware.drv8833 import Drv8833
from tests.hardware.doubles import Doubles, on_pins, polled, well

AIN1, AIN2, BIN1, BIN2, NSLEEP = 6, 13, 19, 26, 12


def started(polls: int = 3) -> tuple[Drv8833, Doubles]:
    pins = {"ain1": AIN1, "ain2": AIN2, "bin1": BIN1, "bin2": BIN2, "nsleep": NSLEEP}
    return on_pins(Drv8833, {"b": "right", "a": "left"}, pins, chip="drv8833", polls=polls)


def levels(buses: Doubles) -> dict[int, float]:
    return {number: pin.level for number, pin in buses.pins.items()}


def test_it_starts_asleep_with_all_inputs_low() -> None:
    _, buses = started()
    assert levels(buses) == {AIN1: 0.0, AIN2: 0.0, BIN1: 0.0, BIN2: 0.0, NSLEEP: 0.0}


def test_sign_and_magnitude() -> None:
    motors, buses = started()
    motors.enable(0.1)
    motors.write([0.25, -1.0], 0.1)
    assert levels(buses) == {AIN1: 0.25, AIN2: 0.0, BIN1: 0.0, BIN2: 1.0, NSLEEP: 1.0}
    motors.write([0.0, 0.5], 0.11)
    assert levels(buses) == {AIN1: 0.0, AIN2: 0.0, BIN1: 0.5, BIN2: 0.0, NSLEEP: 1.0}


def test_a_reversal_never_has_both_inputs_high() -> None:
    motors, buses = started()
    motors.enable(0.1)
    motors.write([0.8, 0.0], 0.1)
    buses.levels.clear()
    motors.write([-0.8, 0.0], 0.11)
    assert buses.levels == [(AIN1, 0.0), (AIN2, 0.8)]
    buses.levels.clear()
    motors.write([0.3, 0.0], 0.12)
    assert buses.levels == [(AIN2, 0.0), (AIN1, 0.3)]


def test_it_sleeps_while_no_motor_is_to_turn() -> None:
    """An input that is stuck drives an awake bridge, whatever is written."""
    motors, buses = started()
    motors.enable(0.1)
    motors.write([0.5, 0.0], 0.1)
    motors.write([0.0, 0.0], 0.11)
    assert buses.pins[NSLEEP].level == 1.0  # a throttle of 0 is one, too
    motors.write([None, None], 0.12)
    assert buses.pins[NSLEEP].level == 0.0
    motors.write([0.0, 0.5], 0.13)
    assert buses.pins[NSLEEP].level == 1.0


def test_disabled_it_writes_nothing() -> None:
    motors, buses = started()
    motors.write([1.0, 1.0], 0.1)
    assert set(levels(buses).values()) == {0.0}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1.01, -2.0])
def test_what_is_no_throttle_moves_no_pin(bad: float) -> None:
    motors, buses = started()
    motors.enable(0.1)
    buses.levels.clear()
    with pytest.raises(ValueError, match="motors"):
        motors.write([0.5, bad], 0.1)
    assert buses.levels == []


def test_safe_sleeps_first_then_lowers_the_inputs() -> None:
    motors, buses = started()
    motors.enable(0.1)
    motors.write([1.0, 1.0], 0.1)
    buses.levels.clear()
    motors.safe()
    assert buses.levels[0] == (NSLEEP, 0.0)
    assert set(levels(buses).values()) == {0.0}
    motors.write([1.0, 1.0], 0.2)
    assert set(levels(buses).values()) == {0.0}


def test_safe_goes_on_when_a_pin_fails() -> None:
    motors, buses = started()
    motors.enable(0.1)
    motors.write([1.0, 1.0], 0.1)
    buses.dead_pins.add(NSLEEP)
    with pytest.raises(HardwareError, match="motors may not be safe: GPIO 12"):
        motors.safe()
    assert [buses.pins[pin].level for pin in (AIN1, AIN2, BIN1, BIN2)] == [0.0] * 4


def test_safe_before_it_was_started() -> None:
    motors, buses = started(polls=0)
    motors.safe()
    assert levels(buses) == {AIN1: 0.0, AIN2: 0.0, BIN1: 0.0, BIN2: 0.0, NSLEEP: 0.0}


def test_a_pin_that_fails_in_flight_restarts_the_device_asleep() -> None:
    motors, buses = started()
    motors.enable(0.1)
    buses.dead_pins.add(AIN1)
    for step in range(5):
        motors.write([0.1 * (step + 1), 0.0], 0.1 + 0.01 * step)
    assert not well(motors)
    motors.poll(0.2)
    assert buses.pins[NSLEEP].level == 0.0
    buses.dead_pins.clear()
    polled(motors, 3, start_s=1.0)
    assert well(motors)
    assert buses.pins[NSLEEP].level == 1.0, "it is still enabled"
