"""Truth table: the data sheet's "H-SW control function"."""

import math

import pytest

from blimp.airframe import Device as Row
from blimp.errors import BoardError, HardwareError
from blimp.hardware.tb6612 import Tb6612
from tests.hardware.doubles import Doubles, well
from tests.hardware.ships import with_devices

PWMA, AIN1, AIN2, PWMB, BIN1, BIN2, STBY = 6, 13, 19, 26, 5, 22, 12


def fitted(**options: object) -> tuple[Tb6612, Doubles]:
    buses = Doubles()
    row = Row(
        name="motors",
        chip="tb6612",
        bus="gpio",
        pins={
            "pwma": PWMA,
            "ain1": AIN1,
            "ain2": AIN2,
            "pwmb": PWMB,
            "bin1": BIN1,
            "bin2": BIN2,
            "stby": STBY,
        },
        outputs={"b": "right", "a": "left"},
        options=options,
    )
    return Tb6612(row=row, buses=buses, airframe=with_devices(row)), buses


def started() -> tuple[Tb6612, Doubles]:
    motors, buses = fitted()
    for step in range(3):
        motors.poll(0.01 * step)
    assert well(motors)
    return motors, buses


def levels(buses: Doubles) -> list[float]:
    return [buses.pins[p].level for p in (PWMA, AIN1, AIN2, PWMB, BIN1, BIN2, STBY)]


def test_it_starts_in_standby_with_all_inputs_low() -> None:
    _, buses = started()
    assert levels(buses) == [0.0] * 7


def test_sign_and_magnitude() -> None:
    motors, buses = started()
    motors.enable(0.1)
    motors.write([0.25, -1.0], 0.1)
    assert levels(buses) == [0.25, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    motors.write([0.0, 0.5], 0.11)
    assert levels(buses) == [0.0, 0.0, 0.0, 0.5, 1.0, 0.0, 1.0]


def test_a_reversal_is_without_current_and_never_has_both_inputs_high() -> None:
    motors, buses = started()
    motors.enable(0.1)
    motors.write([0.8, 0.0], 0.1)
    buses.levels.clear()
    motors.write([-0.8, 0.0], 0.11)
    assert buses.levels == [(PWMA, 0.0), (AIN1, 0.0), (AIN2, 1.0), (PWMA, 0.8)]


def test_another_throttle_the_same_way_moves_the_modulation_only() -> None:
    motors, buses = started()
    motors.enable(0.1)
    motors.write([0.8, 0.0], 0.1)
    buses.levels.clear()
    motors.write([0.7, 0.0], 0.11)
    assert buses.levels == [(PWMA, 0.7)]


def test_nothing_goes_out_before_it_is_enabled() -> None:
    motors, buses = started()
    motors.write([0.5, 0.5], 0.1)
    assert levels(buses) == [0.0] * 7


def test_safe_stops_by_standby_first_and_lowers_every_input() -> None:
    motors, buses = started()
    motors.enable(0.1)
    motors.write([0.5, -0.5], 0.1)
    buses.levels.clear()
    motors.safe()
    assert buses.levels[0] == (STBY, 0.0)
    assert levels(buses) == [0.0] * 7
    motors.write([0.5, 0.5], 0.2)
    assert levels(buses) == [0.0] * 7


def test_safe_does_the_rest_when_one_pin_fails() -> None:
    motors, buses = started()
    motors.enable(0.1)
    motors.write([0.5, -0.5], 0.1)
    buses.dead_pins.add(STBY)
    with pytest.raises(HardwareError, match=r"may not be safe.*GPIO 12"):
        motors.safe()
    assert levels(buses)[:6] == [0.0] * 6


@pytest.mark.parametrize("throttle", [1.01, -1.01, math.nan, math.inf])
def test_a_throttle_out_of_range_is_refused_and_changes_nothing(throttle: float) -> None:
    motors, buses = started()
    motors.enable(0.1)
    motors.write([0.5, 0.5], 0.1)
    before = levels(buses)
    with pytest.raises(ValueError, match="motors: throttle"):
        motors.write([0.2, throttle], 0.2)
    assert levels(buses) == before


def test_closing_gives_every_pin_back() -> None:
    motors, buses = started()
    motors.close()
    motors.close()
    assert buses.pins == {}


def test_wrong_options_are_named() -> None:
    with pytest.raises(BoardError, match=r"motors: frequency_hz 0"):
        fitted(frequency_hz=0.0)
