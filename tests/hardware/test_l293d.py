"""Truth table: SLRS008D, table 3 and figure 6."""

import pytest

from blimp.hardware.l293d import L293D
from tests.hardware.doubles import Doubles, on_pins

IN1, IN2, IN3, IN4, EN = 6, 13, 19, 26, 12


@pytest.fixture
def fitted() -> tuple[L293D, Doubles]:
    pins = {"in1": IN1, "in2": IN2, "in3": IN3, "in4": IN4, "en": EN}
    return on_pins(L293D, {"a": "left", "b": "right"}, pins, chip="l293d", polls=3)


def levels(buses: Doubles) -> list[float]:
    return [buses.pins[pin].level for pin in (IN1, IN2, IN3, IN4, EN)]


def test_it_starts_with_both_enables_low(fitted: tuple[L293D, Doubles]) -> None:
    assert levels(fitted[1]) == [0.0] * 5


def test_sign_and_magnitude_and_a_kill_by_the_enables(fitted: tuple[L293D, Doubles]) -> None:
    motors, buses = fitted
    motors.enable(0.1)
    motors.write([0.25, -1.0], 0.1)
    assert levels(buses) == [0.25, 0.0, 0.0, 1.0, 1.0]
    motors.write([-0.5, 0.0], 0.11)
    assert levels(buses) == [0.0, 0.5, 0.0, 0.0, 1.0]
    motors.safe()
    assert levels(buses) == [0.0] * 5
